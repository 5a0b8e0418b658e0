"""Spider and its variants, and `spider_small`, a task for small models made from them."""

__all__ = ["hardness", "small", "styles", "task", "templates"]
