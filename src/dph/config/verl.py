"""Settings of `dph verl`: those of `dph train`, and what a launch on a cluster needs in addition."""

from dataclasses import dataclass, field
from typing import Literal

from dph.config.bounds import NonNegativeInt, Positive, PositiveInt
from dph.config.components import SamplingConfig
from dph.config.stages import PartitionRule, TrainConfig


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The GPUs that verl trains on, and how the model is spread over them; 0 and "auto" choose by estimated size."""

    gpus: PositiveInt = 8
    """GPUs in total."""
    per_node: PositiveInt = 8
    """GPUs of one node."""
    memory: Positive = 80.0
    """Memory of one GPU, in GB."""
    tensor_parallel: NonNegativeInt = 0
    """GPUs that one copy of vLLM spans; 0 chooses."""
    sequence_parallel: NonNegativeInt = 0
    """GPUs that share each sequence in training; 0 chooses."""
    offload: Literal["auto", "none", "between", "cpu"] = "auto"
    """Where the training state is kept: none, on the GPUs; between, in host memory while responses are sampled; cpu,
    always in host memory."""


@dataclass(frozen=True, slots=True)
class PartitionConfig(PartitionRule):
    """Pre-sampling, as in `dph presample`."""

    n: PositiveInt = 8
    """Responses drawn for each prompt."""


@dataclass(frozen=True, slots=True)
class VerlConfig(TrainConfig):
    """`dph verl`: write the launch of a training run through verl; `out` is the launch directory."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    validation: SamplingConfig = field(default_factory=lambda: SamplingConfig(n=32))
    """Sampling of validation during training and of the evaluation afterwards."""
    start: bool = False
    """Also run the launch on this machine, one step after the other (one node only)."""
