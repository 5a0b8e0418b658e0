"""Presampling, evaluation and verification are killed or interrupted and resumed: nothing that was saved is done again,
and every file is that of an undisturbed run, byte for byte."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dph
from dph.cli.main import main
from dph.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    TaskConfig,
    VerifierConfig,
    VerifyConfig,
)
from dph.errors import Interrupted, RunError, SharedUserError
from dph.evaluation import evaluator
from dph.models.policy import Policy
from dph.runs.directory import CHUNKS
from dph.stages import evaluate as evaluating
from dph.stages import presample as presampling
from dph.stages import verify as verifying
from dph.stages.evaluate import evaluate
from dph.stages.presample import presample
from dph.stages.verify import verify
from dph.types import Problem
from dph.verifiers import Verifiers
from faults_support import at_call
from helpers import ToyTask, base_run, folder, presample_config

SOURCE, TESTS = Path(dph.__file__).parents[1], Path(__file__).parents[1]
STAGES = ("presample", "eval", "verify")


def questions(root: Path, count: int) -> None:
    """SQL questions on one database, and predictions of which every third is wrong and every fourth fails."""
    (root / "databases/shop").mkdir(parents=True)
    connection = sqlite3.connect(root / "databases/shop/shop.sqlite")
    connection.execute("CREATE TABLE sale (id INTEGER PRIMARY KEY, price REAL)")
    connection.executemany("INSERT INTO sale VALUES (?, ?)", [(i, i * 1.5) for i in range(50)])
    connection.commit()
    connection.close()
    golds = [f"SELECT price FROM sale WHERE id < {i % 40 + 1} LIMIT 9" for i in range(count)]
    golds[5] = "SELECT nothing FROM sale"
    bad = ["SELECT id FROM sale", "SELECT nope", "not sql"]
    answers = [bad[i % 12 % 4 - 1] if i % 3 == 0 and i % 4 else f"{sql} -- {i}" for i, sql in enumerate(golds)]
    (root / "gold.sql").write_text("".join(f"{sql}\tshop\n" for sql in golds))
    (root / "p.sql").write_text("".join(sql + "\n" for sql in answers))


def work(stage: str, *, resume: bool = False, root: Path | None = None, **changes: object) -> None:
    """A small run of a stage in ./run, which does its work in several chunks (see `small`)."""
    if stage == "presample":
        config = presample_config(Path("run"), stored=2)
        presample(replace(config, sampler=replace(config.sampler, rows=4), **changes), resume=resume)  # type: ignore[arg-type]
    elif stage == "eval":
        base = EvalConfig(
            out="run",
            model=ModelConfig(path=str(base_run() / "model"), device="cpu"),
            task=TaskConfig(name="toy", split="test, dev"),
            rollout=RolloutConfig(n=8, max_tokens=4, max_prompt_tokens=8),
        )
        evaluate(replace(base, **changes), resume=resume)  # type: ignore[arg-type]
    else:
        assert root is not None
        options = {"gold": str(root / "gold.sql"), "databases": str(root / "databases")}
        config = VerifyConfig(
            predictions=str(root / "p.sql"),
            out="run",
            task=TaskConfig(name="gold", split="gold", options=options),
            verifier=VerifierConfig(workers=1, timeout=20.0),
        )
        verify(replace(config, **changes), resume=resume)  # type: ignore[arg-type]


@pytest.fixture
def small(monkeypatch):
    """Chunks of few problems and rows."""
    monkeypatch.setattr(evaluating, "problems_at_once", lambda samples: 5)
    monkeypatch.setattr(presampling, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(verifying, "PROBLEMS_AT_ONCE", 3)


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


OUTPUTS = {
    "presample": {"partition.parquet", "rehearsal.parquet"},
    "eval": {"scores.json", "problems.parquet", "completions.parquet"},
    "verify": {"scores.json", "verdicts.jsonl"},
}


@pytest.fixture(scope="module")
def prepared():
    root = folder()
    questions(root, 20)
    base_run()
    return root


@pytest.fixture
def undisturbed(request, prepared, small, monkeypatch, tmp_path):
    """The files of an undisturbed run of the stage, after which the current directory is an empty one."""
    stage = request.getfixturevalue("stage")
    for name in ("whole", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    work(stage, root=prepared)
    found = files(Path("run"))
    assert found.keys() == OUTPUTS[stage] | {"config.toml", "manifest.json"}
    monkeypatch.chdir(tmp_path / "other")
    return found


def counted(monkeypatch, seen: list[str]) -> None:
    """Note the problem of every response that is judged."""
    judge = Verifiers.verify

    def verify(self, items):
        seen.extend(problem.id for problem, _ in items)
        return judge(self, items)

    monkeypatch.setattr(Verifiers, "verify", verify)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")], ids=["interrupted", "failed"])
def test_a_run_that_stops_in_every_chunk_in_turn(stage, error, undisturbed, prepared, monkeypatch, capsys):
    """Each attempt finishes one chunk, then stops at the next; no response is judged twice."""
    judge, seen, attempts = Verifiers.verify, [], 0

    def stop():
        raise error

    while True:
        with monkeypatch.context() as patch:
            counted(patch, seen)
            if stage == "verify":
                patch.setattr(Verifiers, "verify", at_call(2, stop, Verifiers.verify))
            else:
                place = presampling if stage == "presample" else evaluator
                patch.setattr(place, "sample_groups", at_call(2, stop, place.sample_groups))
            try:
                work(stage, resume=attempts > 0, root=prepared)
                break
            except (Interrupted, RuntimeError) as stopped:
                attempts += 1
                said = str(stopped) if isinstance(stopped, Interrupted) else capsys.readouterr().err
                assert " problems" in said and "are saved; continue with --resume" in said
    assert files(Path("run")) == undisturbed
    assert attempts >= 4 and Verifiers.verify is judge
    # Two problems of a split ask the same; the gold of one is judged once by the other's, to name contradictions.
    judged = {"presample": 12 * 8 + 6 + 1, "eval": 2 * (12 * 9 + 1), "verify": 19}[stage]
    assert len(seen) == judged


def test_presampling_that_fails_after_all_is_judged_judges_nothing_again(prepared, small, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def fail(*_args, **_more):
        raise OSError("no log-probabilities")

    with monkeypatch.context() as patch:
        patch.setattr(Policy, "response_logprobs", fail)
        with pytest.raises(OSError, match="no log-probabilities"):
            work("presample")
    assert (tmp_path / "run" / CHUNKS).is_file()
    monkeypatch.setattr(presampling, "sample_groups", fail)
    work("presample", resume=True)
    assert not (tmp_path / "run" / CHUNKS).exists()


@pytest.mark.parametrize("stage", ["presample"])
def test_log_probabilities_are_saved_with_the_budget_of_their_batches(stage, undisturbed, monkeypatch):
    """Memory is shorter when the run resumes; micro-batches stay what they were."""
    computed: list[int] = []
    budgets: set[int] = set()
    response_logprobs = Policy.response_logprobs

    def noted(self, rows, temperature, token_budget):
        computed.append(len(rows))
        budgets.add(token_budget)
        return response_logprobs(self, rows, temperature, token_budget)

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Policy, "response_logprobs", at_call(3, stop, noted))
        with pytest.raises(Interrupted, match="12 of 12 problems, 6 of 6 further draws"):
            work("presample")
    monkeypatch.setattr(Policy, "response_logprobs", noted)
    monkeypatch.setattr(presampling, "fitting_tokens", lambda policy: 1)
    work("presample", resume=True)
    assert files(Path("run")) == undisturbed
    tables = [pq.read_table("run/rehearsal.parquet", columns=["text"])]
    assert computed[:3] == [4, 4, 4] and sum(computed) == sum(len(table) for table in tables)
    assert len(budgets) == 1 and min(budgets) > 1


@pytest.mark.parametrize("stage", ["presample", "eval"])
def test_a_gold_answer_that_fails_only_the_second_time_changes_nothing(stage, undisturbed, monkeypatch):
    place = presampling if stage == "presample" else evaluator

    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, "sample_groups", at_call(3, stop, place.sample_groups))
        with pytest.raises(Interrupted):
            work(stage)
    monkeypatch.setattr(Verifiers, "check", lambda self, problems: {problems[0].id: "it took too long"})
    work(stage, resume=True)
    assert files(Path("run")) == undisturbed


@pytest.mark.parametrize("stage", STAGES)
def test_other_settings_and_inputs_are_refused_and_the_work_is_kept(stage, undisturbed, prepared, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    target = Verifiers if stage == "verify" else presampling if stage == "presample" else evaluator
    name = "verify" if stage == "verify" else "sample_groups"
    with monkeypatch.context() as patch:
        patch.setattr(target, name, at_call(2, stop, getattr(target, name)))
        with pytest.raises(Interrupted):
            work(stage, root=prepared)
    saved = files(Path("run"))
    other = {"presample": {"threshold": 3}, "eval": {"seed": 1}, "verify": {"partial": True}}[stage]
    with pytest.raises(RunError, match="was started with other settings"):
        work(stage, resume=True, root=prepared, **other)
    with pytest.raises(RunError, match="already holds a run; add --resume"):
        work(stage, root=prepared)
    with monkeypatch.context() as patch:
        if stage == "verify":
            (prepared / "p.sql").write_text((before := (prepared / "p.sql").read_text()).replace("-- 19", "-- 20"))
            with pytest.raises(RunError, match="the predictions are not those that"):
                work(stage, resume=True, root=prepared)
            (prepared / "p.sql").write_text(before)
        else:
            problems = ToyTask.problems

            def changed(self, split):
                *others, last = problems(self, split)
                return [*others, Problem(last.id, last.prompt, "maybe", "exact", last.meta)]

            patch.setattr(ToyTask, "problems", changed)
            with pytest.raises(RunError, match="the problems are not those that"):
                work(stage, resume=True, root=prepared)
            patch.setattr(ToyTask, "problems", problems)
            patch.setattr(Policy, "weight_hash", lambda self: "other")
            with pytest.raises(RunError, match="the model's weights are not those that"):
                work(stage, resume=True, root=prepared)
    assert {name: saved[name] for name in saved if name != ".lock"} == {
        name: content for name, content in files(Path("run")).items() if name != ".lock"
    }
    work(stage, resume=True, root=prepared)
    assert files(Path("run")) == undisturbed


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_has_saved_nothing_can_be_started_with_other_settings(stage, undisturbed, prepared, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    target = Verifiers if stage == "verify" else presampling if stage == "presample" else evaluator
    name = "verify" if stage == "verify" else "sample_groups"
    with monkeypatch.context() as patch:
        patch.setattr(target, name, at_call(1, stop, getattr(target, name)))
        with pytest.raises(Interrupted, match="interrupted; nothing is saved yet"):
            work(stage, root=prepared, plugins=("json",))
    work(stage, root=prepared)
    assert files(Path("run")) == undisturbed


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_is_killed_in_its_last_moment_is_complete(stage, undisturbed, prepared, monkeypatch):
    from dph.runs import directory

    def stop(_folder):
        (Path("run") / CHUNKS).write_text("what was not removed yet")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(directory, "unlock", stop)
        with pytest.raises(Interrupted):
            work(stage, root=prepared)
    work(stage, resume=True, root=prepared)
    assert {name: own for name, own in files(Path("run")).items() if name != ".lock"} == undisturbed


@pytest.mark.parametrize("stage", ["verify", "interpolate", "report"])
def test_several_processes_are_refused_in_one_sentence(stage, prepared, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as end:
            main([stage, "--out", "run"])
        assert end.value.code == 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == (rank == "0")
        assert all("runs in one process, but 2 were started" in line for line in said)
    if stage == "verify":
        with pytest.raises(SharedUserError, match="runs in one process"):
            work(stage, root=prepared)
    assert not list(tmp_path.iterdir())


# Killed processes ---------------------------------------------------------------------------------------------------

PLUGIN = f"""
import os, sys, time
sys.path.insert(0, {str(TESTS)!r})
import helpers
from dph.runs import chunks
from dph.stages import presample
from dph.verifiers import Verifiers

