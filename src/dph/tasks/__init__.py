"""Tasks: sources of problems, by name. The module of a task is imported when the task is first used."""

from dph.tasks.protocol import TASKS, Demonstrates, Task, load_task, register_task

__all__ = ["TASKS", "Demonstrates", "Task", "load_task", "register_task"]

TASKS.declare("dph.tasks.bird", "bird")
TASKS.declare("dph.tasks.gold", "gold")
TASKS.declare("dph.tasks.hub", "hub")
TASKS.declare("dph.tasks.minisql.task", "minisql")
TASKS.declare("dph.tasks.records", "records")
TASKS.declare("dph.tasks.spider.task", "spider")
TASKS.declare(
    "dph.tasks.mathsets",
    *("aime24", "aime25", "amc23", "college_math", "dapo_math_17k", "gaokao2023en", "gsm8k", "hmmt_feb_2025"),
    *("math", "math500", "math_sets", "minerva_math", "olymmath_easy", "olymmath_hard", "olympiadbench", "sat_math"),
    "svamp",
)
