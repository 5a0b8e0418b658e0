"""Settings of `dph verl`: those of `dph train`, and what a launch on a cluster needs besides."""

from dataclasses import dataclass, field
from typing import Literal

from dph.config.schema import RolloutConfig, TrainConfig


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The GPUs that verl trains on, and how the model lies on them; 0 and "auto" are settled by estimated size."""

    gpus: int = 8
    """GPUs in all."""
    per_node: int = 8
    """GPUs of one node."""
    memory: float = 80.0
    """Memory of one GPU, in GB."""
    tensor_parallel: int = 0
    """GPUs that one copy of vLLM spans; 0 chooses."""
    sequence_parallel: int = 0
    """GPUs that share each sequence in training; 0 chooses."""
    offload: Literal["auto", "none", "between", "cpu"] = "auto"
    """Where training states lie: none on the GPUs; between in host memory while responses are sampled; cpu always in
    host memory."""


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Pre-sampling, as in `dph presample`."""

    n: int = 8
    """Responses drawn for each prompt."""
    threshold: int = 6
    """Correct responses of n from which a prompt counts as near-perfect."""
    refine: Literal["move", "discard", "keep"] = "move"
    """What happens to a near-perfect prompt whose further draw is wrong."""
    stored: int = 1
    """Correct responses stored for each near-perfect prompt."""
    drop_unsolved: bool = False
    """Drop prompts without any correct response."""


@dataclass(frozen=True, slots=True)
class VerlConfig(TrainConfig):
    """`dph verl`: write the launch of a training run through verl; `out` is the launch directory."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    validation: RolloutConfig = field(default_factory=lambda: RolloutConfig(n=32))
    """Sampling of validation during training and of the evaluation afterwards."""
    plugins: tuple[str, ...] = ()
    """Python files or modules that register tasks, verifiers or divergences, for every process of the launch."""
    start: bool = False
    """Also run the launch on this machine, step after step (one node only)."""
