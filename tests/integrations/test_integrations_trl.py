# pyright: reportMissingImports=false
"""The TRL trainer against the native engine: the contract's losses and gradients, counts, and short real training.

It runs in an environment with the extra `trl`: scripts/test-trl
"""

import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl", reason="TRL is not installed")
    from dph.integrations.trl import DPHConfig, DPHTrainer, VerifierReward, exploration_set
    from dph.integrations.trl.rewards import passes

from datasets import Dataset

from contract.fixture import TOLERANCE, case_name, read, relative_error
from dph.config import LossConfig, ModelConfig
from dph.errors import UserError
from dph.models.policy import Policy
from dph.objective import Advantage, GroupView, LossCounts, Objective
from dph.rehearsal.store import Rehearsal, RehearsalSet, read_rehearsal
from dph.runs.coverage import Ledger
from dph.stages.presample import presample
from dph.training.rows import collate
from dph.types import Outcome, Problem, Verdict, problem_json
from helpers import base_run, presample_config, presampled, randomise, tiny_policy
from verl_cpu import parity  # noqa: F401  (registers a verifier that can fail)

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of TRL, accelerate and datasets, about themselves
]
HERE = Path(__file__).parent
CONTRACT = read()
CASES = [case for case in CONTRACT.cases if case.config.estimator == "generator"]
STORED = [row for row in CONTRACT.rows if row.is_rehearsal]
FRESH = [row for row in CONTRACT.rows if not row.is_rehearsal]


def settings(folder, **changes):
    values = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "temperature": CONTRACT.temperature,
        "epsilon_high": 0.28,
        "per_device_train_batch_size": 9,
        "num_generations": 3,
        "max_completion_length": 8,
        "eta": 0.7,
        "rehearsal_rows": len(STORED),
    }
    return DPHConfig(**{**values, **changes})


def trainer(args, rows=STORED, model=None, **kwargs):
    stored = [Rehearsal(row.prompt_ids, row.response_ids, "", row.ref_logprobs, "") for row in rows]
    given = {
        "model": model or CONTRACT.make_model(),
        "reward_funcs": lambda completions, **_: [float(len(text) % 2) for text in completions],
        "args": args,
        "train_dataset": Dataset.from_dict({"prompt": ["easy 1", "hard 2", "easy 3"]}),
        "processing_class": tiny_policy().tokenizer,
        "rehearsal_set": stored,
    }
    return DPHTrainer(**{**given, **kwargs})


def trl_inputs(rows, exp_tokens):
    """Rollouts as TRL's own buffers hold them."""
    width, steps = (max(len(getattr(row, name)) for row in rows) for name in ("prompt_ids", "response_ids"))

    def left(values):
        return [0] * (width - len(values)) + list(values)

    def right(values, filling: float = 0):
        return list(values) + [filling] * (steps - len(values))

    return {
        "prompt_ids": torch.tensor([left(row.prompt_ids) for row in rows]),
        "prompt_mask": torch.tensor([left([1] * len(row.prompt_ids)) for row in rows]),
        "completion_ids": torch.tensor([right(row.response_ids) for row in rows]),
        "completion_mask": torch.tensor([right([1] * len(row.response_ids)) for row in rows]),
        "advantages": torch.tensor([row.advantage for row in rows]),
        "old_per_token_logps": torch.tensor([right(row.old_logprobs, 0.0) for row in rows]),
        "num_items_in_batch": torch.tensor(exp_tokens),
    }


def loss_and_gradient(trainer, parts):
    """Of one optimizer step whose micro-batches are these."""
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = len(parts)
    exp_tokens, total = sum(len(row.response_ids) for part in parts for row in part), 0.0
    for index, part in enumerate(parts):
        trainer.accelerator.gradient_state._set_sync_gradients(index == len(parts) - 1)
        loss = trainer.compute_loss(trainer.model, trl_inputs(part, exp_tokens))
        loss.backward()
        total += loss.item()
    return total, {name: x.grad.clone() for name, x in trainer.model.named_parameters()}


# The contract -------------------------------------------------------------------------------------------------------


