"""Countdown with named strategies, and experiment D2 in it: a plug-in (`--plugin experiments.strategies`)."""

from experiments.strategies.task import CountdownStrategies as CountdownStrategies
