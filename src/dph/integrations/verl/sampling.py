# pyright: reportMissingImports=false
"""Sampling parameters that verl's rollout settings lack, such as min-p and stop strings: from our block `dph` of verl's
configuration into each request of verl's agent loops. A configuration that sets one of them names `AgentLoopManager`.
"""

from typing import Any

import ray
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, AgentLoopWorkerTQ

from dph.config.sampling import vllm_settings
from dph.integrations.verl.settings import sampling_block

_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__


class AgentLoopWorker(_Worker):
    """verl's worker, which asks for responses with our parameters too."""

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], **more: Any
    ) -> None:
        given = sampling_block(self.config["dph"], validation=trajectory["validate"])
        ours = {name: value for name, value in vllm_settings(given).items() if name not in _OF_VERL}
        await super()._run_prompt(prompt, sampling_params | ours, trajectory, **more)


_OF_VERL = ("n", "max_tokens", "temperature", "top_p")
"""What verl's own settings say, in vLLM's words."""


class AgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with our workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(AgentLoopWorker)