chunks._APART = 0.0  # every chunk is written at once, so that the test sees where the run is
presample._ROWS_AT_ONCE = 64
judge = Verifiers.verify

def slowly(self, items):
    time.sleep(float(os.environ["PAUSE"]))
    return judge(self, items)

Verifiers.verify = slowly
"""
PAUSE = 0.15
"""Seconds that a call of a verifier takes, so that kills fall everywhere."""


def command(stage: str, root: Path) -> list[str]:
    words = [sys.executable, "-m", "dph", stage, "--plugin", str(root / "plugin.py"), "--out", "run"]
    if stage == "verify":
        words += ["--predictions", str(root / "p.sql"), "--gold", str(root / "gold.sql")]
        return [*words, "--databases", str(root / "databases")]
    words += ["--task.name", "toy", "--task.options", "problems", "224", "--model.path", str(base_run() / "model")]
    words += ["--model.device", "cpu", "--rollout.max-tokens", "4", "--rollout.max-prompt-tokens", "8"]
    if stage == "presample":
        return [*words, "--rollout.n", "8", "--threshold", "7", "--sampler.rows", "32"]
    return [*words, "--rollout.n", "64", "--task.split", "test"]


def started(words: list[str], cwd: Path, pause: float) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PAUSE": str(pause)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(words, cwd=cwd, env=environment, text=True, **pipes)  # type: ignore[call-overload]


def lines(run: Path) -> int:
    return (run / CHUNKS).read_bytes().count(b"\n") if (run / CHUNKS).exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("stage", STAGES)
def test_a_run_killed_at_random_moments_ends_with_the_files_of_an_undisturbed_one(stage, tmp_path):
    """SIGKILL, SIGINT, SIGKILL with half a line left over, SIGTERM, each after a random number of further chunks; the
    last run is left alone."""
    rng = random.Random(f"{stage}")
    questions(tmp_path, 1000)
    (tmp_path / "plugin.py").write_text(PLUGIN)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    words = command(stage, tmp_path)
    whole = started(words, tmp_path / "whole", 0)
    said, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, said
    run, kills = tmp_path / "killed/run", 0
    for attempt, number in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)):
        process = started(words + ["--resume"] * (attempt > 0), tmp_path / "killed", PAUSE)
        before = lines(run)
        wanted = max(3, before + 1) + rng.randint(0, 1)
        while process.poll() is None and lines(run) < wanted:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, PAUSE))
        process.send_signal(number)
        said, _ = process.communicate(timeout=120)
        if number is signal.SIGKILL:
            assert process.returncode == -number, said
        else:
            assert process.returncode == 128 + number, said
            total = 1000 if stage == "verify" else 224
            assert f"of {total} problems" in said.splitlines()[-1] and "continue with --resume" in said
        assert lines(run) >= before
        kills += 1
        if attempt == 2:
            file = run / CHUNKS
            os.truncate(file, file.stat().st_size - rng.randint(1, 200))
    last = started([*words, "--resume"], tmp_path / "killed", 0)
    said, _ = last.communicate(timeout=300)
    assert (last.returncode, kills) == (0, 4), said
    assert files(run) == files(tmp_path / "whole/run")
    rows = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()] if stage == "verify" else []
    assert len(rows) == (999 if stage == "verify" else 0)


def ranks(words: list[str], count: int) -> list[str]:
    """The command in so many processes."""
    return [words[0], "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *words[1:]]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["presample", "eval"])
def test_two_processes_write_the_files_of_one_whichever_is_killed_and_however_many_resume(stage, tmp_path):
    note = f"open({str(tmp_path / 'rank')!r} + os.environ.get('RANK', '0'), 'w').write(str(os.getpid()))\n"
    (tmp_path / "plugin.py").write_text(PLUGIN + note)
    for name in ("whole", "two", "killed"):
        (tmp_path / name).mkdir()
    words = command(stage, tmp_path)
    for name, together in (("whole", words), ("two", ranks(words, 2))):
        process = started(together, tmp_path / name, 0)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert said.count("prompts to explore" if stage == "presample" else "pass@64") == 1, "the leading one speaks"
    assert files(tmp_path / "two/run") == files(tmp_path / "whole/run")
    run = tmp_path / "killed/run"
    for resumed, (rank, number) in enumerate(((1, signal.SIGKILL), (0, signal.SIGTERM))):
        process = started(ranks([*words, *["--resume"] * resumed], 2), tmp_path / "killed", PAUSE)
        before = lines(run)
        while process.poll() is None and lines(run) < max(4, before + 2):
            time.sleep(0.01)
        os.kill(int((tmp_path / f"rank{rank}").read_text()), number)
        said, _ = process.communicate(timeout=120)
        assert process.returncode != 0
        sentences = [line for line in said.splitlines() if line.startswith("dph: ")]
        assert len(sentences) == 1 and "--resume" in sentences[0], said
        assert said.count("Traceback (most") == 1, "torchrun's own"
    last = started([*words, "--resume"], tmp_path / "killed", 0)
    said, _ = last.communicate(timeout=300)
    assert last.returncode == 0, said
    assert files(run) == files(tmp_path / "whole/run")
