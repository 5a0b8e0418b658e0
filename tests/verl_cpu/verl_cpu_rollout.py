# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""Test support: rollouts by transformers in a Ray actor, FSDP2's engine on the CPU, and a gloo process group.

Registered through verl's registries; rollout name `hf_cpu`. With VERL_CPU_TRANSCRIPTS in the environment the model says
what `transcripts` says; its value `stale` makes the servers keep their first weights. Otherwise responses are drawn
with numbers keyed by prompt, weights version and how often the prompt was asked, so that a resumed run draws what the
uninterrupted one drew. verl's own rollout `vllm` runs here too, with whole weights.
"""

import asyncio
import os
from collections import Counter

import ray
import torch
from verl.workers import engine_workers
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from dph.integrations.verl.engine import SharedPrefixEngine


@ray.remote(num_cpus=0)
class Draws:
    """Counts over all servers how often a prompt was asked: which server is asked depends on their load."""

    def __init__(self):
        self.asked = Counter()

    def number(self, prompt_ids, step):
        self.asked[tuple(prompt_ids), step] += 1
        return self.asked[tuple(prompt_ids), step]


@ray.remote(num_cpus=0)
class HFServer:
    def __init__(self, model_path, response_length):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self.response_length = response_length
        self.transcripts = os.environ.get("VERL_CPU_TRANSCRIPTS")
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.eos = self.model.config.eos_token_id
        self.global_steps = None
        self.draws = Draws.options(name="hf_cpu_draws", get_if_exists=True).remote()
        self.lock = asyncio.Lock()

    @torch.no_grad()
    def _generate(self, prompt_ids, params, number):
        limit = params.get("max_tokens") or params.get("max_new_tokens") or self.response_length
        temperature = params.get("temperature", 1.0)
        from dph.sampling.seeding import derive_key

        generator = torch.Generator().manual_seed(derive_key(0, *prompt_ids, self.global_steps or 0, number))
        ids, past, tokens, logprobs, stop = torch.tensor([prompt_ids]), None, [], [], "length"
        script = self._script(prompt_ids, number)
        for place in range(limit):
            output = self.model(input_ids=ids, past_key_values=past, use_cache=True)
            past = output.past_key_values
            logits = output.logits[0, -1].float()
            values = torch.log_softmax(logits / (temperature if temperature > 0 else 1.0), -1)
            token = (
                int(values.argmax())
                if temperature <= 0
                else int(torch.multinomial(values.exp(), 1, generator=generator))
            )
            token = script[place] if script else token
            tokens.append(token)
            logprobs.append(float(values[token]))
            ids = torch.tensor([[token]])
            if token == self.eos:
                stop = "completed"
                break
        return TokenOutput(
            token_ids=tokens,
            log_probs=logprobs if params.get("logprobs") else None,
            stop_reason=stop,
            num_preempted=0,
            extra_fields={"global_steps": self.global_steps},
        )

    def _script(self, prompt_ids, number):
        if not self.transcripts:
            return []
        from transcripts import next_turn

        text = next_turn(self.tokenizer.decode(prompt_ids), (number - 1) % 4)
        return self.tokenizer.encode(text, add_special_tokens=False)

    async def generate(self, request_id, prompt_ids, sampling_params, image_data=None, video_data=None, **kwargs):
        async with self.lock:
            number = await self.draws.number.remote(list(prompt_ids), self.global_steps)
            return await asyncio.to_thread(self._generate, list(prompt_ids), dict(sampling_params), number)

    async def load_weights(self, state):
        if self.transcripts == "stale":
            return
        own = self.model.state_dict()
        missing = set(own) - set(state) - {"lm_head.weight"}  # tied to the embeddings
        assert not missing and set(state) <= set(own), (missing, set(state) - set(own))
        self.model.load_state_dict({name: value.to(own[name].dtype) for name, value in state.items()}, strict=False)

    async def set_global_steps(self, step):
        self.global_steps = step

    async def wake_up(self, tags=None): ...
    async def sleep(self): ...
    async def clear_kv_cache(self): ...
    async def release_kv_cache(self): ...
    async def resume_kv_cache(self): ...
    async def abort_all_requests(self, reject_request=False): ...
    async def resume_generation(self): ...
    async def start_profile(self, **kwargs): ...
    async def stop_profile(self): ...


class HFReplica(RolloutReplica):
    async def launch_servers(self):
        config = self.model_config
        path = config["path"] if isinstance(config, dict) else config.path
        name = f"hf_cpu_server_{self.replica_rank}_0"
        server = HFServer.options(name=name).remote(path, self.config.response_length)
        self.servers, self._server_handle, self._server_address = [server], server, name


class HFServerAdapter(BaseRollout):
    def __init__(self, config, model_config, device_mesh, replica_rank=-1):
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True
        self._server = None

    @property
    def server(self):
        if self._server is None:
            self._server = ray.get_actor(f"hf_cpu_server_{self.replica_rank}_0")
        return self._server

    async def resume(self, tags):
        await self.server.wake_up.remote(tags=tags)

    async def release(self):
        await self.server.sleep.remote()

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **kwargs):
        state = {name: value.detach().cpu().clone() for name, value in weights}
        await self.server.load_weights.remote(state)
        if global_steps is not None:
            await self.server.set_global_steps.remote(global_steps)


RolloutReplicaRegistry.register("hf_cpu", lambda: HFReplica)
rollout_base._ROLLOUT_REGISTRY[("hf_cpu", "async")] = f"{__name__}.HFServerAdapter"
EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu", vendor="dph")(
    SharedPrefixEngine
)

_init = engine_workers.TrainingWorker.__init__


def _init_with_gloo(self, config):
    """verl would ask for the backend "cpu:gloo,cpu:gloo", which torch refuses; it takes a group that is there."""
    if not torch.distributed.is_initialized():
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
    torch.set_num_threads(1)
    _init(self, config)


engine_workers.TrainingWorker.__init__ = _init_with_gloo

if "VERL_REPLICA_RANK" in os.environ:  # in the processes of a vLLM server
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
    from vllm.model_executor.layers import utils as layers

    def _reload(self, weights, peft_config, base_sync_done):
        """verl writes into vLLM's parameters, which its build for processors has replaced by packed ones; vLLM's own
        reload packs the new ones."""
        assert not peft_config
        self.model_runner.reload_weights(weights_iterator=iter([(name, value.clone()) for name, value in weights]))

    _dispatch = layers.dispatch_cpu_unquantized_gemm

    def _pack(layer, remove_weight):
        """verl then has all layers packed once more. That is needed for a head that is tied to the embeddings; a layer
        whose weights the reload has packed has an empty parameter left, which vLLM takes for that of a convolution
        where the processor has AMX ("Dimension out of range")."""
        if layer.weight.numel():
            _dispatch(layer, remove_weight)

    vLLMColocateWorkerExtension._update_weights = _reload
    layers.dispatch_cpu_unquantized_gemm = _pack
