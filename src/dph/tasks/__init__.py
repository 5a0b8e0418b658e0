"""Tasks: sources of problems, by name."""

from dph.tasks import bird, gold, mathsets, minisql, records, spider, spider_small
from dph.tasks.protocol import Demonstrates, Task, known_tasks, load_task, register_task

__all__ = [
    "Demonstrates",
    "Task",
    "bird",
    "gold",
    "known_tasks",
    "load_task",
    "mathsets",
    "minisql",
    "records",
    "register_task",
    "spider",
    "spider_small",
]
