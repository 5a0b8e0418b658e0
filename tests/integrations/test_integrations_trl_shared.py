# pyright: reportMissingImports=false
"""Shared prompts inside TRL: the same log-probabilities, gradients and weights as TRL's own trainer.

It runs in an environment with the extra `trl`: scripts/test-trl
"""

import inspect
import json
import logging
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from trl import GRPOConfig, GRPOTrainer

    from dph.integrations.trl import SharedPrefixMixin
    from dph.integrations.trl import shared_prefix as module
    from dph.integrations.trl.shared_prefix import group_rows, not_exact, padded_rows, unpadded_rows

from datasets import Dataset
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from transformers.integrations.neftune import activate_neftune
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from dph.errors import UserError
from dph.models import sharing
from dph.models.batch import Tokens
from helpers import folder, random_policy, tiny_policy

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of TRL, accelerate and datasets, about themselves
]
HERE = Path(__file__).parent
TOLERANCE = 1e-5
TEXTS = ["easy 1 easy 2 easy 3", "hard 2", "hard 4 easy 5", "easy 6", "hard 1", "easy 2 hard 3", "hard 5", "easy 7"]


@cache
def start():
    """A directory with the model that training starts from."""
    tiny_policy().save(found := folder())
    return str(found)


class Stock(GRPOTrainer):
    """TRL's trainer with responses of a generator: of different lengths, with common beginnings and equal ones."""

    def _generate_single_turn(self, prompt_ids, *_, **__) -> Any:
        generator = torch.Generator().manual_seed(1000 * self._step + self.accelerator.process_index)
        vocabulary, longest = self.model.config.get_text_config().vocab_size, self.max_completion_length

        def numbers(low, high, count):
            return torch.randint(low, high, (count,), generator=generator).tolist()

        found = []
        for index, prompt in enumerate(prompt_ids):
            response = numbers(2, vocabulary, numbers(1, longest + 1, 1)[0])
            if index % 4 == 1 and prompt_ids[index - 1] == prompt:
                response = (found[-1][:2] + response)[:longest]
            if index % 4 == 3 and prompt_ids[index - 1] == prompt:
                response = found[-1][:longest]
            found.append(response if len(response) == longest else [*response, self.eos_token_ids[0]])
        return found, None


class Shared(SharedPrefixMixin, Stock):
    pass


def reward(completion_ids, **_):
    return [float(ids[0] % 3) + 0.1 * len(ids) for ids in completion_ids]


def settings(folder, **changes):
    values = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "disable_dropout": True,
        "save_strategy": "no",
        "temperature": 0.7,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1e9,
        "optim": "sgd",
        "max_steps": 3,
        "logging_steps": 1,
        "seed": 3,
    }
    return GRPOConfig(**{**values, **changes})


