"""One training step, and what watches it.

`explore` draws and judges groups, `shaping` turns them into rows with advantages, `update` applies the objective to
mixed mini-batches, `monitor`, `alarms` and `guards` watch, `checkpoints` saves. `dph.stages.train` is the loop.
"""

__all__ = [
    "alarms",
    "checkpoints",
    "explore",
    "guards",
    "inputs",
    "monitor",
    "optim",
    "reference",
    "rows",
    "shaping",
    "update",
]