POLICIES = {
    "ppo_clip": {},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.28},  # where ours has 1 + clip_high
}
"""TRL's settings for our policy losses."""


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case_name(case.config))
def test_it_keeps_the_contract(case, steps, tmp_path):
    """One micro-batch, and three that share the five stored responses."""
    config = case.config
    args = settings(
        tmp_path,
        divergence=config.divergence,
        divergence_alpha=config.alpha,
        official=config.official,
        reduction=config.reduction,
        per_device_train_batch_size=9 // steps,
        gradient_accumulation_steps=steps,
        **POLICIES[config.policy],
    )
    made = trainer(args)
    for step in range(2):  # five stored responses are all that there are, so every step has the same
        made.state.global_step = step
        loss, gradient = loss_and_gradient(made, [FRESH[index::steps] for index in range(steps)])
        # The value of TRL's cispo has log π_θ where ours has log π_θ − log π_old
        assert config.policy == "cispo" or loss == pytest.approx(case.loss, rel=TOLERANCE)
        assert relative_error(gradient, case.gradient) < TOLERANCE
    made.log(logged := {})
    assert logged["pef/tokens"] == sum(len(row.response_ids) for row in STORED)
    assert {"pef/divergence", "pef/log_ratio", "pef/pull_weight", "pef/forgotten"} <= logged.keys()


@pytest.mark.parametrize("reduction", ["pooled", "per_set"])
@pytest.mark.parametrize(("loss_type", "aggregation"), [("grpo", "sequence"), ("dr_grpo", "dr_grpo")])
def test_losses_that_average_sequences_are_weighed_as_ours(loss_type, aggregation, reduction, tmp_path):
    made = trainer(
        settings(
            tmp_path,
            loss_type=loss_type,
            reduction=reduction,
            per_device_train_batch_size=3,
            gradient_accumulation_steps=3,
        )
    )
    loss, gradient = loss_and_gradient(made, [FRESH[index::3] for index in range(3)])
    config = LossConfig(aggregation=aggregation, dr_grpo_length=8, reduction=reduction, eta=0.7)
    policy, batch = Policy(CONTRACT.make_model(), tiny_policy().tokenizer), collate(CONTRACT.rows)
    expected, _ = Objective(config)(policy.logprobs(batch, CONTRACT.temperature)[0], batch, LossCounts.of(batch))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=TOLERANCE)
    assert relative_error(gradient, {name: x.grad for name, x in policy.model.named_parameters()}) < TOLERANCE


def test_fewer_stored_responses_than_microbatches(tmp_path):
    args = settings(tmp_path, per_device_train_batch_size=3, gradient_accumulation_steps=3, rehearsal_rows=1)
    alone = loss_and_gradient(trainer(args, rows=STORED[:1]), [FRESH[index::3] for index in range(3)])
    args = settings(tmp_path, rehearsal_rows=1)
    whole = loss_and_gradient(trainer(args, rows=STORED[:1]), [FRESH])
    assert alone[0] == pytest.approx(whole[0], rel=TOLERANCE)
    assert relative_error(alone[1], whole[1]) < TOLERANCE


def test_rows_are_a_function_of_the_step_and_evaluation_has_none(tmp_path):
    made = trainer(settings(tmp_path, rehearsal_rows=2))
    losses = []
    for step in (0, 1, 2, 1):
        made.state.global_step = step
        losses.append(loss_and_gradient(made, [FRESH])[0])
    assert losses[3] == losses[1] and len({*losses}) == 3
    rows = [{tuple(row.response_ids) for row in made.stored_rows(step, rollouts=9)} for step in range(2)]
    assert len(rows[0] | rows[1]) == 4
    made.model.eval()
    inputs = trl_inputs(FRESH, sum(len(row.response_ids) for row in FRESH))
    with torch.no_grad():
        assert made.compute_loss(made.model, inputs) == super(DPHTrainer, made)._compute_loss(made.model, inputs)


def test_one_stored_response_for_eight_rollouts_by_default(tmp_path):
    made = trainer(settings(tmp_path, rehearsal_rows=None))
    assert [len(made.stored_rows(0, rollouts)) for rollouts in (8, 9, 64)] == [1, 2, 8]