def trainer(cls, args, model=None, peft=None, **options):
    return cls(
        model=model or start(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": TEXTS}),
        processing_class=None if model is None else tiny_policy().tokenizer,
        peft_config=peft,
        **options,
    )


def ragged(vocabulary=18, steps=6):
    """Rows of three prompts: common beginnings, equal responses, one that begins another, an empty one, one token."""
    rows = []
    generator = torch.Generator().manual_seed(7)

    def numbers(count):
        return torch.randint(2, vocabulary, (count,), generator=generator).tolist()

    for prompt in (numbers(9), numbers(4), numbers(1)):
        first, begin = numbers(steps), numbers(2)
        rows += [Tokens(prompt, response) for response in (first, [*begin, *numbers(2)], [*begin, *numbers(3)], first)]
    rows[7] = Tokens(rows[6].prompt_ids, rows[6].response_ids[:3])
    rows[5] = Tokens(rows[4].prompt_ids, [])
    return rows


def inputs_of(rows, pad=0):
    """Rollouts as TRL's buffers hold them, with a mask that excludes some tokens as results of tools."""
    ids, mask, steps = padded_rows(rows, pad, torch.device("cpu"))
    width, generator = ids.shape[1] - steps, torch.Generator().manual_seed(5)
    completion_mask = mask[:, width:]
    return {
        "prompt_ids": ids[:, :width],
        "prompt_mask": mask[:, :width],
        "completion_ids": ids[:, width:],
        "completion_mask": completion_mask,
        "tool_mask": (torch.rand(completion_mask.shape, generator=generator) < 0.8).long(),
        "advantages": torch.randn(len(rows), generator=generator),
        "old_per_token_logps": -3 * torch.rand(completion_mask.shape, generator=generator),
        "num_items_in_batch": completion_mask.sum(),
    }


def compute(made, inputs, shared):
    """Log-probabilities and entropies of the pass without gradients, the loss, and its gradient."""
    made.shared_prefix = shared
    made.model.train()
    made.model.zero_grad()
    made.current_gradient_accumulation_steps = 1
    ids, mask = (torch.cat([inputs[f"prompt_{x}"], inputs[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
    with torch.no_grad():
        steps = inputs["completion_ids"].shape[1]
        logprobs, entropies, _ = made._get_per_token_logps_and_entropies(made.model, ids, mask, steps, 4, True)
    loss = made._compute_loss(made.model, inputs)
    loss.backward()
    found = [x.grad for x in made.model.parameters() if x.grad is not None]
    gradient = torch.cat([(x.full_tensor() if isinstance(x, DTensor) else x).flatten() for x in found])
    assert entropies is not None
    return logprobs, entropies, loss.detach(), gradient


def errors(made, inputs=None):
    """Differences from TRL: largest of log-probabilities and of entropies, of loss and gradient relative norms."""
    inputs = inputs or inputs_of(ragged())
    stock, ours = (compute(made, inputs, shared) for shared in (False, True))
    largest = [float((a - b).abs().max()) for a, b in zip(stock[:2], ours[:2], strict=True)]
    return [*largest, *(float((a - b).norm() / a.norm()) for a, b in zip(stock[2:], ours[2:], strict=True))]


@pytest.fixture
def packed_calls(monkeypatch):
    """How many prompts each packed forward pass computed, and for how many rows; without those of trials."""
    calls, trials, packed, obstacle = [], [], module.pack, module.Sharing.obstacle

    def noted(rows, **options):
        if not trials:
            calls.append((len({tuple(row.prompt_ids) for row in rows}), len(rows)))
        return packed(rows, **options)

    def tried(sharing, *sizes):
        trials.append(sizes)
        try:
            return obstacle(sharing, *sizes)
        finally:
            trials.pop()

    monkeypatch.setattr(module, "pack", noted)
    monkeypatch.setattr(module.Sharing, "obstacle", tried)
    return calls


# The same numbers ---------------------------------------------------------------------------------------------------


def lora():
    from peft import LoraConfig

    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)


@pytest.mark.parametrize(
    ("changes", "peft"),
    [
        ({}, False),
        ({"gradient_checkpointing": True}, False),
        ({"gradient_checkpointing": True}, True),
        ({"importance_sampling_level": "sequence", "loss_type": "grpo"}, False),
        ({"entropy_coef": 0.01, "top_entropy_quantile": 0.5, "loss_type": "dr_grpo"}, False),
        ({"cast_lm_head_to_fp32": True}, False),
    ],
    ids=["plain", "checkpointing", "lora", "sequence", "entropy", "fp32-head"],
)
def test_log_probabilities_and_gradients_are_trls(changes, peft, tmp_path, packed_calls):
    made = trainer(Shared, settings(tmp_path, **changes), tiny_policy().model, lora() if peft else None)
    assert max(errors(made)) < TOLERANCE
    assert packed_calls == [(1, 4), (1, 4), (1, 4), (3, 12)]


def test_bf16_is_as_near_to_fp32_as_trls_bf16(tmp_path):
    inputs = inputs_of(ragged())
    exact = compute(trainer(Shared, settings(tmp_path), tiny_policy().model), inputs, shared=False)
    made = trainer(Shared, settings(tmp_path, bf16=True), tiny_policy().model)
    theirs, ours = (
        [float((a - b).norm() / a.norm()) for a, b in zip(exact, compute(made, inputs, shared), strict=True)]
        for shared in (False, True)
    )
    assert all(1e-4 < a < 0.1 and b < 1.5 * a for a, b in zip(theirs, ours, strict=True))


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "cohere", "granite", "gemma2"])
def test_other_architectures(name, tmp_path, packed_calls):
    """Absolute positions, which count TRL's padding, scaled logits, and capped scores, which are not packed."""
    made = trainer(Shared, settings(tmp_path), random_policy(name).model)
    assert max(errors(made)) < TOLERANCE
    assert len(packed_calls) == (0 if name == "gemma2" else 4)


def test_no_name_of_trls_is_taken(tmp_path):
    stock, made = (trainer(cls, settings(tmp_path), tiny_policy().model) for cls in (Stock, Shared))
    overridden = {"__init__", "__module__", "__doc__", "_get_per_token_logps_and_entropies", "_prepare_inputs"}
    overridden |= {"_generate_single_turn", "log"}
    overridden |= {name for name in vars(SharedPrefixMixin) if name.startswith("__")}
    assert set(vars(SharedPrefixMixin)) & set(dir(stock)) <= overridden
    assigned = set(
        re.findall(r"self\.(\w+)(?=(?:, self\.\w+)*(?:: [^=\n]+)? = )", inspect.getsource(SharedPrefixMixin))
    )
    assert "shared_generation" in assigned <= {*vars(made)}
    assert assigned & {*dir(stock)} == {"_buffered_inputs"}  # which TRL makes, and the mixin orders


CASES = {
    "dapo": {},
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "sequence": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "kl": {"beta": 0.1},
    "iterations": {"num_iterations": 2, "max_steps": 4},
    "split groups": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
    "generation of two steps": {"steps_per_generation": 4, "max_steps": 4},
    "entropy bonus": {"entropy_coef": 0.01},
    "truncated": {"mask_truncated_completions": True},
}


def train(cls, args, **options):
    """The gradient of every optimizer step, the trainer, and how far the weights moved from those at the start."""
    gradients = []

    class Gradients(TrainerCallback):
        def on_pre_optimizer_step(self, *_, model, **__):
            gradients.append(torch.cat([x.grad.flatten().clone() for x in model.parameters() if x.grad is not None]))

    made = trainer(cls, args, callbacks=[Gradients()], **options)
    before = torch.cat([x.detach().flatten().clone() for x in made.model.parameters()])
    made.train()
    return gradients, made, torch.cat([x.detach().flatten() for x in made.model.parameters()]) - before


@pytest.mark.parametrize("name", CASES)
def test_training_is_trls(name, tmp_path, packed_calls):
    args = [settings(tmp_path, **CASES[name]) for _ in range(2)]
    theirs, stock, expected = train(Stock, args[0])
    assert not packed_calls
    ours, made, moved = train(Shared, args[1])
    assert len(theirs) == len(ours) == args[0].max_steps and packed_calls
    for one, other in zip(theirs, ours, strict=True):
        assert one.norm() > 1e-3 and (one - other).norm() / one.norm() < TOLERANCE
    assert (moved - expected).norm() / expected.norm() < TOLERANCE
    for one, other in zip(stock.state.log_history[:-1], made.state.log_history[:-1], strict=True):
        assert one.keys() | {"shared_prefix/saved"} == other.keys() >= {"loss", "entropy"}
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4, abs=2e-6)


def test_without_moving_rows_the_logs_are_trls_too(tmp_path):
    args = [settings(tmp_path, beta=0.1) for _ in range(2)]
    _, stock, _ = train(Stock, args[0])
    _, made, _ = train(Shared, args[1], whole_groups=False)
    for one, other in zip(stock.state.log_history[:-1], made.state.log_history[:-1], strict=True):
        for key in one.keys() - {"step_time"}:
            assert other[key] == pytest.approx(one[key], rel=1e-4, abs=2e-6), key


# Which rows are computed together -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "prompts"),
    [({}, 2), ({"loss_type": "bnpo"}, 3), ({"steps_per_generation": 4}, 3)],
    ids=["moved", "bnpo stays", "within an optimizer step"],
)
def test_a_microbatch_holds_whole_groups(changes, prompts, tmp_path, packed_calls):
    """Two groups of four fill a micro-batch of eight. TRL's shuffling leaves more prompts in one."""
    train(Shared, settings(tmp_path, max_steps=1, **changes))
    (one, rows), (other, _) = packed_calls[-2:]  # the update's, after passes for old log-probabilities if there are any
    assert rows == 8 and (one == other == 2 if prompts == 2 else max(one, other) >= prompts)


