"""Rehearsal of recent rollouts: what is kept and chosen, the reference, and runs that are killed and resumed."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from dph.config import TrainConfig, to_toml
from dph.errors import SettingsError, UserError
from dph.process.distributed import World
from dph.rehearsal.store import SOURCES, Rehearsal
from dph.runs.directory import read_metrics
from dph.stages.train import train
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict
from experiments.anchor.recent import Distinct, Recent
from helpers import presampled, train_config, weights

PLUGIN = str(Path(__file__).resolve().parents[1] / "anchor" / "recent.py")


def group(name: str, *outcomes: str, finished: bool = True) -> Group:
    """A group with a rollout for each outcome; the token of a rollout is its place."""
    rollouts = [
        Rollout(Completion([place], [-0.5 * (place + 1)], "stop" if finished else "length"), str(place), verdict)
        for place, outcome in enumerate(outcomes)
        for verdict in [Verdict(Outcome(outcome), float(outcome == "correct"))]
    ]
    return Group(Problem(name, name, "a", "exact"), [7], rollouts)


def stored(*names: str) -> list[Rehearsal]:
    return [Rehearsal([7], [1], name, [-1.0], name) for name in names]


def names(rows: Sequence[Rehearsal]) -> list[str]:
    return [row.problem_id for row in rows]


def test_correct_finished_rollouts_are_kept_with_the_log_probabilities_they_were_drawn_with() -> None:
    source = Recent([], 0)
    assert source.take(0, 4) == []
    source.after(1, [group("b", "wrong", "correct", "infra_error"), group("a", "correct", "error")], World())
    source.after(2, [group("c", "correct", finished=False)], World())
    rows = source.take(0, 4)
    assert [(row.problem_id, row.response_ids, row.ref_logprobs) for row in rows] == [
        ("a", [0], [-0.5]),
        ("b", [1], [-1.0]),
    ]


def test_the_oldest_leave_first_by_age_and_by_size() -> None:
    source = Recent([], 0, age=3, size=4)
    for step in range(1, 5):
        source.after(step, [group(f"step-{step}", "correct")], World())
    assert names(source.take(0, 9)) == ["step-2", "step-3", "step-4"], "three steps before the fifth"
    source.after(5, [group("step-5", *["correct"] * 3)], World())
    assert names(source.take(0, 9)) == ["step-4", *["step-5"] * 3]
    source.after(6, [], World())
    source.after(7, [], World())
    source.after(8, [], World())
    assert source.take(0, 9) == [] and source.after(9, [], World()) == {"step": 9, "rows": []}


def test_rows_are_chosen_at_random_without_repetition_and_the_state_says_which() -> None:
    source = Recent(stored(*"xyz"), 3, share=0.5)
    state = source.after(1, [group(name, "correct", "correct") for name in "abcdefgh"], World())
    first = source.take(0, 8)
    assert len(first) == 8 and set(names(first[:4])) <= {*"xyz"} and len(set(map(id, first[4:]))) == 4
    assert names(first[4:]) == sorted(names(first[4:])) and set(names(first[4:])) < {*"abcdefgh"}
    again = Recent(stored(*"xyz"), 3, state, share=0.5)
    assert again.take(99, 8) == first == source.take(0, 8)
    assert Recent(stored(*"xyz"), 4, state, share=0.5).take(0, 8) != first
    assert again.after(2, [], World()) == source.after(2, [], World()) and source.take(0, 8) != first
    fixed = []
    for step in range(3, 6):
        source.after(step, [], World())
        fixed += names(source.take(0, 4)[:2])
    assert sorted(fixed[:3]) == sorted(fixed[3:]) == [*"xyz"], "two epochs of the fixed set"


def test_every_process_keeps_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    one, both = Recent([], 0), Recent([], 0)
    with monkeypatch.context() as second:
        there = Rehearsal([7], [0], "a", [-0.5], "0")
        second.setattr(World, "gather", lambda _, own: [own, [there]])  # what the other process drew
        here = one.after(1, [group("b", "correct")], World())
    assert here == both.after(1, [group("b", "correct"), group("a", "correct")], World())


def test_distinct_rows_of_the_fixed_set() -> None:
    rows = [*stored("a", "a", "b"), Rehearsal([7], [2], "a", [-2.0], "a")]
    source = Distinct(rows, 0)
    assert sorted((row.problem_id, *row.response_ids) for row in source.take(0, 3)) == [("a", 1), ("a", 2), ("b", 1)]


def config(out: Path, options: Mapping[str, str] | None = None, lr: float = 0.01, path: str = "") -> TrainConfig:
    """A run that rehearses recent rollouts, alone if there is no path; options: of the source."""
    rehearsal = {"path": path, "rows": 6, "source": "recent", "source_options": options or {}}
    settings = {"rehearsal": rehearsal, "prompt_set": "all", "optim": {"lr": lr}, "loss": {"eta": 1.0}}
    return train_config(out, "dph_js", settings | {"plugins": (PLUGIN,)}, steps=6, checkpoint_every=2)


def test_the_reference_is_the_policy_that_drew_the_rows(tmp_path: Path) -> None:
    """While nothing is learned every policy is the one that drew the rows, so log u is 0."""
    still, moving = (read_metrics(train(config(tmp_path / name, lr=lr))) for name, lr in (("a", 0.0), ("b", 0.01)))
    assert still[0]["pef/tokens"] == moving[0]["pef/tokens"] == 0, "nothing is recent in the first step"
    for line in still[1:]:
        assert line["pef/tokens"] == 6 * 2 and line["pef/log_ratio_q99"] == pytest.approx(0, abs=1e-5)
    assert moving[-1]["pef/divergence"] > 1e-5 and abs(moving[-1]["pef/log_ratio_q01"]) > 1e-3


def test_fixed_and_recent_rows_together(tmp_path: Path) -> None:
    settings = {"rehearsal": {"source": "recent", "source_options": {"share": "0.5"}}, "plugins": (PLUGIN,)}
    lines = read_metrics(train(train_config(tmp_path, "dph_js", settings)))
    assert [line["pef/tokens"] for line in lines] == [3 * 2, 6 * 2]


KILLED = """
import os, sys
import helpers  # the task of these tests
from dph.cli.main import main
from dph.training.loop import Training
step = Training.step

