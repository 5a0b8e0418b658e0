"""Tables, figures and an HTML page from finished runs."""

from dph.report.comparison import Comparison, compare, retention
from dph.report.data import EvalRun, TrainRun, read_eval, read_runs
from dph.report.tables import Cell, Table, print_table, to_markdown
from dph.report.write import Extra, Report, report, write_report

__all__ = [
    "Cell",
    "Comparison",
    "EvalRun",
    "Extra",
    "Report",
    "Table",
    "TrainRun",
    "compare",
    "print_table",
    "read_eval",
    "read_runs",
    "report",
    "retention",
    "to_markdown",
    "write_report",
]