def test_rows_move_within_a_step_and_each_is_kept_once():
    rows = ragged()
    whole = inputs_of(rows)
    shuffled = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    parts = [
        {name: x if x.ndim == 0 else x[shuffled[start : start + 4]] for name, x in whole.items()} for start in (0, 4, 8)
    ]
    parts = [{**part, "ref_per_token_logps": None} for part in parts]
    found = group_rows(parts)
    assert [len(part["advantages"]) for part in found] == [4, 4, 4]
    for part in found:
        assert len({tuple(ids) for ids in part["prompt_ids"].tolist()}) == 1
        assert part["num_items_in_batch"] == whole["num_items_in_batch"] and part["ref_per_token_logps"] is None
    for name in ("advantages", "completion_ids", "old_per_token_logps"):
        both = [torch.cat([part[name] for part in group]) for group in (parts, found)]
        before, after = (sorted(x.reshape(12, -1).tolist()) for x in both)
        assert before == after


def test_rows_survive_padding():
    rows = ragged()
    ids, mask, steps = padded_rows(rows, 1, torch.device("cpu"))
    assert [(row.prompt_ids, row.response_ids) for row in unpadded_rows(ids, mask, steps) or []] == [
        (row.prompt_ids, row.response_ids) for row in rows
    ]
    assert all(ids[~mask.bool()] == 1)
    holes = mask.clone()
    holes[0, 3] = 0
    assert unpadded_rows(ids, holes, steps) is None
    assert unpadded_rows(ids, mask * 0, steps) is None


