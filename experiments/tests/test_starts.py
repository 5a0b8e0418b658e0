"""What the experiments in Countdown share: a start's runs in their order, and counts that are written after them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dph.process.jobs import Job
from experiments import starts
from experiments.anchor.design import DISTINCT, NEAR, Arm
from experiments.starts import Course, in_turn, options_of, smoke_flags

ARMS = [Arm("one", "one", ("--preset", "grpo"), None), Arm("two", "two", ("--preset", "grpo_sft"), DISTINCT)]


class Runs:
    """Takes the place of the scheduler: notes the jobs and says that some of them failed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: Sequence[str] = ()) -> None:
        self.events: list[list[str]] = []
        self.needs: dict[str, tuple[str, ...]] = {}
        self.failing = failing
        monkeypatch.setattr(starts, "run_jobs", self.run)
        monkeypatch.setattr(starts, "write", lambda *_: self.events.append(["counts"]))
        monkeypatch.setattr(starts, "lacks", lambda *_: False)

    def run(self, jobs: Sequence[Job], logs: Path, slots: int, label: str, *, keep_going: bool) -> list[str]:
        assert slots == 1 and keep_going and logs.name == "logs"
        self.events.append([job.name for job in jobs])
        self.needs |= {job.name: job.needs for job in jobs}
        return [f"{job.name} failed" for job in jobs if job.name in self.failing]


def course(tmp_path: Path, **more: object) -> Course:
    return replace(Course(7, tmp_path, tmp_path / "counts.parquet", (NEAR, DISTINCT)), **more)


def test_counts_follow_each_arm_and_those_of_a_smoke_run_all_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    assert course(tmp_path).base()
    course(tmp_path).arms(ARMS)
    assert runs.events == [
        ["base", "eval-base", "eval-base-again", NEAR, DISTINCT],
        *(["one", "eval-one"], ["counts"], ["two", "eval-two"], ["counts"]),
    ]
    assert runs.needs["eval-one"] == ("one",) and runs.needs["two"] == ()
    runs = Runs(monkeypatch)
    course(tmp_path, extra=smoke_flags(3)).arms(ARMS)
    assert runs.events == [["one", "eval-one", "two", "eval-two"], ["counts"]]
    assert runs.needs["two"] == (), "a failed arm does not stop the next one"


def test_a_start_whose_base_model_failed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Runs(monkeypatch, failing=("base",))
    assert not course(tmp_path, label="start 7, share 0").base()
    assert "start 7, share 0 is left out: base failed" in capsys.readouterr().err


def test_what_is_done_is_not_run_and_its_counts_are_written_only_where_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, jobs = Runs(monkeypatch), [Job("made", (), out=tmp_path, at_once=True)]
    assert in_turn([jobs], tmp_path, "all") == [] and runs.events == []
    course(tmp_path).run([jobs], "made", ARMS)
    assert runs.events == []
    monkeypatch.setattr(starts, "lacks", lambda *_: True)
    course(tmp_path).run([jobs], "made", ARMS)
    assert runs.events == [["counts"]]


def test_an_experiment_has_the_shared_options() -> None:
    given = options_of("name", "what", Path("counts"), (1, 2)).parse_args([])
    assert vars(given) == {
        "starts": (1, 2),
        "out": Path("runs/name"),
        "counts": Path("counts"),
        "report_only": False,
        "smoke": False,
    }
