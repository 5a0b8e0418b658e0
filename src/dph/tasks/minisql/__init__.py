"""The built-in task: text-to-SQL over generated SQLite databases, small enough for a model of a million parameters."""

from dph.tasks.minisql.task import MiniSql

__all__ = ["MiniSql"]
