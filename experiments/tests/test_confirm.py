"""Experiment F again: arms against the protocol, the rows of the supervised control, and effects that are known."""

import json
from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.errors import UserError
from experiments.anchor import confirm
from experiments.anchor.counts import Evaluated
from experiments.anchor.design import CONFIRM_STARTS, arm_jobs
from experiments.anchor.run import run
from experiments.factorial.design import DEVELOPMENT
from experiments.factorial.design import STARTS as D1_STARTS
from experiments.strategies.design import STARTS as D2_STARTS
from experiments.tests.test_factorial import presampled


def test_arms_are_the_protocols() -> None:
    settings = {}
    for arm in confirm.arms():
        jobs = list(arm_jobs(81, Path("out"), arm, {}))
        settings[arm.name] = parse(jobs[0].arguments[0], jobs[0].arguments[1:])[0]
        own = settings[arm.name]
        assert arm.rollouts == 48_000 == own.steps * own.rollout.prompts * own.rollout.n + (32_000 if arm.rows else 0)
        assert own.loss.clip_high == 0.28 and own.seed == 8101
        assert any(job.name.endswith("share0.5") for job in jobs) == (arm.name == confirm.MIXED)
    rates = ("1.25e-5", "2.5e-5", "5e-5")
    assert set(settings) == {
        *("distinct-raw-1", "k3-24-1", "k3-24-0.3"),
        *(f"{name}-{lr}" for name in ("grpo-24", "long") for lr in rates),
    }
    assert {settings[f"long-{lr}"].steps for lr in rates} == {375}
    used = {*range(21, 33), *CONFIRM_STARTS, *DEVELOPMENT, *D1_STARTS, *D2_STARTS}
    assert len(confirm.STARTS) == 8 and not used & set(confirm.STARTS)


def test_the_supervised_control_sees_the_leads_rows_as_often() -> None:
    jobs = [job for job in confirm.rows_jobs(81, Path("out"), {}) if job.arguments[0] == "sft"]
    found = [parse("sft", job.arguments[1:])[0] for job in jobs]
    lead = next(arm for arm in confirm.arms() if arm.name == confirm.LEAD)
    trained = parse("train", next(iter(arm_jobs(81, Path("out"), lead, {}))).arguments[1:])[0]
    for own, lr in zip(found, confirm.ROWS_ONLY.values(), strict=True):
        assert own.steps == trained.steps * trained.optim.minibatches
        assert own.steps * own.batch == trained.steps * trained.rehearsal.rows
        assert (own.optim.lr, own.optim.schedule, own.optim.weight_decay) == (float(lr), "constant", 0.0)
        assert (own.optim.beta2, own.optim.warmup_steps) == (trained.optim.beta2, trained.optim.warmup_steps)
        assert own.model.path == trained.model.path == "out/base/model" and own.seed == trained.seed


def test_rows_are_the_stored_responses_with_their_prompts(tmp_path: Path) -> None:
    id = "countdown/train/0003"
    presampled(tmp_path / "distinct", {id: 3}, (id,))
    confirm.write_rows(81, tmp_path)
    [row] = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert row["response"] == id and ">" in row["prompt"] and row["prompt"].endswith(":")


def evaluated(*correct: int) -> Evaluated:
    return Evaluated([(64, c) for c in correct], [[c] for c in correct], [""] * len(correct), 0, [False] * len(correct))


def test_the_primary_comparison_finds_an_effect_and_none() -> None:
    base, grpo = evaluated(16, 16, 4, 4), evaluated(60, 32, 0, 0)
    mixed = {"base": base, "grpo-24-5e-5": grpo}
    better = mixed | {confirm.LEAD: evaluated(36, 24, 4, 4)}
    assert (found := confirm._difference(better, None)) is not None and found > 0
    same = mixed | {confirm.LEAD: grpo}
    assert confirm._difference(same, None) == pytest.approx(0, abs=1e-9), "the mix without samples of the base model"
    assert confirm._difference(better, ["base", "grpo-24-2.5e-5"]) is None, "a model is missing"
    beyond = mixed | {confirm.LEAD: evaluated(64, 64, 64, 64)}
    assert confirm._difference(beyond, None) is None, "no mix has this mean"


def test_what_cannot_be_meant_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no counts"):
        run(["--experiment", "f2", "--report-only", "--counts", str(tmp_path / "none.parquet")])
    with pytest.raises(UserError, match="neither --arms nor --figure"):
        run(["--experiment", "f2", "--arms", "k3"])
