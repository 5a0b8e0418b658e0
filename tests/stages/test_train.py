"""Training runs on the toy task: every method, the same run from the same seed, and resuming that changes nothing."""

import json
import math
import shutil
import sys
import types
from dataclasses import replace

import pytest
import torch

from dph.build import make_task, select
from dph.config import (
    ModelConfig,
    MonitorConfig,
    MonitorSet,
    OverlongConfig,
    RehearsalConfig,
    TaskConfig,
    TrainConfig,
    from_dict,
)
from dph.errors import RunError, SettingsError, SharedUserError
from dph.models import device
from dph.models.policy import Policy
from dph.objective.advantages import Advantage
from dph.process.distributed import World
from dph.runs.directory import RunDir, read_metrics
from dph.runs.samples import Sample, read_kept_samples
from dph.runs.tracking import Metrics
from dph.sampling.seeding import EpochOrder
from dph.stages import train as module
from dph.stages.presample import presample
from dph.stages.train import train
from dph.training import loop, rollouts
from dph.training.advantages import AdvantageEstimator
from dph.training.callbacks.statistics import StepStats
from dph.training.rollouts import Drawn
from dph.training.update import recomputes_old
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict
from faults_support import same
from helpers import (
    METHODS,
    OTHER_METHODS,
    TINY,
    base_run,
    interrupted_at,
    presample_config,
    presampled,
    train_config,
    weights,
)

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft


def same_weights(a, b):
    one, two = weights(a / "model"), weights(b / "model")
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def kept(run):
    """The files of kept responses, byte by byte."""
    return {file.name: file.read_bytes() for file in (run / "samples").iterdir()}


@pytest.mark.parametrize("method", METHODS + OTHER_METHODS)
def test_every_method_trains(tmp_path, method):
    pairs = {"advantage": {"options": {"k": "2"}}} if method == "passk" else None  # of groups of 4
    run = train(train_config(tmp_path, method, pairs, steps=3))
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == [1, 2, 3] and RunDir.open(run, "train").complete
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert not any(line["skipped_updates"] for line in lines) and max(line["grad_norm"] for line in lines) > 0
    moved = weights(run / "model")
    assert any(not torch.equal(value, moved[name]) for name, value in weights(base_run() / "model").items())
    rehearses = method.startswith("dph_") or method in ("alpha", "grpo_sft", "bank")
    # six stored responses of two tokens a step, or none; they enter no metric of rollouts
    online = [0.0, 2 * lines[0].get("bank/modes", 0.0), 12.0]  # at first of what the steps before found
    assert [line["pef/tokens"] for line in lines] == (online if method == "bank_online" else [12.0 * rehearses] * 3)
    refills = method in ("dapo", "dapo_wise")
    length = "kept/response_length" if refills else "response_length"  # of the responses in the update
    assert [line["exp/tokens"] for line in lines] == [line[length] * 4 * line["groups"] for line in lines]
    assert ("exp/kl_loss" in lines[0]) == (method in ("grpo_kl", "mara", "rkl", "rkl_true"))
    assert ("exp/js_policy_term" in lines[0]) == (method == "dph_js_def")


