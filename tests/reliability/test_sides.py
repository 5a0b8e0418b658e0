"""`dph passk` and `dph certify` read files through one door: the same options and refusals, on the command line."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import data_file, finished

from complaints import complaint, run
from helpers import base_run

MOST = ("--certify.epsilon", "0.9")


def rows_of(right, **more):
    """Two samples of each of 40 problems, as rows; right: says of a sample whether it is correct."""
    return [
        {"id": f"p{i}", "sample": s, "correct": right(i, s)} | {name: fact(i, s) for name, fact in more.items()}
        for i in range(40)
        for s in range(2)
    ]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def renamed(rows, **names):
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


def items(rows):
    return renamed(rows, id="item")


def grades(rows):
    return [row | {"correct": "A" if row["correct"] else "B"} for row in renamed(rows)]


def scores(rows):
    return [{"id": row["id"], "sample": row["sample"], "score": 0.8 if row["correct"] else 0.3} for row in rows]


def languages(rows):
    wrong = [row | {"lang": "de", "correct": False} for row in rows]
    return [row | {"lang": "en"} for row in rows] + wrong


def ragged(rows):
    return rows[:-1]


def half(problem, sample):
    return sample == 0


def always(problem, sample):
    return True


CASES = {
    "id": (items, ("--id", "item"), 0.5),
    "correct": (grades, ("--correct", "correct=A"), 0.5),
    "threshold": (scores, ("--threshold", "0.5"), 0.5),
    "filter": (languages, ("--filter", "lang=en"), 0.5),
    "partial": (ragged, ("--partial",), 0.5125),  # (39 · 0.5 + 1) / 40
}


def both(capsys, files, words, tmp_path):
    """pass@1 of the second file by passk, and by certify's loss from a base model that is always right."""
    assert run(capsys, "passk", *files, *words, "--html", tmp_path / "page.html")[0] == 0
    capsys.readouterr()
    from dph.cli.main import main

    main(["passk", *map(str, (*files, *words)), "--json"])
    scored = json.loads(capsys.readouterr().out)["scores"]
    status, said = run(capsys, "certify", *files, *words, *MOST, "--out", tmp_path / "out")
    assert status == 0, said
    [row] = json.loads((tmp_path / "out" / "certificates.json").read_text())
    assert scored[0]["metrics"]["pass@1"]["estimate"] == 1
    return scored[1]["metrics"]["pass@1"]["estimate"], 1 - row["loss"]


@pytest.mark.parametrize("option", CASES)
def test_each_option_is_used_by_both(tmp_path, capsys, option):
    shape, words, expected = CASES[option]
    files = [
        jsonl(tmp_path / f"{name}.jsonl", shape(rows_of(fact))) for name, fact in (("before", always), ("after", half))
    ]
    refused = [complaint(capsys, command, *files) for command in ("passk", "certify")]
    assert refused[0] == refused[1]
    assert both(capsys, files, words, tmp_path) == pytest.approx((expected, expected))
    said = run(capsys, "certify", *files, *words, *MOST)[1]
    assert ("right only if no sample is missing because of its answer" in said) == (option == "partial")


def test_the_key_of_the_samples_is_used_by_both(tmp_path, capsys):
    files = []
    for name, fact in (("before", always), ("after", half)):
        files.append(tmp_path / f"{name}.json")
        other = rows_of(lambda i, s: i == 0)
        files[-1].write_text(json.dumps({"first": rows_of(fact), "second": other}))
    refused = [complaint(capsys, command, *files) for command in ("passk", "certify")]
    assert refused[0] == refused[1] and "--records" in refused[0]
    assert both(capsys, files, ("--records", "first"), tmp_path) == pytest.approx((0.5, 0.5))