def test_a_microbatch_that_cannot_hold_a_group_is_said_once(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "dph"):
        trainer(Shared, settings(tmp_path, per_device_train_batch_size=2))
    assert ["multiple of num_generations" in one.message for one in caplog.records] == [True]


def in_processes(count: int, code: str, folder: Path) -> tuple[str, str]:
    """What a script says on standard output, and the end of its errors, when torchrun runs it in `count` processes."""
    script = folder / "script.py"
    script.write_text(code.format(folders=[str(HERE), str(HERE.parent)], folder=str(folder)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    return done.stdout, done.stderr[-3000:]


SHARDED = """
import sys, torch
sys.path[:0] = {folders!r}
import test_integrations_trl_shared as t
from torch.distributed.fsdp import fully_shard
made = t.trainer(t.Shared, t.settings({folder!r}, gradient_checkpointing=True), t.tiny_policy().model)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
for layer in made.model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(made.model, mesh=mesh)
found = t.errors(made)
assert max(found) < t.TOLERANCE, found
assert type(made.model).__name__.startswith("FSDP")
print("agrees")
"""


@pytest.mark.timeout(420)
def test_weights_sharded_by_fsdp2(tmp_path):
    """One process: the wrapper, its hooks and its distributed tensors."""
    said, complaints = in_processes(1, SHARDED, tmp_path)
    assert said.count("agrees") == 1, complaints
    assert "once for each response" not in complaints


TWO_PROCESSES = """
import sys, torch
sys.path[:0] = {folders!r}
import test_integrations_trl_shared as t
moved = {{}}
for cls in (t.Stock, t.Shared):
    gradients, made, moved[cls] = t.train(cls, t.settings({folder!r}), model=t.tiny_policy().model)
    assert made.accelerator.num_processes == 2
one, other = moved[t.Stock], moved[t.Shared]
assert one.norm() > 1e-3 and (one - other).norm() / one.norm() < t.TOLERANCE
print("agrees")
"""


@pytest.mark.timeout(420)
def test_two_processes_train_as_trls_do(tmp_path):
    said, complaints = in_processes(2, TWO_PROCESSES, tmp_path)
    assert said.count("agrees") == 2, complaints


# Generation ---------------------------------------------------------------------------------------------------------


class Sampling(SharedPrefixMixin, GRPOTrainer):
    pass


PROMPTS = [[5, 6, 7, 8], [9], [5, 6, 7, 8], [4, 3], [9], [5, 6, 7, 8]]


@pytest.fixture
def sampled(monkeypatch):
    """The number of prompts of each call of this package's sampler."""
    calls, sample_groups = [], module.sample_groups

    def noted(sampler, prompts, params):
        calls.append(len(prompts))
        return sample_groups(sampler, prompts, params)

    monkeypatch.setattr(module, "sample_groups", noted)
    return calls


def generated(made, prompts, shared):
    made.model_wrapped = made.model
    made.shared_generation = shared
    found, logprobs = made._generate_single_turn(prompts, None, {}, 2)
    assert logprobs is None
    return found


def test_the_most_likely_responses_are_transformers(tmp_path, caplog, sampled):
    args, lengths = settings(tmp_path, temperature=1e-3, max_completion_length=8), set()
    for seed in range(5):
        made = trainer(Sampling, args, tiny_policy(seed).model)
        stock, ours = (generated(made, PROMPTS, shared) for shared in (False, True))
        assert ours == stock and sampled == [6] * (seed + 1) and not told(caplog)
        lengths |= {len(response) for response in ours}
    assert lengths > {8}  # some end by an end token


def test_tokens_are_drawn_from_the_models_distribution(tmp_path):
    made = trainer(Sampling, settings(tmp_path, max_completion_length=1), tiny_policy().model)
    torch.manual_seed(0)
    found = generated(made, [PROMPTS[0]] * 4000, shared=True)
    counts = torch.bincount(torch.tensor(found).flatten(), minlength=18)
    logits = made.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
    assert float((counts / 4000 - (logits / 0.7).softmax(-1)).abs().sum()) / 2 < 0.03
    again = [generated(made, PROMPTS, shared=True) for _ in range(9)]
    assert len({str(one) for one in again}) > 1  # other draws at each call
    torch.manual_seed(0)
    assert generated(made, [PROMPTS[0]] * 4000, shared=True) == found


def test_training_with_shared_generation(tmp_path, caplog, sampled):
    _, _, moved = train(Sampling, settings(tmp_path, gradient_checkpointing=True), shared_generation=True)
    assert sampled and not told(caplog) and moved.norm() > 1e-4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"generation_kwargs": {"min_new_tokens": 3}}, "the sampler does not support min_new_tokens=3"),
        ({"top_k": 3}, "the sampler does not support top_k=3"),
        ({"generation_kwargs": {"do_sample": False}}, "the sampler does not support do_sample=False"),
        ({"repetition_penalty": 1.2}, "the sampler does not support repetition_penalty=1.2"),
    ],
)
def test_what_the_sampler_cannot_do_transformers_does(changes, reason, tmp_path, caplog, sampled):
    made = trainer(Sampling, settings(tmp_path, **changes), tiny_policy().model)
    assert [len(generated(made, PROMPTS, shared=True)) for _ in range(2)] == [6, 6]
    assert not sampled and told(caplog) == [f"transformers generates, because {reason}"]