TWO_PROCESSES = """
import sys, torch, pathlib
sys.path[:0] = {folders!r}
import test_integrations_trl as t
case = next(case for case in t.CASES if case.config.divergence == "js" and case.config.reduction == {reduction!r})
made = t.trainer(t.settings({folder!r}, reduction={reduction!r}, per_device_train_batch_size=3, num_generations=2))
rank = made.accelerator.process_index
assert made.accelerator.num_processes == 2
parts = [t.FRESH[:5], [*t.FRESH[5:], t.FRESH[5]]]  # TRL wants as many rows of each process
exp_tokens = sum(len(row.response_ids) for row in t.FRESH)
made.model.train()
made.current_gradient_accumulation_steps = 1
inputs = t.trl_inputs(parts[rank], exp_tokens)
if rank == 1:
    inputs["completion_mask"][-1] = 0
loss = made.compute_loss(made.model, inputs)
loss.backward()
gradient = {{}}
for name, x in made.model.named_parameters():
    torch.distributed.all_reduce(x.grad)
    gradient[name] = x.grad / 2
assert t.relative_error(gradient, case.gradient) < t.TOLERANCE
loss = loss.detach()
torch.distributed.all_reduce(loss)
assert abs(loss.item() / 2 - case.loss) < t.TOLERANCE * abs(case.loss)
made.log(logged := {{}})
assert logged["pef/tokens"] == sum(len(row.response_ids) for row in t.STORED)
print("agrees")
"""