def test_prompts_that_differ_are_refused_by_both(tmp_path, capsys):
    files = [
        jsonl(tmp_path / f"{name}.jsonl", rows_of(fact, prompt=lambda i, s, name=name: f"{name} {i}"))
        for name, fact in (("before", always), ("after", half))
    ]
    refused = [complaint(capsys, command, *files) for command in ("passk", "certify")]
    assert refused[0] == refused[1] and "different prompts of 40 problems" in refused[0]
    assert both(capsys, files, ("--prompt", "none"), tmp_path) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("command", ["passk", "certify"])
def test_an_option_that_would_do_nothing_is_refused_or_said(tmp_path, capsys, command):
    file = jsonl(tmp_path / "a.jsonl", rows_of(always, status=lambda i, s: "OK" if s else "BAD"))
    for words, why in (
        (("--threshold", "2"), "--threshold 2 has no part in what is right: the verdicts are no scores"),
        (("--correct", "status=OK", "--threshold", "2"), "--correct status=OK says it already"),
        (("--records", "x"), "--records x names nothing"),
        (("--filter",), "argument --filter: expected at least one argument"),
    ):
        assert why in complaint(capsys, command, file, file, *words)
    for words, why in (
        (("--partial",), "--partial changes nothing: no sample, verdict or problem is missing"),
        (("--filter", "correct=true"), "--filter correct=true leaves no row out"),
        (("--prompt", "none"), "--prompt none changes nothing: no column holds prompts"),
    ):
        status, said = run(capsys, command, file, file, *words)
        assert status == 0 and why in said
    number = jsonl(tmp_path / "b.jsonl", [row | {"correct": int(row["correct"])} for row in rows_of(half)])
    parts = [row | {"correct": i % 3, "max_score": 4} for i, row in enumerate(rows_of(half))]
    most = jsonl(tmp_path / "c.jsonl", parts)
    graded = [row | {"correct": 0.2 + 0.1 * (i % 5)} for i, row in enumerate(rows_of(half))]
    scores = jsonl(tmp_path / "d.jsonl", graded)
    for name, threshold, why in (
        (number, "1", "--threshold 1 changes nothing: every score is 0 or 1"),  # never graded
        (number, "0.5", "--threshold 0.5 changes nothing: every score is 0 or 1"),
        (scores, "0.1", "--threshold 0.1: every score reaches it (the scores lie between 0.2 and 0.6)"),
        (scores, "0.7", "--threshold 0.7: no score reaches it (the scores lie between 0.2 and 0.6)"),
    ):
        status, said = run(capsys, command, name, name, "--threshold", threshold)
        assert status == 0 and why in said
    for name, threshold, why in (
        (number, "2", "--threshold 2 is above every score, so that none would be right"),
        (number, "0", "--threshold 0 is not above the least score, so that all would be right"),
        (scores, "1.5", "is above every score"),
        (scores, "-1", "is not above the least score"),
    ):
        assert why in complaint(capsys, command, name, name, "--threshold", threshold)
    allowed = MOST if command == "certify" else ()
    status, said = run(capsys, command, most, most, "--threshold", "4", *allowed)
    assert status == 0 and "no score reaches it" in said  # although one could
    assert "--threshold" not in run(capsys, command, number, scores, "--threshold", "0.4", *allowed)[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--answer", "x"), "a certificate counts no answers"),
        (("--mastered", "0.5"), "name --choose too"),
    ],
)
def test_options_without_a_part_in_a_certificate_are_refused(tmp_path, capsys, words, why):
    file = jsonl(tmp_path / "a.jsonl", rows_of(always))
    assert why in complaint(capsys, "certify", file, file, *words)
    status, said = run(capsys, "certify", file, file, *MOST, "--rollout.n", "3")
    assert status == 0 and "no model is sampled: rollout.n" in said
    model = base_run()
    assert "--threshold has no part in this certificate" in complaint(
        capsys, "certify", model, model, "--threshold", "1", "--out", tmp_path / "out"
    )


