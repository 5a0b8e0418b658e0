# pyright: reportMissingImports=false
"""DPH-RL for users of TRL: `DPHTrainer` is `GRPOTrainer` with rehearsal. It needs the extra `trl`.

`SharedPrefixMixin`, `PassAtKMixin` and `AdvantageMixin` extend any GRPO trainer of TRL. `exploration_set` gives the
prompts of a presample run, `VerifierReward` its verifiers as a reward function, and `CertifyCallback` certifies what
training keeps.
"""

try:
    import trl  # noqa: F401
except ImportError as error:
    raise ImportError("dph.integrations.trl needs TRL; install it with: pip install 'dph-rl[trl]'") from error

from dph.integrations.trl.certify import CertifyCallback
from dph.integrations.trl.config import DPHConfig
from dph.integrations.trl.data import SqlEnvironment, VerifierReward, exploration_set
from dph.integrations.trl.rewards import AdvantageMixin, PassAtKMixin
from dph.integrations.trl.shared_prefix import SharedPrefixMixin
from dph.integrations.trl.trainer import DPHTrainer

__all__ = [
    "AdvantageMixin",
    "CertifyCallback",
    "DPHConfig",
    "DPHTrainer",
    "PassAtKMixin",
    "SharedPrefixMixin",
    "SqlEnvironment",
    "VerifierReward",
    "exploration_set",
]
