"""What changed between judged samples: values by enumeration, and published logs."""

import json
import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dph.errors import DataError, SettingsError
from dph.measure import Reading, Samples, compare, read_samples, verdict


def samples(rows: dict[str, str], name: str = "x", answers: bool = False, prompts: Any = None) -> Samples:
    """Problems with their samples as letters; a capital letter is a right answer, a dot no answer."""
    problem = np.array([i for i, text in enumerate(rows.values()) for _ in text], np.int32)
    letters = [letter for text in rows.values() for letter in text]
    answer = np.array([-1 if letter == "." else ord(letter.lower()) for letter in letters], np.int32)
    right = np.array([letter.isupper() for letter in letters])
    return Samples(name, list(rows), problem, right, answer if answers else None, prompts, "")


BEFORE = {"p": "Abbc", "q": "aabb", "r": "AAAA", "s": "...."}
AFTER = {"p": "bbbb", "q": "Aabb", "r": "AAAb", "s": "...a"}


def test_every_metric_is_what_enumeration_gives() -> None:
    found = compare(samples(BEFORE, answers=True), samples(AFTER, answers=True), ks=[1, 2, 3, 4])
    for scores, rows in zip(found.scores, (BEFORE, AFTER), strict=True):
        for k in (1, 2, 3, 4):
            subsets = {id: list(combinations(text, k)) for id, text in rows.items()}
            solved = [np.mean([any(x.isupper() for x in s) for s in sets]) for sets in subsets.values()]
            votes = [np.mean([_vote(s) for s in sets]) for sets in subsets.values()]
            kinds = [np.mean([len({x.lower() for x in s} - {"."}) for s in sets]) for sets in subsets.values()]
            assert scores.metrics[f"pass@{k}"].estimate == pytest.approx(np.mean(solved))
            if not any("Aa" in "".join(sorted(set(text))) or {"A", "a"} <= set(text) for text in rows.values()):
                assert scores.metrics[f"maj@{k}"].estimate == pytest.approx(np.mean(votes))
            if k in scores.distinct:
                assert scores.distinct[k] == pytest.approx(np.mean(kinds))
        for share in (0.25, 0.5, 0.75, 1.0):
            right = [np.mean([x.isupper() for x in text]) >= share for text in rows.values()]
            assert scores.metrics[f"cover@{share:g}"].estimate == np.mean(right)
    change = found.changes[0]
    assert [problem.id for problem in change.lost] == ["p"] and change.lost[0].before == (1, 4)
    assert [problem.id for problem in change.gained] == ["q"] and change.lost_share == 0.0 and change.sign_p == 1.0
    for b, value in change.mix.items():
        mixed = []
        for id in BEFORE:
            pairs = [(s, t) for s in combinations(BEFORE[id], b) for t in combinations(AFTER[id], 4 - b)]
            mixed.append(np.mean([any(x.isupper() for x in s + t) for s, t in pairs]))
        assert value == pytest.approx(np.mean(mixed))


def _vote(subset: tuple[str, ...]) -> float:
    answers = [x for x in subset if x != "."]
    if not answers:
        return 0.0
    most = max(answers.count(x) for x in answers)
    best = {x for x in answers if answers.count(x) == most}
    return float(np.mean([x.isupper() for x in best]))


def test_the_sign_test_is_exact() -> None:
    before = samples({str(i): "A" if i < 9 else "b" for i in range(10)})
    after = samples({str(i): "b" if i < 9 else "A" for i in range(10)})
    assert compare(before, after).changes[0].sign_p == pytest.approx(2 * 11 / 1024)


@pytest.mark.parametrize("paired", [True, False])
def test_other_problems_and_other_prompts_are_refused(paired: bool) -> None:
    before = samples(BEFORE, prompts=["1", "2", "3", "4"])
    other = samples(
        BEFORE if paired else {"p": "AAAA", "t": "AAAA"}, prompts=["1", "2", "3", "5"][: 4 if paired else 2]
    )
    with pytest.raises(DataError, match="'s'" if paired else "--partial"):
        compare(before, other)
    found = compare(before, other, partial=True, same_prompts=False).changes[0]
    assert found.problems == (4 if paired else 1)
    with pytest.raises(DataError, match="no problem in common"):
        compare(before, samples({"z": "AAAA"}), partial=True)


def test_more_samples_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(SettingsError, match="pass@5 needs"):
        compare(samples(BEFORE), ks=[5])


def test_the_verdict_is_one_sentence() -> None:
    before = samples({str(i): "AAAA" for i in range(40)})
    after = samples({str(i): "AAAA" if i < 20 else "aaaa" for i in range(40)})
    said = verdict(compare(before, after).changes[0])
    assert said.startswith("pass@4 fell by 50.0 points (") and "20 problems lost (20 of them" in said
    assert "did not change measurably" in verdict(compare(before, before).changes[0])


def reading(key: str) -> tuple[str, Reading]:
    """The file and the options of an entry of expected.json."""
    path, _, chosen = key.partition(" [")
    row = (chosen.split()[1],) if chosen.startswith("row") else ()
    column = f"{chosen[:-1]}.is_correct" if path.startswith("grade_school_math") else ""
    threshold = 1.0 if path.startswith("reasoning_gym") else math.inf
    # Each of these ids has three prompts; the expected values take the id as it is.
    return path, Reading(id="id" if "simpleqa" in path else "", correct=column, filter=row, threshold=threshold)


