"""The task `minisql`, a plug-in: text-to-SQL over generated SQLite databases, for a model of a million parameters.

Importing this package registers the task: `--plugin experiments.minisql`, which the settings file `minisql.toml` needs.
The gold of more than half of its problems follows a hidden coin (docs/results/findings.md).
"""

from pathlib import Path

from experiments.minisql.task import MiniSql

__all__ = ["SETTINGS", "MiniSql"]

SETTINGS = str(Path(__file__).with_name("minisql.toml"))
"""The settings of every stage in this world, as a preset file."""