def test_the_first_step_starts_at_the_reference(tmp_path):
    """Before the first optimizer step π_θ = π_ref = π_old: u = 1, no divergence, no KL, ratio 1."""
    run = train(train_config(tmp_path, "dph_js_def", {"optim": {"minibatches": 1}, "steps": 1}))
    (line,) = read_metrics(run)
    for name, value in {
        "exp/ratio": 1,
        "exp/old_kl": 0,
        "pef/divergence": 0,
        "pef/log_ratio": 0,
        "pef/forgotten": 0,
    }.items():
        assert line[name] == pytest.approx(value, abs=1e-5), name  # the sampler's numbers against the trainer's
    # with u = 1: g = ½·log(π_θ/m) = 0, so that the term is its baseline's ρ·(0 − b) + b = 0
    assert line["exp/js_policy_term"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("method", ["grpo", "dapo", "dph_js"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch, method):
    settings = {
        "steps": 4,
        "optim": {"schedule": "cosine", "warmup_steps": 2},
        "monitor": {"every": 2, "limit": 3, "n": 2},
    }
    whole = train(train_config(tmp_path / "whole", method, settings))
    config = train_config(tmp_path / "parts", method, settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 4))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    # three steps were logged, the last checkpoint is that of the second: the third is taken again
    assert [line["step"] for line in read_metrics(tmp_path / "parts")] == [0, 1, 2, 3]
    monkeypatch.undo()
    with pytest.raises(RunError, match="already holds a run; add --resume"):
        train(config)
    parts = train(config, resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(whole, parts) and len(read_metrics(parts)) == 5
    assert (parts / "coverage.jsonl").read_bytes() == (whole / "coverage.jsonl").read_bytes()
    assert kept(parts) == kept(whole) and len(kept(parts)) == 5  # the rollouts of steps 2 and 4, the monitor's of 0 too
    before = (parts / "model" / "model.safetensors").stat().st_mtime_ns
    train(config, resume=True)  # complete: nothing happens
    assert (parts / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_a_run_interrupted_before_its_first_checkpoint_starts_over(tmp_path, monkeypatch):
    settings = {"steps": 2, "monitor": {"every": 1, "limit": 2, "n": 2}}
    whole = train(train_config(tmp_path / "whole", "dph_js", settings))
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
    with pytest.raises(KeyboardInterrupt):
        train(train_config(tmp_path / "parts", "dph_js", settings))
    monkeypatch.undo()
    parts = train(train_config(tmp_path / "parts", "dph_js", settings), resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(whole, parts)


@pytest.mark.parametrize("method", ["grpo_kl", "dph_js"])
def test_adapters_resume_too_and_are_their_own_reference(tmp_path, monkeypatch, method):
    lora = {"model": {"lora_rank": 2}, "steps": 3, "checkpoint_every": 1}
    whole = train(train_config(tmp_path / "whole", method, lora))
    assert not same_weights(whole, base_run())
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 3))
    with pytest.raises(KeyboardInterrupt):
        train(train_config(tmp_path / "parts", method, lora))
    monkeypatch.undo()
    parts = train(train_config(tmp_path / "parts", method, lora), resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes() and same_weights(
        whole, parts
    )


def test_the_same_seed_is_the_same_run_and_another_is_not(tmp_path):
    runs = [train(train_config(tmp_path / name, "dph_js", seed=seed)) for name, seed in (("a", 3), ("b", 3), ("c", 4))]
    metrics = [(run / "metrics.jsonl").read_bytes() for run in runs]
    assert metrics[0] == metrics[1] != metrics[2]
    assert same_weights(runs[0], runs[1]) and not same_weights(runs[0], runs[2])


def test_the_cut_into_microbatches_and_the_samplers_rows_do_not_matter(tmp_path):
    runs = [
        train(
            train_config(
                tmp_path / str(rows), "dph_js", {"sampler": {"rows": rows}, "optim": {"tokens_per_microbatch": budget}}
            )
        )
        for rows, budget in ((256, 16384), (3, 20))
    ]
    lines = [read_metrics(run) for run in runs]
    assert len(lines[0]) == 2
    for one, two in zip(*lines, strict=True):
        # the same responses; sums in another order, and Adam's steps on gradients near zero
        assert two == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in one.items()}


def test_rehearsal_rows_come_in_the_order_of_the_cursor(tmp_path, monkeypatch):
    seen = []
    mix = loop.mix
    monkeypatch.setattr(loop, "mix", lambda *given, **how: seen.append(given[3]) or mix(*given, **how))
    train(train_config(tmp_path, "dph_js", {"rehearsal": {"rows": 4}, "steps": 3}))
    from dph.rehearsal.store import read_rehearsal

    stored = read_rehearsal(presampled() / "rehearsal.parquet")
    expected = [stored[i].prompt_ids for i in EpochOrder(6, 0, "rehearsal").take(0, 12)]
    assert [row.prompt_ids for rows in seen for row in rows] == expected


def test_exploration_prompts_are_those_of_the_partition(tmp_path, monkeypatch):
    chosen = []
    collector = module.RolloutCollector

    def remember(policy, sampler, verifiers, items, *settings):
        chosen.append({item.problem.id for item in items})
        return collector(policy, sampler, verifiers, items, *settings)

    monkeypatch.setattr(module, "RolloutCollector", remember)
    for method in ("grpo", "exp_only", "dph_js"):
        train(train_config(tmp_path / method, method, steps=0))
    hard = {f"train/{i}" for i in range(0, 12, 2)}
    assert chosen == [{f"train/{i}" for i in range(12)}, hard, hard]


def test_dapo_refills_constant_groups(tmp_path):
    lines = read_metrics(train(train_config(tmp_path, "dapo", steps=3)))
    assert all(line["kept/informative"] == 1 for line in lines)
    assert any(line["prompts_drawn"] > 4 for line in lines) and all(line["prompts_drawn"] <= 16 for line in lines)


def test_training_raises_the_reward_of_the_hard_half(tmp_path):
    """The gold answers of "hard i" depend on i, which 30 steps at this rate learn from rewards alone. Two of the six
    share a prompt and differ in their answers, so the best reward is 5/6."""
    settings = {"steps": 30, "rollout": {"prompts": 6, "n": 8}, "optim": {"lr": 5e-3}, "checkpoint_every": 30}
    lines = read_metrics(train(train_config(tmp_path, "exp_only", settings)))
    rewards = [line["reward"] for line in lines]
    assert sum(rewards[:5]) / 5 < 0.7 < 0.8 < sum(rewards[-5:]) / 5


def test_the_monitor_measures_before_the_first_step_and_then_as_asked(tmp_path):
    monitor = MonitorConfig(every=2, split="dev", limit=4, n=4)
    lines = read_metrics(train(train_config(tmp_path, "grpo", {"steps": 3}, monitor=monitor)))
    assert [line["step"] for line in lines if "eval/pass@4" in line] == [0, 2]
    assert {"eval/greedy", "eval/mean@4", "eval/pass@1", "eval/styles"} <= lines[0].keys()
    assert "loss" not in lines[0]


def test_the_monitor_says_how_many_problems_could_be_judged(tmp_path, monkeypatch):
    from dph.verifiers import Verifiers

    verify = Verifiers.verify

    def without_one(self, items):
        verdicts = zip(items, verify(self, items), strict=True)
        return [Verdict(Outcome.INFRA_ERROR, 0.0) if p.id == "dev/1" else verdict for (p, _), verdict in verdicts]

    monkeypatch.setattr(Verifiers, "verify", without_one)
    monitor = MonitorConfig(every=1, split="dev", limit=3, n=2)
    run = train(train_config(tmp_path, "grpo", {"steps": 1}, monitor=monitor))
    for line in read_metrics(run):
        names = ("greedy", "mean@2", "pass@1", "pass@2", "styles", "styles_correct")
        counts = {name: value for name, value in line.items() if name.startswith("eval/problems/")}
        assert counts == {f"eval/problems/{name}": 2 for name in names}


def test_the_monitored_problems_are_in_the_order_that_the_task_has(tmp_path):
    monitor = MonitorConfig(every=1, split="dev", limit=4, n=2)
    task = TaskConfig(name="toy", shuffle=True)
    run = train(train_config(tmp_path, "grpo", {"steps": 1}, monitor=monitor, task=task))
    watched = {sample.id for sample in read_kept_samples(run, "monitor")}
    assert watched == {problem.id for problem in select(make_task(task), "dev", 4, shuffle=True)}
    assert watched != {problem.id for problem in select(make_task(task), "dev", 4)}


SETS = {
    "easy": MonitorSet(split="easy", limit=3, n=2),
    "other-task": MonitorSet("toy", {"problems": "5"}, split="dev", limit=9, n=8),
}


def test_further_sets_are_measured_with_their_own_problems_and_change_nothing_else(tmp_path):
    monitor = MonitorConfig(every=1, split="dev", limit=3, n=4)
    alone = train(train_config(tmp_path / "alone", "dph_js", monitor=monitor))
    both = train(train_config(tmp_path / "both", "dph_js", monitor=replace(monitor, sets=SETS)))
    lines, others = read_metrics(alone), read_metrics(both)
    assert [{key: row[key] for key in row if not key.startswith("monitor/")} for row in others] == lines
    assert (kept(alone), same_weights(alone, both)) == (kept(both), True)
    for row in others:
        of_sets = {name.rpartition("/")[0]: set() for name in row if name.startswith("monitor/")}
        for name in row:
            if name.rpartition("/")[0] in of_sets:
                of_sets[name.rpartition("/")[0]].add(name.rpartition("/")[2])
        assert of_sets.keys() == {"monitor/easy", "monitor/other-task"}
        assert {"greedy", "mean@2", "pass@1", "pass@2"} <= of_sets["monitor/easy"]
        assert {"greedy", "mean@8", "pass@1", "pass@2", "pass@4", "pass@8"} <= of_sets["monitor/other-task"]
        assert row["monitor/easy/pass@2"] * 3 == pytest.approx(round(row["monitor/easy/pass@2"] * 3))  # of 3 problems
    # dev/0 to dev/4 are problems of both tasks: of the other one they are pinned under the set's name
    pinned = json.loads((both / "inputs.json").read_text())["measured"]
    assert {"dev/0", "easy/0", "monitor/other-task/dev/4"} <= pinned.keys() and len(pinned) == 3 + 3 + 5


def test_a_resumed_run_measures_its_sets_as_an_uninterrupted_one(tmp_path, monkeypatch):
    settings = {"steps": 3, "checkpoint_every": 1}
    monitor = MonitorConfig(every=1, limit=2, n=2, sets=SETS)
    whole = train(train_config(tmp_path / "whole", "grpo", settings, monitor=monitor))
    config = train_config(tmp_path / "parts", "grpo", settings, monitor=monitor)
    monkeypatch.setattr(module.Monitor, "measure", interrupted_at(module.Monitor.measure, 3))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    parts = train(config, resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert "monitor/easy/pass@2" in read_metrics(parts)[-1]
    changed = replace(monitor, sets={**SETS, "easy": MonitorSet(split="easy", limit=4, n=2)})
    with pytest.raises(RunError, match=r"sets\.easy\.limit: 3"):
        train(replace(config, monitor=changed), resume=True)


def test_the_best_checkpoint_can_be_chosen_by_a_further_set(tmp_path):
    monitor = MonitorConfig(every=1, limit=2, n=2, sets=SETS)
    run = train(train_config(tmp_path, "grpo", {"keep_best": "monitor/easy/pass@1"}, monitor=monitor))
    best = json.loads((run / "checkpoints" / "best.json").read_text())
    values = {row["step"]: row["monitor/easy/pass@1"] for row in read_metrics(run)}
    assert best["value"] == values[best["step"]] and best["value"] >= max(values.values()) - 0.02


def test_a_run_that_is_stopped_while_it_measures_keeps_the_rollouts_of_that_step(tmp_path, monkeypatch):
    settings = {"steps": 2, "monitor": {"every": 1, "limit": 3, "n": 2}}
    whole = train(train_config(tmp_path / "whole", "grpo", settings))
    config = train_config(tmp_path / "parts", "grpo", settings)
    monkeypatch.setattr(module.Monitor, "measure", interrupted_at(module.Monitor.measure, 2))  # after step 1's update
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    (config_dir := tmp_path / "parts" / "samples").joinpath("monitor-00000003.parquet").write_bytes(b"of a later step")
    (config_dir / ".rollouts-00000002.parquet.new.1.tmp").write_bytes(b"of a killed process")
    parts = train(config, resume=True)
    assert kept(parts) == kept(whole) and len(kept(parts)) == 5
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_kept_responses_are_those_of_the_step_with_their_advantages(tmp_path, monkeypatch):
    """The advantage is the reward minus its group's mean, divided by the deviation (n − 1)."""
    drawn, draw = [], rollouts.RolloutCollector.draw
    monkeypatch.setattr(rollouts.RolloutCollector, "draw", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    monitor = MonitorConfig(every=2, split="dev", limit=3, n=2, kept_responses=10)
    run = train(train_config(tmp_path, "dapo", {"steps": 3}, monitor=monitor))  # every group has an advantage
    explored, held_out = read_kept_samples(run, "rollouts"), read_kept_samples(run, "monitor")
    groups = drawn[1].groups  # of step 2
    expected = [(group, index) for index in range(4) for group in groups][:10]
    assert [(s.step, s.id, s.sample) for s in explored] == [(2, group.problem.id, index) for group, index in expected]
    for sample, (group, index) in zip(explored, expected, strict=True):
        rollout = group.rollouts[index]
        rewards = torch.tensor([other.reward for other in group.rollouts])
        assert sample.advantage == pytest.approx(
            ((rewards - rewards.mean()) / (rewards.std() + 1e-6))[index].item(), abs=1e-4
        )
        assert (sample.response, sample.outcome, sample.reward) == (
            rollout.text,
            rollout.verdict.outcome.value,
            rollout.reward,
        )
        assert sample.logprob == pytest.approx(sum(rollout.completion.logprobs)) and sample.logprob < 0
        assert sample.tokens == len(rollout.completion.token_ids) and sample.prompt == group.problem.prompt
    # three problems: their greedy responses, then their samples, the same problems at every step
    assert [(s.step, s.sample) for s in held_out] == [(t, i) for t in (0, 2) for i in (-1, -1, -1, 0, 0, 0, 1, 1, 1)]
    assert len({s.id for s in held_out}) == 3 and {s.advantage for s in held_out} == {None}


def test_no_responses_are_kept_if_none_are_asked_for(tmp_path):
    monitor = MonitorConfig(every=1, limit=2, n=2, kept_responses=0)
    assert not (train(train_config(tmp_path, "grpo", {"steps": 1}, monitor=monitor)) / "samples").exists()


def test_a_response_that_is_not_in_the_loss_has_no_advantage():
    estimator = AdvantageEstimator(
        Advantage("group", {}), OverlongConfig(), 8, mask_truncated=True, style=lambda *_: None
    )
    judged = group((GOOD, 1.0, 3, "stop"), (LOST, 0.0, 4, "stop"), (BAD, 0.0, 8, "length"), (BAD, 0.0, 2, "stop"))
    ((first, lost, cut, last),) = estimator.rows([judged])
    assert first is not None and lost is None and cut is None and last is not None
    assert first.advantage == pytest.approx(2 / 3**0.5, abs=1e-5)  # rewards 1, 0, 0: mean 1/3, deviation 1/√3


def test_samples_are_shown_with_their_verdicts(tmp_path, caplog):
    caplog.set_level("INFO", "dph")
    monitor = {"every": 2, "limit": 3, "n": 2}
    config = train_config(tmp_path, "grpo", {"steps": 3, "show_samples": 2, "monitor": monitor})
    run = train(config)
    said = [line for line in caplog.messages if line.startswith("step ")]
    shown = read_kept_samples(run, "monitor")[:2] + read_kept_samples(run, "rollouts")[:2]
    assert said == [f"step {sample.step}: {sample.line()}" for sample in shown]
    first = shown[-1]
    assert said[-1].startswith(f"step 2: {first.id}: {first.outcome}, reward {first.reward:g}, advantage ")
    with pytest.raises(SettingsError, match="show_samples is 2, but only responses"):
        replace(config, monitor=MonitorConfig(every=0))
    train(replace(config, show_samples=0), resume=True)  # what is printed may change


def test_a_sample_is_one_harmless_line():
    rollout = Rollout(Completion([1] * 9, [-0.5] * 9, "length"), "a\n\x1b[2J" + "b" * 500 + "end", Verdict(BAD, 0.1))
    line = Sample.of(3, "rollouts", Problem("p", "", "", "exact"), 0, rollout, -0.25).line()
    assert line.startswith("p: wrong, reward 0.1, advantage -0.25, 9 tokens, cut off: a \ufffd[2Jbbb")
    assert line.endswith("bbbend") and " […] " in line and len(line) < 400 and "\n" not in line


def group(*rollouts):
    made = [
        Rollout(Completion([1] * n, [0.0] * n, reason), "", Verdict(outcome, reward))
        for outcome, reward, n, reason in rollouts
    ]
    return Group(Problem("p", "", "", "exact"), [1], made)


GOOD, BAD, LOST = Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR
GROUPS = [
    group((GOOD, 1.0, 3, "stop"), (BAD, 0.1, 5, "length"), (LOST, 0.0, 4, "stop")),
    group((BAD, 0.0, 2, "stop"), (BAD, 0.1, 2, "stop"), (BAD, 0.0, 2, "stop")),
]
MEANS = {
    "reward": 1.2 / 5,  # five judged
    "pass_rate": 1 / 5,
    "solved": 1 / 2,
    "informative": 1 / 2,
    "response_length": 18 / 6,
    "truncated": 1 / 6,
    "unparsed": 0.0,
    "unscored": 1 / 6,
    "prompts_drawn": 7,
}


def test_metrics_of_rollouts_by_hand():
    stats = StepStats.of(Drawn(GROUPS, [0, 1], 2, 7, 7), World())
    assert stats.sampled["tokens"] == 18 and stats.metrics() == pytest.approx(MEANS | {"groups": 2})
    assert stats.visits == [("p", 0, 3), ("p", 1, 2)] and (stats.responses, stats.sampled["rewarded"]) == (6, 3)
    assert stats.outcomes == {GOOD: 1, BAD: 4, LOST: 1}


def test_dropped_groups_count_in_the_metrics_of_what_was_sampled():
    """DAPO keeps the first group only: what was sampled counts as without the filter, and what was kept on its own."""
    stats = StepStats.of(Drawn(GROUPS[:1], [0], 1, 7, 7, dropped=GROUPS[1:]), World())
    kept = {
        "kept/reward": 1.1 / 2,
        "kept/pass_rate": 1 / 2,
        "kept/solved": 1,
        "kept/informative": 1,
        "kept/response_length": 12 / 3,
        "kept/truncated": 1 / 3,
        "kept/unparsed": 0.0,
        "kept/unscored": 1 / 3,
    }
    assert stats.sampled["tokens"] == 18 and stats.metrics() == pytest.approx(MEANS | kept | {"groups": 1})


def test_dapo_logs_the_pass_rate_of_all_that_it_sampled(tmp_path, monkeypatch):
    verdicts, sample = [], rollouts.sample_groups
    monkeypatch.setattr(rollouts, "sample_groups", lambda *given: verdicts.append(sample(*given)) or verdicts[-1])
    (line,) = read_metrics(train(train_config(tmp_path, "dapo", steps=1)))
    outcomes = [rollout.verdict.correct for groups in verdicts for one in groups for rollout in one.rollouts]
    assert len(outcomes) == 4 * line["prompts_drawn"] > 4 * line["groups"]
    assert line["pass_rate"] == pytest.approx(sum(outcomes) / len(outcomes))
    assert line["pass_rate"] != line["kept/pass_rate"]


def test_the_logged_rate_is_that_of_the_last_update(tmp_path):
    settings = {"steps": 4, "optim": {"schedule": "linear", "warmup_steps": 3}}
    config = train_config(tmp_path, "grpo", settings)
    rates = [line["lr"] for line in read_metrics(train(config))]
    # two updates a step, so the last updates of the steps are the 2nd, 4th, 6th and 8th of 8; the 4th begins the decay
    assert rates == pytest.approx([1e-3 * share for share in (2 / 3, 1, 3 / 5, 1 / 5)])


CONTRADICTIONS = {
    "rows without eta": (
        {"rehearsal": {"path": "x", "rows": 4}},
        r"rehearsal\.rows is 4 but loss\.eta is 0, so stored responses would have no effect",
    ),
    "no partition": (
        {"prompt_set": "explore"},
        r"needs a presampled partition; run `dph presample` and add --rehearsal\.path",
    ),
    "one response": ({"rollout": {"n": 1}}, r"rollout\.n is 1; advantages are relative"),
    "greedy": ({"rollout": {"temperature": 0.0}}, r"rollout\.temperature must be above 0"),
    "too few prompts": ({"rollout": {"prompts": 1}}, r"rollout\.prompts 1 cannot be split into 2 mini-batches"),
    "kl without estimator": (
        {"loss": {"eta": 0.0, "kl_coef": 0.1}},
        r"loss\.kl_coef is 0\.1 but loss\.kl is 'none'",
    ),
    "divergence": ({"loss": {"eta": 0.0, "divergence": "jss"}}, "jss"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_settings_are_refused_before_anything_is_loaded(tmp_path, name):
    changes, message = CONTRADICTIONS[name]
    base = {"out": str(tmp_path / "run"), "loss": {"eta": 0.0}, "model": {"path": "/nowhere"}}
    from_dict(TrainConfig, base).check_ready()
    with pytest.raises(SettingsError, match=message):
        train(from_dict(TrainConfig, {**base, **changes}))
    assert not (tmp_path / "run").exists()


def test_old_logprobs_are_recomputed_where_the_samplers_are_not_exact():
    assert not recomputes_old("auto", "hf", "fp32")
    assert recomputes_old("auto", "hf", "bf16") and recomputes_old("auto", "vllm", "fp32")
    for precision in ("fp32", "bf16"):
        assert not recomputes_old("sampler", "hf", precision) and recomputes_old("recompute", "hf", precision)


def test_bfloat16_training_starts_each_step_at_ratio_one(tmp_path):
    settings = {"model": {"precision": "bf16"}, "optim": {"minibatches": 1}}
    lines = read_metrics(train(train_config(tmp_path, "exp_only", settings)))
    assert len(lines) == 2
    for line in lines:
        assert line["exp/ratio"] == pytest.approx(1, abs=1e-6) and math.isfinite(line["loss"])


def test_an_unknown_tracker_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)  # as if it were not installed
    with pytest.raises(SettingsError, match="tracker 'trackio' is not installed; run"):
        train(train_config(tmp_path, "grpo", tracker="trackio"))


class FakeTracker(types.ModuleType):
    """A tracker one of whose functions fails, as for want of a login or of the network."""

    def __init__(self, failing):
        super().__init__("wandb")
        self.failing, self.called = failing, []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*_, **__):
            self.called.append(name)
            if name == self.failing:
                raise RuntimeError("No API key configured.\nLog in.")

        return call


@pytest.mark.parametrize("failing", ["login", "init", "log"])
def test_a_tracker_that_fails_stops_the_run_with_one_sentence(tmp_path, monkeypatch, failing):
    monkeypatch.setitem(sys.modules, "wandb", FakeTracker(failing))
    with pytest.raises(SettingsError) as caught:
        train(train_config(tmp_path, "grpo", tracker="wandb"))
    assert str(caught.value) == (
        "tracker 'wandb' does not work: No API key configured. Log in; fix this, or set WANDB_MODE=offline, or remove "
        "the setting"
    )
    train(train_config(tmp_path, "grpo"), resume=True)  # a run goes on without its tracker


def test_a_tracker_that_fails_at_the_end_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", tracker := FakeTracker("finish"))
    train(train_config(tmp_path, "grpo", tracker="wandb"))
    assert tracker.called == ["login", "init", "log", "log", "finish"] and (tmp_path / "model").is_dir()


class Recorder(types.ModuleType):
    """A tracker that records what it gets; its tables are pairs of columns and rows."""

    def __init__(self, name):
        super().__init__(name)
        self.begun, self.logged = [], []

    def login(self):
        pass

    def finish(self):
        pass

    def init(self, **settings):
        self.begun.append(settings)

    def log(self, values, step):
        self.logged.append((step, values))

    @staticmethod
    def Table(columns, data):
        return columns, data


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_settings_timings_and_samples_and_knows_a_resumed_run(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, tracker := Recorder(name))
    monitor = MonitorConfig(every=2, limit=3, n=2)
    config = train_config(tmp_path / "js", "dph_js", {"steps": 3, "checkpoint_every": 1}, monitor=monitor, tracker=name)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 3))
        train(config)
    train(config, resume=True)
    first, again = tracker.begun
    assert first == again and first["resume"] == "allow" and first["project"] == "dph-rl"
    assert first["config"]["optim"]["lr"] == 1e-3 and first["config"]["monitor"]["every"] == 2
    number = RunDir.open(tmp_path / "js", "train").manifest["tracker_id"]
    assert (first["name"], first.get("id")) == (("js", number) if name == "wandb" else (f"js-{number}", None))
    steps = [step for step, values in tracker.logged if "reward" in values]
    assert steps == [1, 2, 3] and all(
        values["time/update_seconds"] > 0 for _, values in tracker.logged if "loss" in values
    )
    ((step, (columns, rows)),) = [(s, v["samples/rollouts"]) for s, v in tracker.logged if "samples/rollouts" in v]
    kept = read_kept_samples(tmp_path / "js", "rollouts")
    assert step == 2 and len(rows) == min(16, len(kept)) and columns[-1] == "response"
    indent = "" if name == "wandb" else "    "  # trackio shows Markdown
    assert [row[-1] for row in rows] == [indent + sample.response for sample in kept[:16]]
    assert [row[0] for row in rows] == [sample.id for sample in kept[:16]]
    assert [row[columns.index("advantage")] for row in rows] == [sample.advantage for sample in kept[:16]]


def test_two_runs_in_folders_of_one_name_are_two_runs_of_a_tracker(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", tracker := Recorder("trackio"))
    for folder in ("a", "b"):
        train(train_config(tmp_path / folder / "grpo", "grpo", {"steps": 0}, tracker="trackio"))
    one, two = (settings["name"] for settings in tracker.begun)
    assert one != two and one.startswith("grpo-") and two.startswith("grpo-")


def test_tensorboard_shows_samples_as_text_without_markup(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    attack = "![x](http://example.invalid)\n<script>alert(1)</script>\n```\n**bold**"
    problem = Problem("p1", "a prompt", "", "exact")
    sample = Sample.of(
        2, "rollouts", problem, 0, Rollout(Completion([1], [-0.5], "stop"), attack, Verdict(GOOD, 1.0)), 0.5
    )
    run = RunDir.start(str(tmp_path), "train", TrainConfig(out=str(tmp_path)))
    with Metrics(run, "none", leads=True) as metrics:
        metrics.begin(0)
        metrics.log_samples(2, "rollouts", [sample])
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (event,) = board.Tensors("samples/rollouts/text_summary")
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert event.step == 2 and lines[0] == "`p1`: correct, reward 1, advantage +0.50, 1 token"
    assert lines[-4:] == [f"    {line}" for line in attack.splitlines()]  # indented after an empty line: code
    assert lines[-5] == "" and "    a prompt" in lines


def test_no_round_of_drawing_finds_a_useful_group(tmp_path):
    """All prompts are mastered: steps go by without rows, and no weight moves, weight decay included."""
    config = train_config(tmp_path, "dapo", {"rollout": {"temperature": 0.1}, "optim": {"weight_decay": 0.5}})
    config = replace(config, task=TaskConfig(name="toy", split="easy"), rehearsal=RehearsalConfig())
    lines = read_metrics(train(config))
    assert [line["groups"] for line in lines] == [0, 0] and [line["prompts_drawn"] for line in lines] == [16, 16]
    assert same_weights(tmp_path, base_run()) and all(math.isfinite(value) for line in lines for value in line.values())


# More steps than at first ---------------------------------------------------------------------------------------------

LONGER = {"monitor": {"every": 2, "limit": 2, "n": 2}, "optim": {"warmup_steps": 3}, "rollout": {"prompts": 3}}


@pytest.mark.parametrize("method", ["grpo", "dapo", "dph_js"])
def test_a_finished_run_that_is_extended_is_one_long_run(tmp_path, monkeypatch, method):
    whole = train(train_config(tmp_path / "whole", method, LONGER, steps=5))
    train(train_config(tmp_path / "parts", method, LONGER, steps=2))
    longer = train_config(tmp_path / "parts", method, LONGER, steps=5)
    with pytest.raises(RunError, match="already holds a run; add --resume"):
        train(longer)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
    with pytest.raises(KeyboardInterrupt):  # in its fourth step
        train(longer, resume=True)
    monkeypatch.undo()
    assert not RunDir.open(tmp_path / "parts", "train").complete
    parts = train(longer, resume=True)
    assert RunDir.open(parts, "train").complete and RunDir.open(parts, "train").manifest["steps"] == 5
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(whole, parts) and not same_weights(whole, base_run())
    with pytest.raises(RunError, match=r"was started with other settings \(steps"):
        train(replace(longer, steps=4), resume=True)
    with pytest.raises(RunError, match=r"other settings \(seed: 0 → 1; steps: 5 →"):
        train(replace(longer, steps=6, seed=1), resume=True)


def test_an_interrupted_run_may_be_extended_too(tmp_path, monkeypatch):
    whole = train(train_config(tmp_path / "whole", "dph_js", LONGER, steps=5))
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 4))
    with pytest.raises(KeyboardInterrupt):
        train(train_config(tmp_path / "parts", "dph_js", LONGER, steps=4))
    monkeypatch.undo()
    parts = train(train_config(tmp_path / "parts", "dph_js", LONGER, steps=5), resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(whole, parts)


def test_what_cannot_be_extended_says_why(tmp_path):
    config = train_config(tmp_path / "run", "grpo", {"optim": {"schedule": "cosine"}})
    before = (train(config) / "config.toml").read_bytes()
    with pytest.raises(RunError, match="started with 2 steps, and its learning"):
        train(replace(config, steps=3), resume=True)
    assert (tmp_path / "run" / "config.toml").read_bytes() == before and RunDir.open(tmp_path / "run", "train").complete
    config = train_config(tmp_path / "bare", "grpo")
    shutil.rmtree(train(config) / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint after its last step 2"):
        train(replace(config, steps=3), resume=True)


# Supervised training ------------------------------------------------------------------------------------------------


def test_supervised_training_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    from dph.config import OptimConfig, SftConfig
    from dph.stages import sft as stage

    (tmp_path / "data.jsonl").write_text(
        "".join(f'{{"prompt": "easy {i}", "response": " yes {i}"}}\n' for i in range(10)), encoding="utf-8"
    )
    config = SftConfig(
        data=str(tmp_path / "data.jsonl"),
        steps=6,
        batch=7,
        checkpoint_every=2,
        seed=3,
        new=TINY,
        model=ModelConfig(device="cpu"),
        optim=OptimConfig(lr=1e-2, schedule="cosine", warmup_steps=2),
    )
    whole = stage.sft(replace(config, out=str(tmp_path / "whole")))
    step, calls = stage.supervised_step, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(stage, "supervised_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stage.sft(replace(config, out=str(tmp_path / "parts")))
    monkeypatch.undo()
    parts = stage.sft(replace(config, out=str(tmp_path / "parts")), resume=True)
    assert same(whole, parts)


def supervised(folder, **changes):
    """Settings of a short supervised run with a constant rate."""
    from dph.config import OptimConfig, SftConfig

    data = folder / "data.jsonl"
    data.write_text("".join(f'{{"prompt": "easy {i}", "response": " yes {i}"}}\n' for i in range(10)), encoding="utf-8")
    optim = OptimConfig(lr=1e-2, warmup_steps=2, max_skipped=4)
    config = SftConfig(data=str(data), batch=7, checkpoint_every=4, new=TINY, optim=optim)
    return replace(config, model=ModelConfig(device="cpu"), **changes)


def test_a_supervised_run_that_is_extended_is_one_long_run(tmp_path):
    from dph.stages.sft import sft

    whole = sft(supervised(tmp_path, out=str(tmp_path / "whole"), steps=7))
    peaks = [lap["peak_memory_gib"] for lap in read_metrics(whole, "timings.jsonl")]
    assert len(peaks) == 7 and peaks == sorted(peaks) and 0 < peaks[-1] < 64
    sft(supervised(tmp_path, out=str(tmp_path / "parts"), steps=3))
    parts = sft(supervised(tmp_path, out=str(tmp_path / "parts"), steps=7), resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert same_weights(whole, parts)
    longer = supervised(tmp_path, out=str(tmp_path / "parts"), steps=8)
    with (tmp_path / "data.jsonl").open("a") as file:
        file.write('{"prompt": "easy 1", "response": " no"}\n')
    with pytest.raises(RunError, match=r"the rows are not those that .*parts was"):
        sft(longer, resume=True)
    config = supervised(tmp_path, out=str(tmp_path / "cosine"), steps=2)
    config = replace(config, optim=replace(config.optim, schedule="cosine"))
    sft(config)
    with pytest.raises(RunError, match="its learning rate depends on their"):
        sft(replace(config, steps=3), resume=True)


@pytest.mark.parametrize(("steps", "after"), [(9, 4), (3, 3)])
def test_a_supervised_run_without_a_finite_update_stops(tmp_path, monkeypatch, steps, after):
    from dph.stages import sft as stage

    logprobs = stage.Policy.logprobs
    monkeypatch.setattr(stage.Policy, "logprobs", lambda *given: (logprobs(*given)[0] * math.nan, None))
    config = supervised(tmp_path, out=str(tmp_path / "run"), steps=steps)
    message = f"not finite in {after} updates in a row, up to step {after}; restart .* raise --optim.max-skipped"
    with pytest.raises(SharedUserError, match=message):
        stage.sft(config)
    run = RunDir.open(tmp_path / "run", "sft")
    assert not run.complete and not (run.path / "model").exists() and len(read_metrics(run.path)) == after
    with pytest.raises(SharedUserError, match=message):  # the state is saved, and going on does not count as finished
        stage.sft(config, resume=True)
    assert not RunDir.open(tmp_path / "run", "sft").complete
    unlimited = replace(config, out=str(tmp_path / "unlimited"), optim=replace(config.optim, max_skipped=0))
    assert RunDir.open(stage.sft(unlimited), "sft").complete


def test_supervised_loss_is_the_mean_over_response_tokens(tmp_path):
    """The first loss equals transformers' own, whose labels leave the prompt out."""
    from dph.config import OptimConfig, SftConfig
    from dph.models.policy import Policy
    from dph.stages.sft import sft

    path = base_run() / "model"
    pairs = [("easy 1", " no"), ("hard 2 3", " yes yes no"), ("easy", "")]
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt, "response": response}) + "\n" for prompt, response in pairs)
    )
    model = ModelConfig(path=str(path), device="cpu")
    optim = OptimConfig(tokens_per_microbatch=8, warmup_steps=4)
    run = sft(
        SftConfig(
            out=str(tmp_path / "run"), data=str(tmp_path / "data.jsonl"), steps=1, batch=3, model=model, optim=optim
        )
    )
    policy, total, count = Policy.load(model), 0.0, 0
    for prompt, response in pairs:
        context, answer = policy.encode_prompt(prompt), policy.encode_response(response)
        labels = torch.tensor([[-100] * len(context) + answer])
        with torch.no_grad():
            total += float(policy.model(torch.tensor([context + answer]), labels=labels).loss) * len(answer)
        count += len(answer)
    (line,) = read_metrics(run)
    assert line["loss"] == pytest.approx(total / count, rel=1e-5)  # fp32
    assert line["lr"] == optim.lr / 4  # the first of four steps of warm-up


def test_a_model_from_scratch_takes_the_precision_and_device_asked_for():
    from dph.config import SftConfig
    from dph.stages.sft import starting_policy

    config = SftConfig(new=TINY, model=ModelConfig(device="cpu", precision="bf16"))
    assert starting_policy(config, [("easy", " yes")], None).precision == "bf16"
    with pytest.raises(SettingsError, match="device 'abacus' cannot be used"):
        starting_policy(replace(config, model=ModelConfig(device="abacus")), [("easy", " yes")], None)


@pytest.mark.parametrize("resume", [False, True])
def test_supervised_training_keeps_few_numbers_for_the_backward_pass(tmp_path, monkeypatch, resume):
    from dph.stages import sft as stage

    config = supervised(tmp_path, out=str(tmp_path / "run"), steps=1)
    if resume:
        stage.sft(config)
    saving = []
    monkeypatch.setattr(stage.Policy, "save_memory", lambda policy: saving.append(policy))
    stage.sft(replace(config, steps=2), resume=resume)
    assert len(saving) == 1


def test_the_size_of_a_microbatch_is_found_once_for_a_run(tmp_path, monkeypatch):
    from dph.stages import sft as stage

    used, step = [], stage.supervised_step
    monkeypatch.setattr(stage, "supervised_step", lambda *given: used.append(given[3]) or step(*given))
    config = supervised(tmp_path, out=str(tmp_path / "run"), steps=2)
    config = replace(config, optim=replace(config.optim, tokens_per_microbatch=0))
    stage.sft(config)
    monkeypatch.setattr("dph.models.fitting.free_memory", lambda: 0)  # would give the least, 256
    resumed = stage.sft(replace(config, steps=4), resume=True)
    assert used == [16384] * 4 and RunDir.open(resumed, "sft").manifest["tokens_per_microbatch"] == 16384
    stage.sft(replace(config, out=str(tmp_path / "other")))
    assert used[4:] == [256] * 2


@pytest.mark.parametrize("method", ["kl_cov", "clip_cov"])
def test_selecting_losses_train_with_rehearsal(tmp_path, capfd, method):
    """A micro-batch for each prompt: some hold stored rows only. The clip that kl_cov does not have is named."""
    loss = {"eta": 0.3, "clip_high": 0.1}
    settings = {"loss": loss, "rehearsal": {"rows": 4}, "optim": {"tokens_per_microbatch": 1}}
    rows = read_metrics(train(train_config(tmp_path / "run", method, settings)))
    assert len(rows) == 2 and all(row["pef/tokens"] > 0 and math.isfinite(row["grad_norm"]) for row in rows)
    said = "policy loss 'kl_cov' does not use: loss.clip_high" in capfd.readouterr().err
    assert said is (method == "kl_cov")


# Other precisions than fp32: runs resume exactly; a rehearsal set fits the weights that it came from

MASTER = {"precision": "bf16_master"}


def test_an_interrupted_run_with_master_weights_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    settings = {"steps": 3, "checkpoint_every": 1, "model": MASTER, "optim": {"lr": 1e-4}}
    whole = train(train_config(tmp_path / "whole", "grpo", settings))
    config = train_config(tmp_path / "parts", "grpo", settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 3))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    parts = train(config, resume=True)
    names = ["metrics.jsonl", "model/model.safetensors", "checkpoints/step-00000003/trainer.safetensors"]
    for name in names:
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name
    lines = read_metrics(parts)
    assert all(line["exp/ratio"] == pytest.approx(1, abs=0.1) for line in lines)
    assert all(line["exp/sampler_gap"] > 0 for line in lines)  # log π_old is the trainer's own
    loaded = Policy.load(ModelConfig(path=str(parts / "model"), device="cpu"))
    assert loaded.weight_hash() != Policy.load(ModelConfig(path=str(base_run() / "model"), device="cpu")).weight_hash()


def test_a_set_of_weights_in_fp32_does_not_fit_rounded_weights(tmp_path):
    with pytest.raises(RunError, match=r"weight_hash .* there"):
        train(train_config(tmp_path / "wrong", "dph_js", {"model": MASTER}))
    config = presample_config(tmp_path / "set")
    rounded = presample(replace(config, model=replace(config.model, precision="bf16_master")))
    settings = {"model": MASTER, "rehearsal": {"path": str(rounded)}}
    line = read_metrics(train(train_config(tmp_path / "right", "dph_js", settings)))[0]
    assert line["pef/tokens"] > 0


def test_a_resumed_run_keeps_the_precision_that_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "choose_precision", lambda *_: "bf16")
    settings = {"steps": 2, "checkpoint_every": 1, "model": {"precision": "auto"}}
    config = train_config(tmp_path / "run", "grpo", settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    assert RunDir.open(tmp_path / "run", "train").manifest["precision"] == "bf16"
    monkeypatch.setattr(device, "choose_precision", lambda *_: pytest.fail("measured again"))
    assert all(line["exp/sampler_gap"] > 0 for line in read_metrics(train(config, resume=True)))
