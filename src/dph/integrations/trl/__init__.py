# pyright: reportMissingImports=false
"""DPH-RL for users of TRL: `DPHTrainer` is `GRPOTrainer` plus rehearsal. Needs the extra `trl` (TRL 1.16)."""

try:
    import trl
except ImportError as error:
    raise ImportError("dph.integrations.trl needs TRL; install it by: pip install 'dph-rl[trl]'") from error

if not trl.__version__.startswith("1.16."):
    raise ImportError(
        f"dph.integrations.trl works with TRL 1.16, but TRL {trl.__version__} is installed; "
        "install it by: pip install 'dph-rl[trl]'"
    )

from dph.integrations.trl.config import DPHConfig
from dph.integrations.trl.data import Judged, exploration_set
from dph.integrations.trl.trainer import DPHTrainer

__all__ = ["DPHConfig", "DPHTrainer", "Judged", "exploration_set"]