def killed(self, *given):
    if self.saver.state.step == 4:
        os.kill(os.getpid(), 9)
    step(self, *given)

Training.step = killed
main(sys.argv[1:])
"""


@pytest.mark.parametrize("share", ["1", "0.5"])
def test_a_killed_run_is_resumed_bit_for_bit(tmp_path: Path, share: str) -> None:
    def settings(out: Path, size: str = "20") -> TrainConfig:
        options = {"share": share, "size": size, "age": "3"}
        return config(out, options, path="" if share == "1" else str(presampled()))

    whole = train(settings(tmp_path / "whole"))
    (tmp_path / "train.toml").write_text(to_toml(settings(tmp_path / "part")))
    command = [sys.executable, "-c", KILLED, "train", "--config", str(tmp_path / "train.toml")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert len(read_metrics(tmp_path / "part")) == 4
    part = train(settings(tmp_path / "part"), resume=True)
    assert (part / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    for name, value in weights(whole / "model").items():
        assert torch.equal(weights(part / "model")[name], value)
    with pytest.raises(UserError, match="source_options"):
        train(settings(tmp_path / "part", size="21"), resume=True)


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    for options in ({"size": "0"}, {"age": "0"}, {"share": "0"}, {"share": "1.5"}):
        with pytest.raises(SettingsError, match="size and age must be at least 1"):
            train(config(tmp_path / "run", options))
    for source in ("recent", "distinct"):
        with pytest.raises(SettingsError, match=f"{source} .*needs a fixed set; add --rehearsal.path RUN"):
            SOURCES[source]([], 0, **({"share": 0.5} if source == "recent" else {}))
    with pytest.raises(SettingsError, match="does not take the option 'sise'"):
        SOURCES.bind("recent", {"sise": "3"})
    with pytest.raises(SettingsError, match="no rehearsal source is named 'recnt'"):
        SOURCES["recnt"]