@pytest.mark.timeout(420)
@pytest.mark.parametrize("reduction", ["pooled", "per_set"])
def test_two_processes_keep_the_contract_together(reduction, tmp_path):
    """As a trainer that averages gradients over processes: five and four rollouts, three and two stored responses."""
    script = tmp_path / "two.py"
    script.write_text(
        TWO_PROCESSES.format(folders=[str(HERE), str(HERE.parent)], reduction=reduction, folder=str(tmp_path))
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.count("agrees") == 2, done.stderr[-3000:]


# Training -----------------------------------------------------------------------------------------------------------


def toy_run(folder, steps=3, **changes):
    """Train on what a presample run of the toy task left to explore."""
    policy_path, tokenizer = base_run() / "model", tiny_policy().tokenizer
    reward = VerifierReward()
    values = {
        "max_steps": steps,
        "temperature": 1.0,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "rehearsal_rows": 4,
        "seed": 3,
    }
    extra = {name: changes.pop(name) for name in ("peft_config",) if name in changes}
    stored = changes.pop("rehearsal_set", presampled())
    made = DPHTrainer(
        model=str(policy_path),
        reward_funcs=reward,
        args=settings(folder, **{**values, **changes}),
        train_dataset=exploration_set(stored, tokenizer),
        rehearsal_set=stored,
        **extra,
    )
    before = {name: x.detach().clone() for name, x in made.model.named_parameters()}
    made.train()
    reward.close()
    return made, before


def test_it_trains_from_a_presample_run_and_logs(tmp_path, capfd):
    made, before = toy_run(tmp_path, steps=5, learning_rate=5e-3, lr_scheduler_type="constant")
    logs = [entry for entry in made.state.log_history if "pef/divergence" in entry]
    assert len(logs) == 5 and all(entry["pef/tokens"] > 0 for entry in logs)
    # the policy starts as the reference, up to rounding, and moves away
    assert abs(logs[0]["pef/log_ratio"]) < 1e-6 and abs(logs[-1]["pef/log_ratio"]) > 1e-4
    assert any("rewards/verifier/mean" in entry for entry in logs)
    changed = [not torch.equal(x, before[name]) for name, x in made.model.named_parameters()]
    assert all(changed)
    assert "agree with recomputed ones" in capfd.readouterr().err


def test_it_rehearses_what_can_be_lost(tmp_path):
    run = presample(presample_config(tmp_path / "set", for_k=8))
    made, _ = toy_run(tmp_path / "run", rehearsal_set=run)
    stored = read_rehearsal(run / "rehearsal.parquet")
    assert stored and made.stored_rows(0, 8) == RehearsalSet(stored, made.args.seed).take(0, 4)
    assert all(entry["pef/tokens"] > 0 for entry in made.state.log_history if "pef/tokens" in entry)
    mastered = {row.problem_id for row in read_rehearsal(presampled() / "rehearsal.parquet")}
    assert not mastered & {row.problem_id for row in made.stored_rows(0, 100)}


def test_accumulation_gives_the_same_training(tmp_path):
    """8 rollouts in one micro-batch and in four: the same seeds, so the same rollouts and stored responses."""
    whole, _ = toy_run(tmp_path / "a", steps=2)
    parts, _ = toy_run(tmp_path / "b", steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    for (name, x), (_, y) in zip(whole.model.named_parameters(), parts.model.named_parameters(), strict=True):
        # AdamW steps by the learning rate whatever the gradient, so rounding of tiny gradients shows
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5, msg=name)


def test_adapters_train_and_nothing_else(tmp_path):
    from peft import LoraConfig

    made, before = toy_run(tmp_path, steps=2, peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    assert [entry for entry in made.state.log_history if "pef/divergence" in entry]
    for name, x in made.model.named_parameters():
        assert torch.equal(x, before[name]) == ("lora_" not in name), name


def test_a_resumed_run_takes_the_rows_that_come_next(tmp_path, monkeypatch):
    taken, stored_rows = [], DPHTrainer.stored_rows

    def noted(self, step, rollouts):
        rows = stored_rows(self, step, rollouts)
        taken.append((step, [tuple(row.response_ids) for row in rows]))
        return rows

    monkeypatch.setattr(DPHTrainer, "stored_rows", noted)
    toy_run(tmp_path / "a", steps=2)
    whole = taken.copy()
    toy_run(tmp_path / "b", steps=1, save_strategy="steps", save_steps=1)
    args = settings(
        tmp_path / "b",
        max_steps=2,
        temperature=1.0,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=4,
        rehearsal_rows=4,
        seed=3,
    )
    reward = VerifierReward()
    again = DPHTrainer(
        model=str(base_run() / "model"),
        reward_funcs=reward,
        args=args,
        train_dataset=exploration_set(presampled(), tiny_policy().tokenizer),
        rehearsal_set=presampled(),
    )
    again.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-1"))
    reward.close()
    assert again.state.global_step == 2
    assert [step for step, _ in whole] == [0, 1]
    assert taken[-1] == whole[-1] != whole[0]


# pass@k -------------------------------------------------------------------------------------------------------------


def test_pass_at_k_is_the_share_of_subsets_with_a_right_response():
    generator = torch.Generator().manual_seed(2)
    rewards = torch.randint(0, 2, (5, 6), generator=generator).float()
    rewards[0, 1] = rewards[1, :3] = rewards[2] = float("nan")
    scored = [[value for value in row if value in (0, 1)] for row in rewards.tolist()]
    problems = list("abcde")
    found = passes(rewards, problems, Ledger({}))
    assert {"pass@2", "pass@4", "lost"} < found.keys() and "pass@8" not in found
    for k in (2, 4):
        value = found[f"pass@{k}"]
        assert found[f"pass@{k}/low"] <= value <= found[f"pass@{k}/high"]
        groups = [[max(part) for part in itertools.combinations(row, k)] for row in scored if len(row) >= k]
        assert value == pytest.approx(sum(sum(group) / len(group) for group in groups) / len(groups))
    share = [sum(row) / len(row) >= 0.5 for row in scored if row]
    assert found["cover@0.5"] == pytest.approx(sum(share) / len(share))
    assert passes(rewards.nan_to_num(0.5), problems, Ledger({})) == {}
    assert passes(rewards[2:3], ["c"], Ledger({})) == {}


def test_a_prompt_is_lost_if_it_was_solved_once_and_is_no_more():
    ledger, none = Ledger({}), torch.zeros(2, 4)
    some = none.clone()
    some[0, 1] = 1
    found = [passes(rewards, ["a", "b"], ledger)["lost"] for rewards in (none, some, none, some)]
    assert found == [0, 0, 1, 0]


def test_pass_at_k_is_logged_for_verdicts_only(tmp_path):
    def length(completions, **_):
        return [float(len(text)) for text in completions]

    given = []

    def verdict(completions, **_):
        given.extend([float(len(text) % 2) for text in completions])
        return given[-len(completions) :]

    args = settings(tmp_path, max_steps=1, logging_steps=1, per_device_train_batch_size=12, num_generations=4)
    made = trainer(args, reward_funcs=[verdict, length])
    made.train()
    logged = made.state.log_history[0]
    names = {f"pass@{k}{end}" for k in (2, 4) for end in ("", "/low", "/high")} | {"cover@0.5", "cover@1", "lost"}
    assert {key for key in logged if "/verdict/" in key and key[-3:] not in ("ean", "std")} == {
        f"rewards/verdict/{name}" for name in names
    }
    assert not any("/length/pass@" in key for key in logged)
    groups = torch.tensor(given).view(3, 4)
    assert logged["rewards/verdict/pass@4"] == pytest.approx(float(groups.amax(1).mean()))
    assert logged["rewards/verdict/pass@2"] == pytest.approx(passes(groups, list("abc"), Ledger({}))["pass@2"])


# Advantages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [("maxrl", {}), ("passk", {"k": "2"}), ("w_reinforce", {}), ("f_grpo", {}), ("uniqueness", {"by": "text"})],
)
def test_advantages_are_those_of_the_native_engine(name, options, tmp_path):
    """The rewards of a real step, with a response that no function scored."""
    given = []

    def verdict(completions, **_):
        given.extend((text, float(len(text) % 2)) for text in completions)
        return [None, *(reward for _, reward in given[1:])]

    args = settings(tmp_path, max_steps=1, per_device_train_batch_size=12, num_generations=4)
    made = trainer(args, reward_funcs=[verdict], advantage=name, advantage_options=options)
    used = []
    compute_loss = made._compute_loss
    made._compute_loss = lambda model, inputs: used.append(inputs) or compute_loss(model, inputs)
    made.train()

    expected, expected_by_group = {}, []
    for start in range(0, 12, 4):
        group = given[start : start + 4]
        outcomes = [Outcome.CORRECT if reward else Outcome.WRONG for _, reward in group]
        if start == 0:
            outcomes[0] = Outcome.INFRA_ERROR
        view = GroupView(
            rewards=torch.tensor([reward for _, reward in group]),
            verdicts=[Verdict(outcome, reward) for outcome, (_, reward) in zip(outcomes, group, strict=True)],
            old_logprobs=[torch.empty(0)] * 4,
            texts=[text for text, _ in group],
            style_of=lambda _: None,
        )
        values = Advantage(name, options)(view).tolist()
        if start == 0:
            values[0] = 0.0
        expected_by_group.append(values)
        for (text, _), value in zip(group, values, strict=True):
            expected.setdefault(text, []).append(value)
    # TRL shuffles the rows of a step; equal texts may have different advantages in different groups
    (inputs,) = used
    texts = made._tokenizer.batch_decode(
        [ids[seen.bool()] for ids, seen in zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)],
        skip_special_tokens=True,
    )
    found = {}
    for text, value in zip(texts, inputs["advantages"].tolist(), strict=True):
        found.setdefault(text, []).append(value)
    assert {text: sorted(values) for text, values in found.items()} == {
        text: pytest.approx(sorted(values)) for text, values in expected.items()
    }
    # The table of completions, row by row: the advantages trained with, not TRL's own
    assert list(made._logs["completion"]) == [text for text, _ in given]
    assert list(made._logs["advantages"]) == pytest.approx([*itertools.chain(*expected_by_group)])


