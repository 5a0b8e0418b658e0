"""The paper's experiments: grids of runs, their tables and figures; and the demo."""
