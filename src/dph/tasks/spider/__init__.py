"""Spider and its variants, and `spider_small`, a task for small models built from Spider."""
