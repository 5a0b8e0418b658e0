# pyright: reportMissingImports=false
"""vLLM's offline engine as a sampler (extra `vllm`, in a separate environment).

`dph presample` and `dph eval` do not change the weights: vLLM loads them from the same path as the policy, and the
policy is moved to host memory while vLLM runs. In training, the policy stays on the device: vLLM runs in the trainer's
process and copies the policy's weights, tensor by tensor, when they have changed. On a GPU it sleeps during updates: it
gives up its weights, which it then copies again, and its cache.

Log-probabilities are vLLM's own, at the sampling temperature. If a parameter such as top-p or min-p truncates the
distribution, vLLM returns only those of the truncated one, so completions then have none. No stage trains on them
directly: rehearsal sets store the policy's own, and training corrects for the difference. A response depends on its key
and the policy, but vLLM's rounding also depends on the rest of the batch. Unlike the built-in sampler, it may therefore
return different responses if other prompts are sampled with it.
"""

import gc
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dph.config import EvaluatedModelConfig, SamplerConfig, TrainingSamplerConfig
from dph.config.checks import check_alone
from dph.config.sampling import SamplingParams, vllm_settings
from dph.errors import ModelError, SettingsError, counted, how_to_install
from dph.models.loading import model_folder
from dph.models.policy import Policy
from dph.process.progress import say
from dph.sampling.protocol import Sampler, register_sampler
from dph.types import Completion

_SEED_BITS = 31
"""Bits of a key that seed vLLM. vLLM adds a response's index to the seed; 31 bits leave room in its 64-bit seeds."""


@register_sampler("vllm")
class VLLMSampler(Sampler):
    """Samples from the model that a policy was loaded from or, in training, from the current policy."""

    def __init__(
        self,
        policy: Policy,
        config: TrainingSamplerConfig,
        model: EvaluatedModelConfig,
        longest: int,
        *,
        training: bool = False,
    ) -> None:
        """
        Args:
            policy: defines the end tokens; its weights are read only in training.
            config: vLLM's rows, memory and parallelism.
            model: the model that vLLM loads: the policy's weights or, in training, any model of the same shape.
            longest: most tokens of a prompt and its response together.
            training: the policy is being trained, so it stays on its device and its weights are copied to vLLM.
        """
        check_alone()
        self._policy, self._config, self._model = policy, config, model
        self._training = self._stale = training  # a resumed policy differs from `model`
        self._longest = min(longest, policy.context_length)
        self._llm: Any = None
        self._texts = False
        self._sleeps, self._asleep = training and policy.device.type == "cuda", False
        self._home: torch.device | None = None
        self._numbers = itertools.count()

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """See Sampler.stream."""
        engine = self._start(texts=bool(params.stop))
        places = {}
        try:
            for index, (prompt, key) in enumerate(zip(prompts, keys, strict=True)):
                name = f"dph-{next(self._numbers)}"
                wanted = self._params(params, key)
                # If the engine assigns request ids itself, it returns the one that its outputs carry
                added = engine.add_request(name, {"prompt_token_ids": list(prompt)}, wanted)
                places[name] = index
                if isinstance(added, str):
                    places[added] = index
            left = len(prompts)
            while left and engine.has_unfinished_requests():
                for output in engine.step():
                    if output.finished:
                        left -= 1
                        ordered = sorted(output.outputs, key=lambda response: response.index)
                        yield (
                            places.pop(output.request_id),
                            [self._completion(response, params) for response in ordered],
                        )
            if left:
                raise RuntimeError(f"vLLM stopped before it finished {left} of {counted(len(prompts), 'prompt')}")
        finally:
            if places:
                engine.abort_request(list(places))

    def close(self) -> None:
        """Stop the engine and put the policy back on its device."""
        if self._llm is None:
            return
        self._llm.llm_engine.engine_core.shutdown()
        self._llm, self._stale, self._asleep = None, self._training, False
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self._home is not None:
            self._policy.model.to(self._home)

    def weights_changed(self) -> None:
        """See Sampler.weights_changed."""
        self._stale = self._training

    def rest(self) -> None:
        """See Sampler.rest."""
        if self._llm is not None and self._sleeps and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = self._stale = True

    def _start(self, *, texts: bool) -> Any:
        """The engine with the current weights. texts: it has a tokenizer, as it needs to find stop strings."""
        if texts and not self._texts:
            self.close()  # an engine without a tokenizer
            self._texts = True
        if self._llm is None:
            if not self._training:
                self._home = self._policy.device
                self._policy.model.to("cpu")
            elif self._policy.device.type != "cpu":
                say("vLLM in `dph train` has been tested only on a CPU, not on a GPU; watch exp/sampler_kl")
            how = {"here": self._training, "sleeps": self._sleeps, "texts": self._texts}
            self._llm = start_engine(self._model, self._config, self._longest, **how)
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        if self._stale:
            weights = policy_weights(self._policy)
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights.items())})
            if self._asleep:
                self._llm.wake_up(tags=["kv_cache"])  # only now, so that the copying has its memory
            self._llm.reset_prefix_cache()  # its cached prompts belong to the old weights
            self._asleep = self._stale = False
        return self._llm.llm_engine

    def _params(self, params: SamplingParams, key: int) -> Any:
        from vllm import SamplingParams as Params
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        try:
            return Params(
                seed=key >> (64 - _SEED_BITS) if params.temperature > 0 else None,
                stop_token_ids=sorted(self._policy.eos_ids),
                logprobs=None if params.truncations else 0,
                output_kind=RequestOutputKind.FINAL_ONLY,
                **{"detokenize": False} | vllm_settings(params),
            )
        except (VLLMClientError, ValueError) as error:
            raise SettingsError(f"vLLM rejects the settings under 'rollout': {error}") from error

    def _completion(self, output: Any, params: SamplingParams) -> Completion:
        ids = list(output.token_ids)
        by_place = output.logprobs or []
        logprobs = [at[token].logprob for token, at in zip(ids, by_place, strict=True)] if by_place else []
        by_text = bool(params.stop) and output.stop_reason in params.stop
        ended = by_text or (bool(ids) and ids[-1] in self._policy.eos_ids)
        return Completion(ids, logprobs, "stop" if ended else "length")