def test_logs_of_twelve_harnesses_have_their_values(shared_data: Path) -> None:
    folder = shared_data / "harness_logs"
    expected = json.loads((folder / "expected.json").read_text())
    read: dict[str, Samples] = {}
    for key, values in expected["files"].items():
        path, how = reading(key)
        if "naive" in key or "failed_run" in key:
            with pytest.raises(DataError, match=r"--filter 1|the run failed"):
                read_samples(folder / path, how)
            continue
        read[key] = read_samples(folder / path, how)
        named = {name for name in values if name.startswith(("pass@", "maj@"))}
        found = compare(read[key], ks=sorted({int(name.partition("@")[2]) for name in named})).scores[0]
        assert (found.problems, len(read[key].problem)) == (values["problems"], values["samples"]), key
        assert found.samples == (values["n_min"], values["n_max"]), key
        for name in named:
            assert found.metrics[name].estimate == pytest.approx(values[name], abs=1e-6), (key, name)
    assert len(read) == 25
    for key, values in expected["pairs"].items():
        change = compare(*(read[side] for side in key.split(" -> "))).changes[0]
        assert change.problems == values["common_problems"], key
        assert change.differences["pass@1"].estimate == pytest.approx(values["difference_pass@1"], abs=1e-6), key
        assert change.errors["pass@1"] == pytest.approx(values["paired_se"], abs=1e-6), key
        assert len(change.lost) == values["solved_before_never_after"], key
        assert len(change.gained) == values["never_before_solved_after"], key
        every = sum(problem.before[0] == problem.before[1] for problem in change.lost)
        assert every == values["all_right_before_none_after"], key


def test_ids_with_several_prompts_are_refused_by_default(shared_data: Path) -> None:
    file = shared_data / "harness_logs/verifiers/simpleqa_verified.gpt-5/results.jsonl"
    with pytest.raises(DataError, match="3 different prompts"):
        read_samples(file)
    by_prompt = compare(read_samples(file, Reading(id="prompt"))).scores[0].metrics
    assert by_prompt["pass@1"].estimate == pytest.approx(0.266667, abs=1e-6)
    assert by_prompt["pass@3"].estimate == pytest.approx(0.35)  # and not .55


SCRIPT = """
import sys
from dph.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print("status", stop.code)
print("loaded:", *sorted(sys.modules))
"""


def run(*words: Any) -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "passk", *map(str, words)], capture_output=True, text=True, timeout=100
    )
    said, _, loaded = done.stdout.rpartition("loaded: ")
    return said + done.stderr, set(loaded.split())


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    files = []
    for name, solved in (("before", 10), ("after", 8)):
        rows = [{"problem_id": f"<b>{i}", "correct": i < solved, "answer": j} for i in range(12) for j in range(2)]
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


def test_the_command_compares_and_loads_nothing_that_is_slow_to_load(pair: list[Path]) -> None:
    said, loaded = run(*pair)
    assert "2 problems lost" in said and "read" not in said.splitlines()[0] and "status" not in said
    heavy = {"torch", "transformers", "pyarrow", "pandas", "sqlglot", "rich", "jinja2", "matplotlib", "math_verify"}
    assert "numpy" in loaded and not heavy & loaded
    said, loaded = run("--help")
    assert "--fail-if-lost" in said and "Presets" not in said and not {"numpy", *heavy} & loaded


def test_the_exit_status_tells_a_loss(pair: list[Path]) -> None:
    # Two of ten are lost. By chance each would be with 1/6: the bound is 2/6 + 1.645 √(2 · 5/36) = 1.2 problems.
    assert "status 3" in run(*pair, "--fail-if-lost", "0.07")[0]
    assert "status 3" not in run(*pair, "--fail-if-lost", "0.09")[0]
    assert "status 2" in run(pair[0], "nowhere")[0] and "status 2" in run(*pair, "--k", "3")[0]


def test_what_cannot_be_meant_is_said_before_anything_is_judged(pair: list[Path], tmp_path: Path) -> None:
    said, _ = run(pair[0], "--fail-if-lost", "0.05")
    assert "status 2" in said and "--fail-if-lost needs two files" in said and "pass@" not in said
    said, _ = run(*pair, "--html", tmp_path)
    assert "status 2" in said and "is a folder" in said and "pass@" not in said


def test_json_and_the_page_hold_everything(pair: list[Path], tmp_path: Path) -> None:
    said, _ = run(*pair, "--json", "--html", tmp_path / "page.html")
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert found["scores"][0]["metrics"]["pass@2"]["estimate"] == pytest.approx(10 / 12)
    assert [problem["id"] for problem in found["changes"][0]["lost"]] == ["<b>8", "<b>9"]
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;8" in page and "<b>8" not in page and "<script" not in page and "<svg" in page
    assert '<td data-title="after − before">' in page and "@media (max-width" in page  # every cell has its title
