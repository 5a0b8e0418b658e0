"""From problems to judged groups of responses.

`sample_groups` draws responses with a `Sampler` and has them judged. `HFSampler` is the built-in sampler, `VLLMSampler`
uses vLLM, and `register_sampler` adds one. All randomness is keyed (`derive_key`, `EpochOrder`).
"""

from dph.sampling.hf import HFSampler
from dph.sampling.protocol import SAMPLERS, Sampler, checked, register_sampler
from dph.sampling.rollouts import Prompted, encode_problems, greedy, sample_groups, usable_problems
from dph.sampling.seeding import EpochOrder, derive_key, uniforms
from dph.sampling.vllm import VLLMSampler

__all__ = [
    "SAMPLERS",
    "EpochOrder",
    "HFSampler",
    "Prompted",
    "Sampler",
    "VLLMSampler",
    "checked",
    "derive_key",
    "encode_problems",
    "greedy",
    "register_sampler",
    "sample_groups",
    "uniforms",
    "usable_problems",
]