def test_unjudged_samples_count_against_the_certificate_whatever_is_partial(tmp_path, capsys):
    right = jsonl(tmp_path / "right.jsonl", rows_of(always))
    unjudged = jsonl(
        tmp_path / "unjudged.jsonl", [row | {"correct": row["sample"] == 0 or None} for row in rows_of(half)]
    )
    for partial in ((), ("--partial",)):
        for files, loss in (((right, unjudged), 0.5), ((unjudged, right), 0.0)):
            status, said = run(capsys, "certify", *files, *MOST, *partial, "--out", tmp_path / "out")
            assert (
                status == 0 and "40 of 80 samples have no verdict" in said and "count against the certificate" in said
            )
            [row] = json.loads((tmp_path / "out" / "certificates.json").read_text())
            assert row["loss"] == loss
    none = jsonl(tmp_path / "none.jsonl", [row | {"correct": None} for row in rows_of(half)])
    for command in ("passk", "certify"):
        assert "no column holds verdicts" in complaint(capsys, command, none, right)


def test_a_run_is_read_by_its_samples_and_an_unjudged_one_counts_against_it(tmp_path, capsys):
    whole, other = finished("eval"), tmp_path / "eval"
    shutil.copytree(whole, other)
    table = pq.read_table(other / "completions.parquet")
    rows = table.to_pylist()
    rows = [row | {"outcome": "infra_error"} if row["sample"] == 0 else row | {"outcome": "correct"} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), other / "completions.parquet")
    samples = len({row["sample"] for row in rows if row["sample"] >= 0})
    for files, loss in (((other, other), 1 / samples),):
        status, said = run(capsys, "certify", *files, "--certify.epsilon", "0.99", "--out", tmp_path / "out")
        assert status == 0 and "have no verdict" in said
        [row] = json.loads((tmp_path / "out" / "certificates.json").read_text())
        assert row["loss"] == pytest.approx(loss)
    assert "no row is left by --filter split=x" in complaint(capsys, "certify", whole, whole, "--filter", "split=x")


@pytest.mark.parametrize("command", ["passk", "certify"])
def test_runs_without_judged_samples_and_what_is_not_there(tmp_path, capsys, command):
    if command == "passk":
        for stage in ("sft", "presample"):
            message = complaint(capsys, command, finished(stage))
            assert (
                f"is a run of `dph {stage}`, which holds no judged samples; sample its model with `dph eval" in message
            )
    for name in (tmp_path / "no", "a.jsonl.gz", "./run", "folder/of/logs"):
        assert "there is no file or folder" in complaint(capsys, command, name, data_file())
    if command == "certify":
        message = complaint(capsys, command, "nothing", "nothing")
        assert "there is no file or folder nothing" in message and "the name of a model" in message


def test_nothing_that_could_be_certified_is_said_as_that(tmp_path, capsys):
    wrong = jsonl(tmp_path / "wrong.jsonl", rows_of(lambda i, s: False))
    message = complaint(capsys, "certify", wrong, wrong, "--choose", "1")
    assert "in none of 40 problems are at least 75 % of 1 sample of the base model correct" in message
    one = jsonl(tmp_path / "one.jsonl", rows_of(always)[:10])  # the advice leads to a result
    assert run(capsys, "certify", one, one, "--choose", "1", "--mastered", "0.1")[0] == 0
    greedy = jsonl(tmp_path / "greedy.jsonl", [row | {"sample": -1} for row in rows_of(always)[::2]])
    for command in ("passk", "certify"):
        assert "greedy responses only" in complaint(capsys, command, greedy, greedy)
        assert "it is not a regular file" in complaint(capsys, command, "/dev/null", greedy)


@pytest.mark.parametrize("command", ["passk", "certify"])
def test_a_file_that_takes_too_much_memory_is_named_without_advice_for_training(tmp_path, capsys, monkeypatch, command):
    def read(*_, **__):
        raise MemoryError

    monkeypatch.setattr("dph.measure.sides.read_samples", read)
    file = jsonl(tmp_path / "a.jsonl", rows_of(always))
    message = complaint(capsys, command, file, file)
    assert message.startswith(f"{file} cannot be read: it takes more memory than this process may have")
    assert "--optim" not in message and "--sampler" not in message


