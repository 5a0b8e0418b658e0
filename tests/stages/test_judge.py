"""`dph judge`: reward functions in the forms of other trainers, tried on answers of known truth."""

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from complaints import complaint, run
from dph.cli.main import main
from mathequal.pairs import pairs

EVERY = "97"
HEAD = """import re, time
def boxed(text):
    found = re.findall(r'boxed\\{(.*)\\}', text)
    return found[-1] if found else ''
def same(texts, golds):
    return [float(boxed(text) == gold) for text, gold in zip(texts, golds)]
"""
FORMS = {
    "trl": "def f(completions, solution, **kw):\n    return same([c[0]['content'] for c in completions], solution)",
    "verl": "def f(data_source, solution_str, ground_truth, extra_info=None):\n"
    "    return {'score': 1.0 if boxed(solution_str) == ground_truth else -1.0}",
    "verl, batched": "def f(data_sources, solution_strs, ground_truths, extra_infos):\n"
    "    return same(solution_strs, ground_truths)",
    "openrlhf": "def f(queries, prompts, labels):\n    return same(queries, labels)",
    "ours": "def f(prompt, completion, answer, **kw):\n    return 1.0 if boxed(completion) == answer else 0.1",
    "awaited": "async def f(completion, answer):\n    return float(boxed(completion) == answer)",
}


def judged(capsys, tmp_path: Path, code: str, *words: str) -> dict:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}{code}\n")
    main(["judge", f"{path}:f", "--every", EVERY, "--json", *words])
    return json.loads(capsys.readouterr().out)


def test_the_pairs_come_with_the_package_and_our_judge_decides_them(capsys):
    main(["judge", "--json", "--every", "7"])
    found = json.loads(capsys.readouterr().out)
    total = found["by_type"][-1]
    assert total["name"] == "all" and total["right"] + total["wrong"] == len(pairs()[::7]) > 900
    assert (total["refused"], total["paid"]) == (0, 0) and total["unjudged"] < 0.02 * len(pairs()[::7])
    assert len(found["by_type"]) > 10 and sum(row["right"] for row in found["by_type"][:-1]) == total["right"]


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_of_other_trainers_are_recognised(capsys, tmp_path, form):
    """A function that compares texts pays none but the same text: in every form the counts are those of the pairs."""
    found = judged(capsys, tmp_path, FORMS[form])
    some = [pair for pair in pairs()[::97]]
    total = found["by_type"][-1]
    alone = [pair for pair in some if not pair.whole]
    expected = Counter((pair.right, pair.gold == pair.text) for pair in alone)
    beside = found["by_type"][[row["name"] for row in found["by_type"]].index("words beside a box")]
    assert total["right"] == sum(pair.right for pair in some) and total["unjudged"] == 0
    assert total["refused"] - beside["refused"] == expected[True, False]
    assert total["paid"] - beside["paid"] == expected[False, True] == 0
    assert ("messages" in found["asked"]) is (form == "trl")
    assert f"paid from {0 if form == 'verl' else 0.55 if form == 'ours' else 0.5} on" in found["asked"]


def test_the_way_to_state_an_answer_is_found_or_named(capsys, tmp_path):
    code = "def f(completion, answer):\n    return float(completion.rpartition('####')[2].strip() == answer)"
    found = judged(capsys, tmp_path, code)
    assert "answers as I work it out. #### ANSWER" in found["asked"]
    assert "words beside a box" not in {row["name"] for row in found["by_type"]}
    code = "def f(completion, answer):\n    return float(f'[[{answer}]]' in completion)"
    (tmp_path / "mine.py").write_text(code)
    said = complaint(capsys, "judge", f"{tmp_path / 'mine.py'}:f")
    assert "pays 4 no more than 5 where 4 is right, however it is asked; say with --template" in said
    assert judged(capsys, tmp_path, code, "--template", "{[[{answer}]]}")["by_type"][-1]["unjudged"] == 0


def test_the_first_answer_may_take_as_long_as_loading_a_library(capsys, tmp_path):
    """A function that loads its library when it is first called is judged as one that has it, within a short limit."""
    loads = "ready = []\ndef f(completion, answer):\n    ready or time.sleep(1.5)\n    ready.append(1)\n"
    found = judged(capsys, tmp_path, f"{loads}    return float(boxed(completion) == answer)", "--timeout", "0.5")
    assert found["by_type"][-1]["unjudged"] == 0 and found["seconds"]["longest"] < 0.5