def policy_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """The policy's tensors under the names that they would have in a checkpoint."""
    from transformers.core_model_loading import revert_weight_conversion

    model = policy.model
    state = {name: value.detach() for name, value in model.state_dict().items()}
    return revert_weight_conversion(model, state)


def start_engine(
    model: EvaluatedModelConfig,
    config: TrainingSamplerConfig,
    longest: int,
    *,
    here: bool = False,
    sleeps: bool = False,
    texts: bool = False,
) -> Any:
    """Start vLLM's `LLM` for a model, in the process that vLLM chooses.

    here: in this process, so that it can read the policy's tensors. sleeps: it can be put to sleep. texts: it has the
    model's tokenizer. Raises UserError if vLLM is not installed or cannot load the model.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        from vllm import LLM
    except ImportError as error:
        raise ModelError(
            f"vLLM cannot be imported ({error}); in a separate environment run: {how_to_install('vllm')}, or sample "
            "with --sampler.engine hf"
        ) from error
    say("starting vLLM")
    if here:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        return LLM(
            model=model_folder(model.path),
            skip_tokenizer_init=not texts,
            trust_remote_code=model.trust_remote_code,
            dtype="float32" if model.precision == "fp32" else "bfloat16",
            max_model_len=longest,
            max_num_seqs=config.rows,
            tensor_parallel_size=config.tensor_parallel if isinstance(config, SamplerConfig) else 1,
            gpu_memory_utilization=config.memory,
            enforce_eager=not torch.cuda.is_available(),  # compilation for a CPU takes minutes
            # vLLM sets a seeded request's generator back when a pass ends within its prompt; a CPU's cannot be set back
            enable_chunked_prefill=None if torch.cuda.is_available() else False,
            logprobs_mode="processed_logprobs",
            enable_sleep_mode=sleeps,
            seed=0,
        )
    except (RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        reason = reason.replace("--gpu-memory-utilization", "--sampler.memory")  # what vLLM advises, by our name
        raise ModelError(
            f"vLLM could not start with {model.path}: {reason} (set VLLM_LOGGING_LEVEL=INFO to see its log)"
        ) from error
