"""One training step, its checks and its checkpoints.

`explore` draws and judges groups, `shaping` turns them into rows with advantages, `update` applies the objective to
mixed mini-batches, `monitor`, `alarms` and `guards` watch, `checkpoints` saves. `loop` puts them together.
"""

from dph.training.checkpoints import TrainState
from dph.training.explore import Drawn, Explorer, is_informative
from dph.training.monitor import Monitor, count_rollouts
from dph.training.optim import Optimizer, learning_rate
from dph.training.reference import Reference
from dph.training.rows import Batch, Row, batches, collate, rehearsal_row
from dph.training.shaping import Shaping, overlong_penalty
from dph.training.update import Updater, count_rows

__all__ = [
    "Batch",
    "Drawn",
    "Explorer",
    "Monitor",
    "Optimizer",
    "Reference",
    "Row",
    "Shaping",
    "TrainState",
    "Updater",
    "batches",
    "collate",
    "count_rollouts",
    "count_rows",
    "is_informative",
    "learning_rate",
    "overlong_penalty",
    "rehearsal_row",
]
