"""From problems to judged groups of responses.

`sample_groups` draws responses with a `Sampler` and has them judged. `HFSampler` is the built-in sampler, `VLLMSampler`
uses vLLM, and `register_sampler` adds one. All randomness is keyed (`derive_key`, `EpochOrder`).
"""

from dph.sampling.protocol import SAMPLERS, Sampler, register_sampler

__all__ = ["Sampler", "register_sampler"]

SAMPLERS.declare("dph.sampling.generate", "hf")
SAMPLERS.declare("dph.sampling.vllm", "vllm")
