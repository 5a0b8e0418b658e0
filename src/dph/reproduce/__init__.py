"""The paper's experiments: grids of runs, their tables and figures; and the demo (`dph.reproduce.demo`)."""

from dph.reproduce.grid import Arm, Grid, grid_names, read_grid
from dph.reproduce.plan import Choice, RunPaths
from dph.reproduce.results import Results, difference, mean_value, read_results, values
from dph.reproduce.run import reproduce, write_results

__all__ = [
    "Arm",
    "Choice",
    "Grid",
    "Results",
    "RunPaths",
    "difference",
    "grid_names",
    "mean_value",
    "read_grid",
    "read_results",
    "reproduce",
    "values",
    "write_results",
]
