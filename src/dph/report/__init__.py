"""Tables, figures and an HTML page from finished runs."""

from dph.report.data import read_eval, read_runs
from dph.report.write import report, write_report

__all__ = ["read_eval", "read_runs", "report", "write_report"]
