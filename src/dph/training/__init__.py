"""Training: one step, and the frame that repeats it.

`loop` is the step on one screen: `rollouts` draws, judges and shapes, `rows` holds what the loss needs, `update`
applies the objective to mixed mini-batches. `watch` counts, guards and warns, `monitor` evaluates held-out problems.
`frame` repeats the step, saves (`checkpoints`) and stops.
"""

from dph.training.checkpoints import TrainState
from dph.training.monitor import Monitor
from dph.training.optim import Optimizer, learning_rate
from dph.training.rollouts import Drawn, Explorer, Shaping, is_informative, overlong_penalty
from dph.training.rows import Batch, Row, batches, collate, mix, rehearsal_row
from dph.training.update import Updater, count_rows
from dph.training.watch import StepStats

__all__ = [
    "Batch",
    "Drawn",
    "Explorer",
    "Monitor",
    "Optimizer",
    "Row",
    "Shaping",
    "StepStats",
    "TrainState",
    "Updater",
    "batches",
    "collate",
    "count_rows",
    "is_informative",
    "learning_rate",
    "mix",
    "overlong_penalty",
    "rehearsal_row",
]