# Where prompts are not shared ---------------------------------------------------------------------------------------


def told(caplog):
    """Messages, without what the sampler's trial decided and how many tokens were saved."""
    messages = [one.message for one in caplog.records if one.name == "dph"]
    return [
        one for one in messages if not one.startswith(("the sampler computes each prompt once", "shared prompts: "))
    ]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("bloom", {}, "because of this model"),
        ("opt", {"dropout": 0.0}, "because of this model"),
        ("mistral", {"sliding_window": 9}, "attention window of 9 tokens"),
        ("llama", {"attention_dropout": 0.1}, "dropout"),
        ("opt", {"dropout": 0.1}, "dropout"),
        ("llama", {}, "NEFTune"),
    ],
)
def test_it_computes_as_trl_and_says_why_once(name, changes, reason, tmp_path, caplog):
    made = trainer(Shared, settings(tmp_path), random_policy(name, **changes).model)
    if reason == "NEFTune":
        activate_neftune(made.model, 5)  # as neftune_noise_alpha=5 does
    if reason in ("dropout", "NEFTune"):
        torch.manual_seed(0)
        noisy = compute(made, inputs_of(ragged()), shared=True)
        torch.manual_seed(0)
        assert all(map(torch.equal, noisy, compute(made, inputs_of(ragged()), shared=False)))
    else:
        assert errors(made) == [0, 0, 0, 0]
    (message,) = told(caplog)
    assert reason in message


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("wrapper", "checkpoint wrapper"), ("prompt", "tokens before each row")],
)
def test_models_that_no_trial_can_judge(kind, reason, tmp_path, packed_calls, caplog):
    made = trainer(Shared, settings(tmp_path), tiny_policy().model)
    if kind == "wrapper":
        made.model.model.layers[0] = checkpoint_wrapper(made.model.model.layers[0])
    else:
        made.model.peft_config = {"default": SimpleNamespace(is_prompt_learning=True)}
    with torch.no_grad():
        made._get_per_token_logps_and_entropies(made.model, *padded_rows(ragged(), 0, torch.device("cpu")))
    (message,) = told(caplog)
    assert reason in message and not packed_calls


