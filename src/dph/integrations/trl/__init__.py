# pyright: reportMissingImports=false
"""DPH-RL for users of TRL: `DPHTrainer` is `GRPOTrainer` with rehearsal. It needs the extra `trl`.

`SharedPrefixMixin`, `PassAtKMixin` and `AdvantageMixin` extend any GRPO trainer of TRL. `exploration_set` gives the
prompts of a presample run, `VerifierReward` its verifiers as a reward function, and `CertifyCallback` certifies what
training keeps.
"""

from dph.errors import how_to_install

try:
    import trl  # noqa: F401
except ImportError as error:
    raise ImportError(f"dph.integrations.trl needs TRL; install it with: {how_to_install('trl')}") from error

from dph.integrations.trl.certify import CertifyCallback as CertifyCallback
from dph.integrations.trl.config import DPHConfig as DPHConfig
from dph.integrations.trl.data import SqlEnvironment as SqlEnvironment
from dph.integrations.trl.data import VerifierReward as VerifierReward
from dph.integrations.trl.data import exploration_set as exploration_set
from dph.integrations.trl.rewards import AdvantageMixin as AdvantageMixin
from dph.integrations.trl.rewards import PassAtKMixin as PassAtKMixin
from dph.integrations.trl.shared_prefix import SharedPrefixMixin as SharedPrefixMixin
from dph.integrations.trl.trainer import DPHTrainer as DPHTrainer
