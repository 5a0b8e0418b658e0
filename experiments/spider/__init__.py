"""The task `spider_small`, a plug-in: importing this package registers it (`--plugin experiments.spider`)."""

from experiments.spider.task import SpiderSmall

__all__ = ["SpiderSmall"]
