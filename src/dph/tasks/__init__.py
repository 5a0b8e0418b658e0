"""Tasks: sources of problems, by name."""

import dph.tasks.bird
import dph.tasks.gold
import dph.tasks.mathsets
import dph.tasks.minisql.task
import dph.tasks.records
import dph.tasks.spider.small
import dph.tasks.spider.task  # noqa: F401 (importing tasks registers them)
from dph.tasks.protocol import TASKS, Demonstrates, Task, load_task, register_task

__all__ = ["TASKS", "Demonstrates", "Task", "load_task", "register_task"]