def test_a_function_that_raises_hangs_or_ends_its_process_is_reported_and_not_fatal(capsys, tmp_path):
    code = """def f(completion, answer):
    said = boxed(completion)
    if 'text' in answer: raise ValueError(f'cannot read {answer!r}')
    if 'frac' in answer and said not in (r'\\frac{1}{2}', r'\\frac{1}{3}'): time.sleep(30)
    if answer.startswith('('): import os; os._exit(3)
    if 'x' in answer and 'boxed{x' not in completion: return None
    return float(said == answer)"""
    found = judged(capsys, tmp_path, code, "--timeout", "0.2")
    total, misjudged = found["by_type"][-1], found["misjudged"]
    failures = Counter(row["failure"].partition(":")[0] for row in misjudged if row["outcome"] == "unjudged")
    assert failures["ValueError in line 9"] > 3 and failures["no answer within 0.2 s"] >= 1
    assert failures[""] > 3 and failures["ended its process with status 3"] >= 1
    assert total["unjudged"] == sum(failures.values()) < total["right"] + total["wrong"]
    main(["judge", f"{tmp_path / 'mine.py'}:f", "--every", EVERY, "--timeout", "0.2"])
    said = capsys.readouterr().out
    assert "not judged, " in said and "ValueError in line 9: cannot read" in said and "time of one answer: " in said


def test_queries_are_judged_with_the_database_that_a_function_asks_for(capsys, tmp_path):
    code = """import sqlite3
def rows(db, query):
    with sqlite3.connect(f'file:{db}?mode=ro', uri=True) as connection:
        return connection.execute(query).fetchall()
def f(completions, answer, db, **kw):
    text = completions[0].replace('```sql', '').replace('```', '').strip()
    try:
        return [float(set(rows(db[0], text)) == set(rows(db[0], answer[0])))]
    except sqlite3.Error:
        return [0.0]"""
    path = tmp_path / "mine.py"
    path.write_text(code)
    main(["judge", f"{path}:f", "--sql", "--json", "--timeout", "1"])
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["by_type"]}
    assert (
        found["all"]["refused"] == 0 and found["repeated rows"]["paid"] == 4 and found["order and limits"]["paid"] == 3
    )
    main(["judge", "--sql", "--json"])
    ours = {row["name"]: row for row in json.loads(capsys.readouterr().out)["by_type"]}
    assert ours["all"]["refused"] == ours["all"]["unjudged"] == 0
    assert ours["all"]["paid"] == ours["right by accident"]["paid"] == ours["right by accident"]["wrong"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.py:f",), "nothing.py does not exist; correct --function"),
        (("mine",), "is given by --function FILE.py:NAME"),
        (("--math", "--sql"), "are two trials"),
        (("--template", "{answer}"), "say how a function is called; name it"),
        (("mine.py:f", "--template", "none"), "needs {answer} once"),
        (("mine.py:g",), "no function of"),
        (("mine.py:h",), "none of its parameters (a, b) is known to take the response"),
        (("broken.py:f",), "cannot import the reward function's file"),
        (("constant.py:f",), "pays 4 no more than 5"),
        (("raising.py:f",), "its first failure: RuntimeError in line 2: no model is served"),
    ],
)
def test_what_is_refused_in_one_sentence(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def f(completion, answer): return 1.0\ndef h(a, b): return 1.0\n")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "constant.py").write_text("def f(completions, **kw): return [1.0]\n")
    (tmp_path / "raising.py").write_text("def f(completion, answer):\n    raise RuntimeError('no model is served')\n")
    assert said in complaint(capsys, "judge", *words)


def test_a_function_that_a_file_names_is_not_run(capsys, tmp_path):
    mark = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef f(completion, answer): return 1.0\n")
    (tmp_path / "a.toml").write_text(f'function = "{tmp_path / "mine.py"}:f"\n')
    said = complaint(capsys, "judge", "--config", tmp_path / "a.toml")
    assert "names code to run (function = " in said and not mark.exists()
    run(capsys, "judge", f"{tmp_path / 'mine.py'}:f", "--every", "5000")
    assert mark.exists()


def test_the_pages_commands_run(capsys, tmp_path, monkeypatch):
    """The commands of docs/guides/verdicts.md, on a few answers; those of libraries that are not installed say so."""
    root = Path(__file__).parents[2]
    text = (root / "docs/guides/verdicts.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("dph judge ")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(root / "examples")
    (tmp_path / "reward.py").write_text(
        "def score(completions, answer, **columns):\n    return [float(a in c) for c, a in zip(completions, answer)]\n"
    )
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        status, said = run(capsys, *words, "--every", "400" if "--sql" not in words else "1", "--timeout", "20")
        assert status == 0 or "ModuleNotFoundError" in said, said