def test_a_model_that_packing_computes_wrongly_is_found(tmp_path, caplog, monkeypatch):
    """The trial compares with TRL's own numbers, so it finds what no setting tells."""
    right = module.pack

    def wrong(rows, **options):
        packed = right(rows, **options)
        packed.position_ids[:, -1] += 1
        return packed

    monkeypatch.setattr(module, "pack", wrong)
    made = trainer(Shared, settings(tmp_path), tiny_policy().model)
    assert errors(made) == [0, 0, 0, 0]
    assert ["its layers mix tokens in other ways" in one for one in told(caplog)] == [True]


@pytest.mark.parametrize("mixed", [True, False], ids=["autocast", "weights"])
def test_bf16_does_not_hide_a_small_error(mixed, tmp_path, caplog, monkeypatch):
    """Rounding to bf16 is larger than this error, so the layers are tried in fp32."""
    right = sharing.shared_prefix_attention

    def wrong(layer, query, key, value, *args, **more):
        return right(layer, query, key, value * 1.02, *args, **more)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, sharing.NAME, wrong)
    model = tiny_policy().model if mixed else tiny_policy().model.to(torch.bfloat16)
    made = trainer(Shared, settings(tmp_path, bf16=mixed), model)
    assert errors(made) == [0, 0, 0, 0]
    assert ["its layers mix tokens in other ways" in one for one in told(caplog)] == [True]


@pytest.mark.parametrize("lacking", ["method", "argument", "attribute"])
def test_a_version_that_lacks_a_member_trains_as_trl_does(lacking, tmp_path, caplog, packed_calls, monkeypatch):
    if lacking == "attribute":
        monkeypatch.setattr(module, "ATTRIBUTES", ("_renamed",))
    else:
        method = "_renamed" if lacking == "method" else "_prepare_inputs"
        monkeypatch.setattr(module, "SHARED_PREFIX", {**module.SHARED_PREFIX, method: ("inputs",)})
    theirs, *_ = train(Stock, settings(tmp_path))
    ours, made, _ = train(Shared, settings(tmp_path))
    assert all(map(torch.equal, theirs, ours)) and not packed_calls
    (message,) = told(caplog)
    assert "has no GRPOTrainer._" in message and trl.__version__ in message
    report = made.shared_prefix_report()
    assert list(report.reasons) == [message.partition("because ")[2]] and report.saved == 0


def test_images_are_left_to_trl(tmp_path, caplog, monkeypatch):
    made = trainer(Shared, settings(tmp_path), tiny_policy().model)
    rows = padded_rows(ragged(), 0, torch.device("cpu"))
    with torch.no_grad():
        made._get_per_token_logps_and_entropies(made.model, *rows)  # with the model's trial
    monkeypatch.setattr(
        GRPOTrainer, "_get_per_token_logps_and_entropies", lambda *_, **more: ("TRL's", sorted(more), None)
    )
    for _ in range(2):
        found = made._get_per_token_logps_and_entropies(made.model, *rows, pixel_values=torch.ones(1))
        assert found == ("TRL's", ["pixel_values"], None)
    assert [message.count("images") for message in told(caplog)] == [1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, "use_reentrant"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
    ],
)
def test_settings_that_are_refused(changes, message, tmp_path):
    args = settings(tmp_path, **{name: x for name, x in changes.items() if name != "use_liger_kernel"})
    args.use_liger_kernel = "use_liger_kernel" in changes  # GRPOConfig itself wants the package
    with pytest.raises(UserError, match=message):
        trainer(Shared, args, tiny_policy().model)
    trainer(Shared, args, tiny_policy().model, shared_prefix=False)


def test_sequence_parallelism_is_refused(tmp_path):
    args = settings(tmp_path)
    for name in ("cp", "sp"):
        parallelism = SimpleNamespace(cp_enabled=name == "cp", sp_enabled=name == "sp")
        assert [why for why, holds in not_exact(args, parallelism).items() if holds] == [
            "context and sequence parallelism cut the rows into pieces"
        ]
    assert not any(not_exact(args, None).values())


# Benchmark ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_the_benchmark_runs(tmp_path):
    out = tmp_path / "found.json"
    options = ["--sizes", "16+4", "--responses", "4", "--pairs", "1", "--clock", "cpu", "--generation"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engines.trl_prefix", *options, "--out", str(out)],
        check=True,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=580,
    )
    (found,) = json.loads(out.read_text())
    (step,) = found["steps"]
    assert 0 < found["difference"] < TOLERANCE and "16+4 tokens, 2 prompts with 4 responses" in done.stdout
    for one in step.values():
        assert all(one[name] > 0 for name in ("update", "log-probs", "generation", "memory"))
