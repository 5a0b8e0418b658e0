"""`dph doctor RUN`: the logs of TRL, verl and this package are read; each planted failure is found, and no other."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from complaints import complaint
from dph.cli.main import main
from dph.measure.curves import Group, read_trainer_log
from dph.measure.failures import diagnose, unpaid_with_gold
from helpers import train_config

STEPS = 30
HEALTHY = {
    "reward": lambda t: 0.3 + 0.3 * t,
    "entropy": lambda t: 0.5 - 0.2 * t,
    "length": lambda t: 200 + 40 * t,
    "cut": lambda t: 0.02,
    "constant": lambda t: 0.3 + 0.2 * t,
    "gap": lambda t: 0.004,
}
FAILURES: dict[str, dict[str, Callable[[float], float]]] = {
    "collapse onto one answer": {"entropy": lambda t: 0.5 * (1 - t) ** 2 + 0.03},
    "length run-away": {"length": lambda t: 200 + 700 * t, "cut": lambda t: 0.4 * t},
    "dead groups": {"constant": lambda t: 0.5 + 0.5 * t},
    "judge that cannot read": {"reward": lambda t: 0.0},
    "sampler that drifts": {"gap": lambda t: 0.004 + 0.1 * t},
}
TRL = {
    "reward": "reward",
    "entropy": "entropy",
    "length": "completions/mean_length",
    "cut": "completions/clipped_ratio",
    "constant": "frac_reward_zero_std",
    "gap": "sampling/sampling_logp_difference/mean",
}
VERL = {
    "reward": "critic/score/mean",
    "entropy": "actor/entropy",
    "length": "response_length/mean",
    "cut": "response_length/clip_ratio",
    "gap": "training/rollout_probs_diff_mean",
}
OURS = {
    "reward": "reward",
    "entropy": "exp/entropy",
    "length": "response_length",
    "cut": "truncated",
    "gap": "exp/sampler_gap",
}


def values(curves: dict[str, Callable[[float], float]], names: dict[str, str]) -> list[dict[str, float]]:
    return [{names[k]: f(step / (STEPS - 1)) for k, f in curves.items() if k in names} for step in range(STEPS)]


def trl(folder: Path, curves: Any) -> Path:
    history = [{"step": step + 1, **row, "loss": 0.1} for step, row in enumerate(values(curves, TRL))]
    for last in (10, STEPS):  # an older checkpoint holds the beginning of the history
        (folder / f"checkpoint-{last}").mkdir(parents=True)
        state = {"global_step": last, "log_history": [*history[:last], {"step": last, "train_runtime": 3.0}]}
        (folder / f"checkpoint-{last}/trainer_state.json").write_text(json.dumps(state))
    return folder


def verl(folder: Path, curves: Any) -> Path:
    folder.mkdir()
    rows = [{"step": step + 1, "data": row} for step, row in enumerate(values(curves, VERL))]
    (folder / "experiment.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    dead = [curves["constant"](step / (STEPS - 1)) for step in range(STEPS)]
    right = [curves["reward"](step / (STEPS - 1)) > 0 for step in range(STEPS)]
    (folder / "rollouts").mkdir()
    for step in range(STEPS):
        rows = [
            {"input": f"p{p}", "output": f"r{n}", "score": float(right[step] and n % 2 == 0 and p >= 10 * dead[step])}
            for p in range(10)
            for n in range(4)
        ]
        text = "".join(f"{json.dumps(row | {'step': step + 1, 'gts': '7'})}\n" for row in rows)
        (folder / f"rollouts/{step + 1}.jsonl").write_text(text)
    return folder


def ours(folder: Path, curves: Any) -> Path:
    folder.mkdir()
    rows = values(curves, OURS)
    for step, row in enumerate(rows):
        row |= {"step": step + 1, "informative": 1 - curves["constant"](step / (STEPS - 1))}
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.mark.parametrize("write", [trl, verl, ours], ids=lambda write: write.__name__)
@pytest.mark.parametrize("failure", ["", *FAILURES])
def test_each_planted_failure_is_found_and_no_other(tmp_path, capsys, write, failure):
    path = write(tmp_path / "run", HEALTHY | FAILURES.get(failure, {}))
    main(["doctor", str(path), "--json"])
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["failures"]}
    found = [name for name, each in told.items() if each["state"] == "found"]
    expected = {failure} - {""}
    if failure == "judge that cannot read" and write is verl:  # whose groups are computed from the same rewards
        expected |= {"dead groups"}
    assert set(found) == expected and list(told) == list(FAILURES)
    assert all(each["state"] == "not seen" for name, each in told.items() if name not in found)
    main(["doctor", str(path)])
    said = capsys.readouterr().out
    assert all(f"found      {name}: " in said for name in found) and said.count("→ docs/guides/") == len(found)


def test_the_pages_that_are_named_exist():
    root = Path(__file__).parents[2]
    for failure in diagnose(read_trainer_log_of_nothing()):
        page, _, anchor = failure.page.partition("#")
        titles = [line.lstrip("# ").lower() for line in (root / page).read_text().splitlines() if line[:1] == "#"]
        slugs = {"".join(c for c in title if c.isalnum() or c in " -").replace(" ", "-") for title in titles}
        assert anchor in slugs, failure.page


def read_trainer_log_of_nothing():
    from dph.measure.curves import TrainerLog

    return TrainerLog()


def test_what_a_log_lacks_is_named_and_not_called_healthy(tmp_path):
    path = trl(tmp_path / "run", {"reward": HEALTHY["reward"]})
    states = {each.name: (each.state, each.detail) for each in diagnose(read_trainer_log(path))}
    assert states["sampler that drifts"] == ("not known", "the log has no sampler's gap")
    assert states["dead groups"][0] == states["length run-away"][0] == "not known"
    assert states["judge that cannot read"][0] == "not seen"


def test_completions_of_trl_tell_groups_and_pass_at_k(tmp_path):
    folder = tmp_path / "completions"
    folder.mkdir()
    for step in range(1, 11):
        texts = [f"answer {n % (1 if step > 5 else 8)}" for n in range(16)]
        table = {
            "step": [step] * 16,
            "prompt": ["p"] * 8 + ["q"] * 8,
            "completion": [[{"role": "assistant", "content": text}] for text in texts],
            "format": [0.5] * 16,
            "correct": [float(n < 8 and n % 2) for n in range(16)],
            "advantage": [9.0] * 16,
        }
        pq.write_table(pa.table(table), folder / f"completions_{step:05d}.parquet")
    log = read_trainer_log(tmp_path)
    assert [len(group.responses) for group in log.groups] == [8] * 20 and log.groups[0].responses[1] == "answer 1"
    assert log.groups[0].rewards[:2] == (0.5, 1.5)
    assert log.curves["pass@1, of rollouts"][1] == 0.25 and log.curves["pass@8, of rollouts"][1] == 0.5
    assert log.curves["constant groups"][1] == 0.5 and log.curves["different responses"] | {} == {
        step: 1.0 if step <= 5 else 0.125 for step in range(1, 11)
    }
    [collapse, *_] = diagnose(log)
    assert collapse.state == "found" and "100 % → 12 %" in collapse.detail


def test_a_judge_that_refuses_right_answers_is_found_by_the_last_lines():
    group = Group(1, ("so\n#### 42", "#### 142", "it is 42.5", "7\n\n**42**", "x"), (0.0,) * 5, "42")
    assert unpaid_with_gold([group]) == (5, 2)
    assert unpaid_with_gold([Group(1, ("42", "43"), (1.0, 0.0), "42")]) == (1, 0)
    assert unpaid_with_gold([Group(1, ("42",), (0.0,))]) == (0, 0)


def test_a_real_file_of_verl(shared_data: Path):
    path = shared_data / "harness_logs/verl"
    if not path.exists():
        pytest.skip("the logs of harnesses are not on this machine")
    log = read_trainer_log(path)
    assert log.steps == [1] and sum(len(group.responses) for group in log.groups) == 128
    assert {each.name: each.state for each in diagnose(log)}["judge that cannot read"] == "not seen"


def test_a_run_of_dph_train_is_read(tmp_path):
    from dph.stages.train import train

    run = train(train_config(tmp_path, "grpo", {"steps": 3}))
    log = read_trainer_log(run)
    assert log.steps == [1, 2, 3] and {"reward", "entropy, nats", "constant groups"} <= log.curves.keys()


def test_what_is_refused_in_one_sentence(tmp_path, capsys):
    assert "there is no file or folder" in complaint(capsys, "doctor", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "holds no log of a trainer that is known" in complaint(capsys, "doctor", tmp_path / "empty")
    path = trl(tmp_path / "run", HEALTHY)
    shutil.rmtree(path / "checkpoint-10")
    (path / f"checkpoint-{STEPS}/trainer_state.json").write_text('{"global_step": 30')
    assert "trainer_state.json is no state of a trainer" in complaint(capsys, "doctor", path)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/trainer_state.json").symlink_to(path / f"checkpoint-{STEPS}/trainer_state.json")
    assert "is a link that leads out of" in complaint(capsys, "doctor", tmp_path / "linked")
    (tmp_path / "bad.jsonl").write_text('{"step": 1, "data": {"reward": 1}}\n{"step": "x", "data": {}}\n')
    assert "has a row whose step is 'x'" in complaint(capsys, "doctor", tmp_path / "bad.jsonl")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"global_step": 1, "log_history": ' + "[" * 100_000, "it is nested too deeply"),
        ('{"global_step": 1, "log_history": 5}', "is no state of a trainer"),
        ('{"global_step": Infinity, "log_history": []}', "is no state of a trainer"),
        ('{"global_step": 1, "log_history": [{"step": 1, "reward": ' + "9" * 400 + "}]}", "a number has 400 digits"),
        (None, "it is not a regular file"),
    ],
)
def test_a_damaged_state_is_refused_in_one_sentence(tmp_path, capsys, content, reason):
    file = tmp_path / "trainer_state.json"
    file.write_text(content) if content else os.mkfifo(file)
    said = complaint(capsys, "doctor", tmp_path)
    assert said.startswith(f"{file} is no state of a trainer") and reason in said


def test_a_number_beyond_every_float_is_no_value(tmp_path):
    huge = "9" * 400
    lines = [f'{{"step": {step}, "data": {{"actor/entropy": {huge if step == 2 else 0.5}}}}}' for step in (1, 2, 3)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    assert read_trainer_log(tmp_path / "log.jsonl").curves["entropy, nats"] == {1: 0.5, 3: 0.5}
