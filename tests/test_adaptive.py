"""η that adapts itself: the rule, and runs that hold a target and resume with the η they had."""

import math

import pytest

from dph.adaptive import adapted_eta
from dph.errors import UserError
from dph.runs import read_metrics
from dph.stages import train as module
from dph.stages.train import train
from helpers import interrupted_at, train_config, weights


def test_the_rule_by_hand():
    assert adapted_eta(0.4, 0.5, 0.5) == 0.4
    assert adapted_eta(0.4, 0.55, 0.5) == pytest.approx(0.4 * 1.05)  # error 0.1, half of it
    assert adapted_eta(0.4, 5.0, 0.5) == pytest.approx(0.4 * 1.1)  # bounded at 0.2
    assert adapted_eta(0.4, 0.0, 0.5) == pytest.approx(0.4 * 0.9)
    assert adapted_eta(0.4, math.nan, 0.5) == 0.4


def test_a_divergence_that_falls_with_eta_is_held_at_the_target():
    eta = 1.0
    for _ in range(100):
        eta = adapted_eta(eta, 0.3 / eta, target=0.1)
    assert eta == pytest.approx(3.0, rel=1e-3)


def config(out, target: float):
    settings = {"rehearsal": {"target": target}, "steps": 4, "checkpoint_every": 2}
    return train_config(out, "dph_js", settings)


def test_every_step_uses_and_reports_the_eta_of_its_turn(tmp_path):
    rows = read_metrics(train(config(tmp_path / "run", 1e-9)))
    expected = first = config(tmp_path, 1.0).loss.eta
    for row in rows:
        assert row["eta"] == pytest.approx(expected, rel=1e-12)
        expected = adapted_eta(row["eta"], row["pef/divergence"], 1e-9)
    assert rows[-1]["eta"] > first
    plain = read_metrics(train(config(tmp_path / "plain", 0.0)))
    assert all("eta" not in row for row in plain)
    assert plain[0]["loss"] == rows[0]["loss"]  # the first step's η is that of the settings
    assert plain[-1]["loss"] != rows[-1]["loss"]


def test_a_resumed_run_goes_on_with_the_eta_it_had(tmp_path, monkeypatch):
    whole = train(config(tmp_path / "whole", 1e-9))
    monkeypatch.setattr(module.Updater, "update", interrupted_at(module.Updater.update, 4))
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path / "parts", 1e-9))
    monkeypatch.undo()
    parts = train(config(tmp_path / "parts", 1e-9), resume=True)
    assert (parts / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    ours, theirs = weights(whole / "model"), weights(parts / "model")
    assert ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)


def test_a_target_without_rehearsal_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"rehearsal.target adapts loss.eta, but nothing is rehearsed"):
        train(train_config(tmp_path, "grpo", {"rehearsal": {"target": 0.1}}))