def test_the_logged_table_has_the_advantages_of_the_newest_step_only(tmp_path, monkeypatch):
    """Two generations of 12 responses; the table is as long as one."""
    rewards = []

    def verdict(completions, **_):
        rewards.append([float(i % 4 == len(rewards)) for i in range(len(completions))])
        return rewards[-1]

    args = settings(
        tmp_path, max_steps=2, per_device_train_batch_size=12, num_generations=4, log_completions=True,
        num_completions_to_print=0, logging_steps=1,
    )  # fmt: skip
    made = trainer(args, reward_funcs=[verdict], advantage="maxrl")
    tables = []
    log = made.log
    logged = lambda *given: tables.append(list(made._logs["advantages"])) or log(*given)  # noqa: E731
    monkeypatch.setattr(made, "log", logged)
    made.train()
    # m = ¼: 3 for the right response of each group, which is the first and then the second; −1 for the others
    assert rewards[0] != rewards[1]
    for table, given in zip(tables, rewards, strict=False):
        assert table == [3.0 if reward else -1.0 for reward in given]
    assert len(tables) >= 2


@pytest.mark.parametrize("setting", [{"scale_rewards": "none"}, {"multi_objective_aggregation": "normalize_then_sum"}])
def test_settings_of_trls_own_advantages_are_refused_with_another(setting, tmp_path):
    with pytest.raises(UserError, match="shape TRL's own advantages only"):
        trainer(settings(tmp_path, **setting), advantage="maxrl")
    trainer(settings(tmp_path, **setting))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("unlikeliness", {}, "log-probabilities of whole groups"),
        ("mara", {"beta": "0.1"}, "log-probabilities of whole groups"),
        ("uniqueness", {}, "uniqueness: by text"),
        ("nobody", {}, "nobody"),
    ],
)
def test_advantages_that_trl_cannot_feed_are_refused(name, options, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        trainer(settings(tmp_path), advantage=name, advantage_options=options)


# Data ---------------------------------------------------------------------------------------------------------------


def test_prompts_are_those_of_the_native_engine(tmp_path):
    policy = tiny_policy()
    explore = exploration_set(presampled(), policy.tokenizer)
    stored = {row.problem_id for row in read_rehearsal(presampled() / "rehearsal.parquet")}
    problems = [json.loads(text) for text in explore["problem"]]
    assert len(problems) > 0 and not stored & {problem["id"] for problem in problems}
    made = trainer(settings(tmp_path))
    ids, *_ = made._tokenize_prompts(list(explore["prompt"]))
    assert ids == [policy.encode_prompt(prompt) for prompt in explore["prompt"]]


def test_the_reward_is_the_verifiers_and_none_where_judging_failed():
    def problems(verifier, count):
        return [problem_json(Problem("1", "", "yes", verifier))] * count

    reward = VerifierReward()
    assert reward(["yes", "no", [{"role": "assistant", "content": "yes"}]], problem=problems("exact", 3)) == [1, 0, 1]
    assert reward([[], [{"role": "assistant", "content": None}], "yes"], problem=problems("exact", 3)) == [0, 0, 1]
    assert reward(["zz"], problem=problems("parity", 1)) == [None]
    with pytest.raises(UserError, match="judges by the column `problem`, which the dataset lacks"):
        reward(["yes"], prompts=["?"])
    reward.close()


# Mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_type": "bnpo"}, "no fixed denominator"),
        ({"reduction": "both"}, "'pooled', 'per_set'"),
        ({"divergence": "jsd"}, "known are"),
        ({"eta": -1.0}, "the settings of DPHConfig: eta is -1.0; it must be 0 or more"),
        ({"rehearsal_rows": -1}, "rehearsal_rows is -1; it must be 0 or more"),
        ({"eta": 0.0}, "eta is 0, so stored responses would have no effect; set eta above 0, or rehearsal_rows to 0"),
        ({"eta": 0.0, "rehearsal_rows": None}, "eta is 0, so stored responses would have no effect"),
        ({"rehearsal_check_tokens": 0}, "at least 1"),
    ],
)
def test_invalid_settings_are_refused(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        settings(tmp_path, **changes)


def test_the_term_is_on_the_command_line_with_its_help():
    from transformers import HfArgumentParser

    text = " ".join(HfArgumentParser(DPHConfig).format_help().split())  # type: ignore[arg-type]
    assert "--reduction {pooled,per_set} pooled: both sets over all tokens of the mini-batch" in text
    assert "--divergence-alpha DIVERGENCE_ALPHA α of the alpha divergence" in text
    assert "--js_scale" not in text  # JS by its definition needs log π_ref of rollouts, which TRL does not have


def test_sets_that_do_not_fit(tmp_path):
    with pytest.raises(UserError, match="needs a rehearsal_set"):
        trainer(settings(tmp_path), rehearsal_set=None)
    with pytest.raises(UserError, match="is empty"):
        trainer(settings(tmp_path), rows=[])
    with pytest.raises(UserError, match=r"temperature 1\.0 there, 0\.8 here"):
        trainer(settings(tmp_path), model=str(base_run() / "model"), rehearsal_set=presampled())
    same = Policy.load(ModelConfig(path=str(base_run() / "model"), device="cpu"))
    given = {"model": same.model, "processing_class": same.tokenizer, "rehearsal_set": presampled()}
    trainer(settings(tmp_path, temperature=1.0), **given)
    randomise(same.model, seed=5)
    with pytest.raises(UserError, match="not its own"):
        trainer(settings(tmp_path, temperature=1.0), **given)
    plain = trainer(settings(tmp_path, rehearsal_rows=0), rehearsal_set=None)
    inputs = trl_inputs(FRESH, sum(len(row.response_ids) for row in FRESH))
    assert plain.compute_loss(plain.model, inputs).item() == pytest.approx(
        super(DPHTrainer, plain)._compute_loss(plain.model, inputs).item()
    )


# Benchmark ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_the_benchmark_against_trl_runs(tmp_path):
    """At the smallest size: both take the step with the same number of tokens (the workers assert it)."""
    out = tmp_path / "step.json"
    options = ["--sizes", "8+3", "--pairs", "1", "--threads", "1", "--clock", "cpu", "--out", str(out)]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.engines.step", *options],
        check=True,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=580,
    )
    (found,) = json.loads(out.read_text())
    for steps in found["steps"].values():
        (step,) = steps
        parts = [step[name] for name in ("generation", "logprob passes", "forward", "backward", "rest")]
        assert step["total"] == pytest.approx(sum(parts)) and step["logprob passes"] == 0
        assert all(step[name] > 0 for name in ("generation", "forward", "backward", "rest"))