def test_a_gain_is_said_as_a_gain(tmp_path, capsys):
    before, after = jsonl(tmp_path / "a.jsonl", rows_of(half)), jsonl(tmp_path / "b.jsonl", rows_of(always))
    said = run(capsys, "certify", before, after)[1]
    assert "points above the base model's (5 are allowed, 50.0 points above it were measured, 0 problems lost)" in said
    said = run(capsys, "certify", before, before, *MOST)[1]
    assert "points below the base model's (90 are allowed, 0.0 were measured" in said and "-0" not in said


def test_certificates_of_somebody_else_stay(tmp_path, capsys):
    file = jsonl(tmp_path / "a.jsonl", rows_of(always))
    theirs = tmp_path / "out" / "certificates.json"
    theirs.parent.mkdir()
    theirs.write_text('[{"checkpoint": "mine"}]')
    words = ("certify", file, file, *MOST, "--out", theirs.parent)
    assert "certificates.json is there already and would be replaced" in complaint(capsys, *words)
    assert theirs.read_text() == '[{"checkpoint": "mine"}]'
    theirs.unlink()
    assert run(capsys, *words)[0] == run(capsys, *words)[0] == 0  # its own are replaced


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = jsonl(tmp_path / "a.jsonl", rows_of(half))
    for command in ("passk", "certify"):
        assert "is empty; name the file" in complaint(capsys, command, file, "")


def test_what_a_certificate_is_not_about_is_said(tmp_path, capsys):
    base, same = jsonl(tmp_path / "base.jsonl", rows_of(half)), jsonl(tmp_path / "same.jsonl", rows_of(half))
    other = jsonl(tmp_path / "other.jsonl", rows_of(always))
    assert "holds the base model's own samples" in run(capsys, "certify", base, base, *MOST)[1]
    (weights := tmp_path / "weights").mkdir()
    (weights / "model.safetensors").touch()
    said = complaint(capsys, "certify", weights, weights)
    assert "is a model, whose samples need a folder; name one with --out" in said and "own samples" not in said
    assert "byte by byte: perhaps it is a copy" in run(capsys, "certify", base, same, *MOST)[1]
    said = run(capsys, "certify", base, other, *MOST, "--resume")[1]
    assert "own samples" not in said and "copy" not in said
    assert "--resume changes nothing: files are read" in said
    assert "is a file; name a folder" in complaint(capsys, "certify", base, other, *MOST, "--out", same)
    assert "it must be at least 1e-12" in complaint(capsys, "certify", base, other, "--certify.alpha", "1e-300")
    assert "with 99.9999999 % confidence" in run(capsys, "certify", base, other, *MOST, "--certify.alpha", "1e-9")[1]
    few = [jsonl(tmp_path / f"{i}.jsonl", [row for row in rows_of(always) if row["id"] == "p0"]) for i in range(2)]
    assert "on problems like this one is" in run(capsys, "certify", *few, *MOST)[1]
    message = complaint(capsys, "certify", base, other, "--certify.k", "4")
    assert "needs at least 4 samples of each problem" in message and "let fewer" not in message


def test_the_gate_names_the_files_in_which_too_many_were_lost(tmp_path, capsys):
    before, after = (jsonl(tmp_path / f"{name}.jsonl", rows_of(fact)) for name, fact in (("b", always), ("a", half)))
    lost = jsonl(tmp_path / "lost.jsonl", rows_of(lambda problem, sample: problem > 9))
    status, said = run(capsys, "passk", before, after, lost, "--fail-if-lost", "0.05")
    last = said.strip().splitlines()[-1]
    assert status == 3 and f"in {lost} (among" in last and f"{after} (" not in last
