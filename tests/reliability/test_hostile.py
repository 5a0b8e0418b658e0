"""Hostile inputs through the command line: no traceback, no hang, one sentence. Each kind that was ever found has a
case; `hostile_seeds` makes others from seeds."""

# ruff: noqa: E501  (one case a line)

import gzip
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
import zipfile
from contextlib import closing
from decimal import Decimal

import hostile_seeds
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import finished
from hostile_seeds import HUGE, LOG, PROBLEMS, QUESTIONS, SAMPLES

from complaints import complaint, run
from dph.cli.main import main
from dph.models.saving import as_os_errors
from dph.runs.coverage import as_few, read_visits
from helpers import base_run, kept_aside, presampled
from report_support import write_eval, write_train


@pytest.fixture(autouse=True)
def ends():
    """A test that waits for a pipe or a bomb fails, after more than the slowest honest command takes."""

    def stop(*_):
        raise TimeoutError("the command did not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path, **columns):
    names, arrays = list(columns), list(columns.values())
    pq.write_table(pa.table(arrays, names=names), path)
    return path


def entries(file, change):
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


# Values --------------------------------------------------------------------------------------------------------------

JUDGED = {"id": pa.array(["a", "b"]), "correct": pa.array([True, False])}
TOO_LATE = pa.array([10**7] * 2, pa.int32()).cast(pa.date32())
NO_TEXT = pa.StringArray.from_buffers(1, *pa.array([b"\xff"], pa.binary()).buffers()[1:]).take(pa.array([0, 0]))
COLUMNS = {
    "a date after the year 9999": (JUDGED | {"id": TOO_LATE}, "cannot be read: the column 'id' (d"),
    "ids that are not UTF-8": (JUDGED | {"id": NO_TEXT}, "the column 'id' (dictionary"),
    "bytes that are not UTF-8": (JUDGED | {"id": pa.array([b"\xff"] * 2)}, "it is not UTF-8 text (byte 0xff)"),
    "durations without an end": (
        JUDGED | {"id": pa.array([2**62] * 2).cast(pa.duration("s"))},
        "cannot be read: the column 'id' (d",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_parquet_files_that_python_lacks(tmp_path, capsys, name):
    columns, expected = COLUMNS[name]
    assert expected in complaint(capsys, "passk", table(tmp_path / "a.parquet", **columns))


def test_columns_that_nothing_reads_may_hold_anything(tmp_path, capsys):
    columns = JUDGED | {"image": pa.array([b"\xff"] * 2), "zzz": TOO_LATE, "other": NO_TEXT}
    assert run(capsys, "passk", table(tmp_path / "a.parquet", **columns))[0] == 0


def test_decimals_and_bytes_are_numbers_and_texts(tmp_path, capsys):
    scores = pa.array([Decimal("1.00"), Decimal("0.00")])
    one = table(tmp_path / "a.parquet", id=pa.array([b"a", b"b"]), correct=scores)
    other = lines(tmp_path / "b.jsonl", [{"id": "a", "correct": 1}, {"id": "b", "correct": 0}])
    from dph.measure.samples import read_samples

    first, second = read_samples(one), read_samples(other)
    assert list(first.problems) == list(second.problems) == ["a", "b"]
    assert first.right.tolist() == second.right.tolist() == [True, False]


def test_a_column_twice(tmp_path, capsys):
    rows = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([True])], names=["id", "id", "correct"])
    pq.write_table(rows, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id,id,correct\na,b,1\n")
    (tmp_path / "a.jsonl").write_text('{"id": "a", "correct": true, "id": "b"}\n' * 2)
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        assert "'id' twice" in complaint(capsys, "passk", tmp_path / name)
    pq.write_table(rows.rename_columns(["prompt", "prompt", "answer"]), tmp_path / "b.parquet")
    assert "the column 'prompt' twice" in complaint(
        capsys, "init", "maths", tmp_path / "b.parquet", "--out", tmp_path / "o"
    )


RAGGED = {
    "a document": '{"id": ["a", "b", "c"], "correct": [true, false]}',
    "rows": '{"id": ["a", "b"], "correct": [true]}\n' * 2,
    "under a key": '{"rows": {"id": ["a", "b", "c"], "correct": [true, false, true], "sample": [0]}}',
}


@pytest.mark.parametrize("name", RAGGED)
def test_columns_of_different_lengths_are_not_one_problem(tmp_path, capsys, name):
    (tmp_path / "a.json").write_text(RAGGED[name])
    assert "no column names the problems" in complaint(capsys, "passk", tmp_path / "a.json")


def test_whole_numbers_of_400_digits(tmp_path, capsys):
    path = lines(tmp_path / "a.jsonl", [{"id": "a", "correct": HUGE}, {"id": "b", "correct": 1}])
    assert "no column holds verdicts" in complaint(capsys, "passk", path)
    path = lines(tmp_path / "b.jsonl", [{"total_samples": HUGE}, *LOG])
    assert run(capsys, "passk", path)[0] == 0
    assert "--filter 999" in complaint(capsys, "passk", path, "--filter", "9" * 5000)[:400]
    assert "a whole number of 64 bits" in complaint(capsys, "train", "--seed", str(HUGE), "--out", tmp_path / "out")
    (tmp_path / "a.toml").write_text(f"seed = {HUGE}\n")
    assert "a whole number of 64 bits" in complaint(
        capsys, "train", "--config", tmp_path / "a.toml", "--out", tmp_path / "out"
    )


def test_ids_that_are_none(tmp_path, capsys):
    path = lines(tmp_path / "a.jsonl", [{"id": None, "correct": True}, {"id": "a", "correct": True}])
    assert "row 1 has no 'id'" in complaint(capsys, "passk", path)
    for id in (None, ["a"]):
        path = lines(tmp_path / "b.jsonl", [*SAMPLES, {"problem_id": id, "sample": 0, "correct": True}])
        for command in ("passk", "certify"):
            assert "has no 'problem_id'" in complaint(capsys, command, path, path)


def test_what_is_nested_without_end(tmp_path, capsys):
    deep = "[" * 100_000 + "]" * 100_000
    text = (
        '{"id": "a", "prompt": "q", "verifier": "exact", "correct": true, "response": "x", "answer": DEEP}\n'.replace(
            "DEEP", deep
        )
    )
    (tmp_path / "a.jsonl").write_text(text * 2)
    words = ["verify", "--task", "records", "--data", tmp_path / "a.jsonl", "--predictions", tmp_path / "a.jsonl"]
    for line in (["passk", tmp_path / "a.jsonl"], words):
        assert "nested too deeply" in complaint(capsys, *line)
    with pytest.raises(SystemExit) as end:
        main(["init", "maths", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "o")])
    told, said = capsys.readouterr()
    assert (end.value.code, told.count("nested too deeply")) == (2, 2) and "dph: faults in rows: 2" in said


@pytest.mark.parametrize("gold", [[["1"], ["2", ["3"]]], [[]], [{"a": 1}], [None]])
@pytest.mark.parametrize("verifier", ["exact", "math"])
def test_golds_of_nested_lists(tmp_path, capsys, gold, verifier):
    data = lines(tmp_path / "a.jsonl", [{"id": "a", "prompt": "q", "answer": gold, "verifier": verifier}])
    words = ["verify", "--task", "records", "--data", data, "--predictions", data]
    assert "the answer must be text, a finite number, or a list of these" in complaint(capsys, *words)


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_a_threshold_that_every_or_no_score_reaches(tmp_path, capsys, value):
    rows = [{"id": "a", "score": score} for score in (0.1, 0.9)]
    words = ["passk", lines(tmp_path / "a.jsonl", rows), f"--threshold={value}"]
    assert "it must be a number, or inf for none" in complaint(capsys, *words)


# Archives and packed files -------------------------------------------------------------------------------------------


def evaluation_log(path, header, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps(header))
        for number, row in enumerate(LOG):
            archive.writestr(f"samples/{number}.json", json.dumps(row))
    return path


@pytest.mark.parametrize("header", [[], 3, None, "x", True])
def test_headers_of_archives_that_are_no_objects(tmp_path, capsys, header):
    assert "header.json that is no object" in complaint(capsys, "passk", evaluation_log(tmp_path / "a.eval", header))


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_damaged_members_of_archives(tmp_path, capsys, method):
    content = evaluation_log(tmp_path / "a.eval", {"status": "success"}, method).read_bytes()
    statuses = set()
    for seed in range(30):
        rng, damaged = random.Random(seed), bytearray(content)
        for _ in range(10):
            damaged[rng.randrange(40, len(content) // 2)] = rng.randrange(256)
        (tmp_path / "b.eval").write_bytes(damaged)
        status, said = run(capsys, "passk", tmp_path / "b.eval")
        statuses.add(status)
        assert status in (0, 2) and "Traceback" not in said
    assert 2 in statuses


@pytest.mark.parametrize("command", ["passk", "init", "verify"])
def test_bombs_of_gzip(tmp_path, capsys, command):
    with gzip.GzipFile(tmp_path / "a.jsonl.gz", "wb") as file:
        for _ in range(100):
            file.write(b" " * (1 << 20))
    words = {
        "passk": ["passk", tmp_path / "a.jsonl.gz"],
        "init": ["init", "maths", tmp_path / "a.jsonl.gz", "--out", tmp_path / "out"],
        "verify": [
            "verify",
            "--task",
            "records",
            "--data",
            lines(tmp_path / "p.jsonl", PROBLEMS),
            "--predictions",
            tmp_path / "a.jsonl.gz",
        ],
    }
    assert "unpacks to more than 300 times its size" in complaint(capsys, *words[command])


@pytest.mark.parametrize("command", ["passk", "passk of a zip", "init"])
def test_a_bomb_of_line_breaks(tmp_path, capsys, command):
    """A step of work for each of them takes half a minute, and a list of them a gigabyte."""
    breaks = b"\n" * (60 << 20)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(breaks))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", breaks)
    words = {
        "passk": ["passk", tmp_path / "a.jsonl.gz"],
        "passk of a zip": ["passk", tmp_path / "a.zip"],
        "init": ["init", "maths", tmp_path / "a.jsonl.gz", "--out", tmp_path / "out"],
    }
    begun = time.process_time()
    assert "lines" in (message := complaint(capsys, *words[command])) and "too much to read" in message
    assert time.process_time() - begun < 5


NOT_CUT = {
    "another encoding": ("a.csv", "id,correct\n\u00e9,1\n".encode("latin-1")),
    "ragged rows": ("a.csv", b"id,correct\na,1,2\nb,1\n"),
    "ragged rows in gzip": ("a.csv.gz", gzip.compress(b"id,correct\na,1,2\nb,1\n")),
    "a field without end": ("a.csv", b'id,correct\n"a,1\nb,1\n'),
}


@pytest.mark.parametrize("name", NOT_CUT)
def test_a_file_that_is_whole_is_not_said_to_be_cut_off(tmp_path, capsys, name):
    file, content = NOT_CUT[name]
    (tmp_path / file).write_bytes(content)
    message = complaint(capsys, "passk", tmp_path / file)
    assert "cannot be read" in message and "cut off" not in message


def test_a_small_table_of_very_many_rows(tmp_path, capsys):
    row = pa.Table.from_pylist([QUESTIONS[0] | {"correct": True}])
    with pq.ParquetWriter(tmp_path / "a.parquet", row.schema) as writer:
        writer.write_table(row.take(pa.array([0] * 1_000_000)))
    for words in (
        ["passk", tmp_path / "a.parquet"],
        ["init", "maths", tmp_path / "a.parquet", "--out", tmp_path / "o"],
    ):
        assert "bytes unpack to 1000000 rows of 6 columns: too much to read" in complaint(capsys, *words)


def test_a_text_that_every_row_has_is_in_memory_once(tmp_path):
    from dph.runs.parquet import read_parquet, rows_of

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", store_schema=False)
    rows = rows_of(read_parquet(tmp_path / "a.parquet"))
    assert len({id(row["text"]) for row in rows}) == 1  # 3 GB otherwise


@pytest.mark.parametrize("command", ["passk", "init"])
def test_tables_of_very_many_columns(tmp_path, capsys, command):
    names = [f"c{i}" for i in range(200_000)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *[",".join(["1"] * len(names))] * 3]) + "\n")
    words = ["passk", tmp_path / "a.csv"]
    words = words if command == "passk" else ["init", "maths", tmp_path / "a.csv", "--out", tmp_path / "out"]
    assert "200000 columns; at most 10000 are read" in complaint(capsys, *words)


# What is no file -----------------------------------------------------------------------------------------------------

NO_FILES = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a file of the kernel": lambda path: path.symlink_to("/proc/self/environ"),
    "a loop of links": lambda path: path.symlink_to(path),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_place_of_one(tmp_path, capsys, kind):
    path, folder = tmp_path / "a.jsonl", tmp_path / "folder"
    folder.mkdir()
    for odd in (path, tmp_path / "a.toml", tmp_path / "a.txt", folder / "a.jsonl"):
        NO_FILES[kind](odd)
    data = ["--task", "records", "--data"]
    problems = lines(tmp_path / "p.jsonl", PROBLEMS)
    for words in (
        ["passk", path],
        ["passk", folder],
        ["certify", path, path],
        ["verify", *data, problems, "--predictions", path],
        ["verify", *data, problems, "--predictions", tmp_path / "a.txt"],
        ["verify", *data, path, "--predictions", problems],
        ["verify", "--gold", tmp_path / "a.txt", "--databases", tmp_path, "--predictions", problems],
        ["init", "maths", path, "--out", tmp_path / "out"],
        ["sft", "--data", path, "--out", tmp_path / "out"],
        ["eval", *data, path, "--model.path", base_run() / "model", "--out", tmp_path / "out"],
        ["train", "--config", tmp_path / "a.toml", "--out", tmp_path / "out"],
    ):
        assert complaint(capsys, *words)


@pytest.mark.parametrize("name", ["scores.json", "problems.parquet", "completions.parquet", "config.toml"])
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_in_a_run(tmp_path, capsys, kind, name):
    path = write_eval(tmp_path / "run", "a", [1, 0], splits=("test",))
    (path / name).unlink(missing_ok=True)
    NO_FILES[kind](path / name)
    status, said = run(capsys, "report", path, "--out", tmp_path / "report")
    leads_out = kind in ("a device", "a file of the kernel")  # by a link: such a run is not read at all
    unread = name == "config.toml" and not leads_out
    assert status == (0 if unread else 2) and "Traceback" not in said


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_what_is_no_file_in_a_model(tmp_path, capsys, kind, name):
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    (model / name).unlink(missing_ok=True)
    NO_FILES[kind](model / name)
    assert "model" in complaint(capsys, "eval", *hostile_seeds.TOY, "--model.path", model, "--out", tmp_path / "out")


ODD_PATHS = ["a\0b", "a\udcffb", "\ud800", "loop/x", "file/x", "x" * 300]


@pytest.mark.parametrize("name", ODD_PATHS)
def test_paths_to_write_that_cannot_be(tmp_path, capsys, name):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    samples, log = lines(tmp_path / "s.jsonl", SAMPLES), lines(tmp_path / "l.jsonl", LOG)
    problems, questions = lines(tmp_path / "p.jsonl", PROBLEMS), lines(tmp_path / "q.jsonl", QUESTIONS)
    model, out = base_run() / "model", f"{tmp_path}/{name}"
    toy = [*hostile_seeds.TOY, *hostile_seeds.SMALL]
    for words in (
        ["sft", "--data", lines(tmp_path / "d.jsonl", [{"prompt": "a", "response": "b"}]), "--out", out],
        ["presample", *toy, "--threshold", "1", "--model.path", model, "--out", out],
        ["train", *toy, "--model.path", model, "--out", out],
        ["eval", *toy, "--model.path", model, "--out", out],
        [
            "verify",
            "--task",
            "records",
            "--data",
            problems,
            "--predictions",
            problems,
            "--column",
            "answer",
            "--out",
            out,
        ],
        ["certify", samples, samples, "--out", out],
        ["interpolate", finished("train"), "--out", out],
        ["audit", model, model, *toy, "--out", out],
        ["init", "maths", questions, "--out", out],
        ["report", write_eval(tmp_path / f"run{len(os.listdir(tmp_path))}", "a", [1], splits=("test",)), "--out", out],
        ["passk", log, "--html", out if name == "x" * 300 else f"{out}/page.html"],
        ["verl", *toy, "--model.path", model, "--out", out],
    ):
        assert complaint(capsys, *words)


def test_a_home_that_nobody_has(tmp_path, capsys):
    message = complaint(capsys, "eval", *hostile_seeds.TOY, "--model.path", "~nobodyatall/x", "--out", tmp_path / "out")
    assert "there is no model directory" in message


def test_codecs_are_there_before_a_file_is_read(tmp_path):
    """A codec that is imported while files are refused would be unknown."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + b'"id",correct\na,1\n')
    program = (
        "import sys; sys.modules['encodings.utf_8_sig'] = None\n"
        "from dph.measure.samples import read_samples; from dph.tasks.tables import read_rows; from pathlib import Path\n"
        "print(*read_samples(sys.argv[1]).problems, read_rows(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a.csv"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "a [{'id': 'a', 'correct': '1'}]\n"


# Runs ----------------------------------------------------------------------------------------------------------------


def scores_with(change):
    return lambda path: entries(path / "scores.json", lambda scores: change(scores["splits"]["test"]))


def counts_with(samples, correct):
    def damage(path):
        rows = pq.read_table(path / "problems.parquet").to_pylist()
        rows[0] |= {"samples": samples, "correct": correct}
        pq.write_table(pa.Table.from_pylist(rows), path / "problems.parquet")

    return damage


VALUE = {"mean": 0.5, "low": 0.4, "high": 0.6}
REPORTED = {
    "half a character in a label": (
        lambda path: entries(path / "scores.json", lambda scores: scores.update(label="\ud800")),
        "half of a surrogate pair",
    ),
    "more correct than samples": (counts_with(4, 9), "9 of 4 samples are correct"),
    "fewer than none": (counts_with(4, -1), "-1 of 4 samples are correct"),
    "samples without end": (counts_with(10**12, 1), "samples are correct"),
    "a metric of no number": (scores_with(lambda s: s["metrics"].update({"pass@x": VALUE})), "no metric pass@x"),
    "a metric of 400 digits": (
        scores_with(lambda s: s["pass_curve"].update({"9" * 400: VALUE})),
        "there is no pass@99",
    ),
    "a number of 400 digits": (scores_with(lambda s: s.update(problems=HUGE)), "a number has 401 digits"),
    "a share that is none": (scores_with(lambda s: s["style_shares"].update(direct=1e300)), "1e+300 is neither"),
    "a share above one": (scores_with(lambda s: s["style_shares"].update(direct=3)), "3 is no share"),
}


@pytest.mark.parametrize("name", REPORTED)
def test_evaluations_in_a_report(tmp_path, capsys, name):
    damage, expected = REPORTED[name]
    path = write_eval(tmp_path / "run", "a", [1, 0, 4], splits=("test",))
    damage(path)
    assert expected in complaint(capsys, "report", path, "--out", tmp_path / "report")


@pytest.mark.parametrize(
    "visit", [["a", -1, 4], ["a", 5, 4], ["a", HUGE, 4], ["a", "1", 4], ["a", 1], [None, 1, 4], "abc"]
)
@pytest.mark.parametrize("name", ["coverage.jsonl", "certificate.jsonl"])
def test_coverage_and_certificates_in_a_report(tmp_path, capsys, name, visit):
    trained = write_train(tmp_path / "train", "grpo", [0.1, 0.2])
    lines(trained / name, [{"step": 0, "problems": [["a", 1, 4]]}, {"step": 1, "problems": [visit]}])
    assert list(read_visits(trained, name)) == [0]  # what a resumed run takes: up to the damage
    evaluated = write_eval(tmp_path / "eval", "a", [1, 0], splits=("test",))
    status, said = run(capsys, "report", evaluated, trained, "--out", tmp_path / "report")
    if visit[1:2] == [HUGE]:  # no line of ours has it, as if it was cut off there
        assert status == 0
    else:
        assert status == 2 and f"{name} is damaged at" in said


def test_the_sum_over_visits_is_the_formula():
    """P(X = 0) + P(X = 1) of the beta-binomial for n = 4 after 1 of 3: (C(6, 4) + 2·C(5, 3)) / C(8, 4) = 35 / 70."""
    assert as_few(1, 4, 1, 3) == 35 / 70


def test_hundreds_of_monitored_sets(tmp_path, capsys):
    trained = write_train(tmp_path / "train", "grpo", [0.1])
    sets = {f"monitor/s{i}/pass@8": 0.5 for i in range(500)}
    lines(trained / "metrics.jsonl", [{"step": step, "eval/pass@8": 0.5} | sets for step in (0, 1)])
    evaluated = write_eval(tmp_path / "eval", "a", [1, 0], splits=("test",))
    assert run(capsys, "report", evaluated, trained, "--out", tmp_path / "report")[0] == 0
    from matplotlib.image import imread

    height, width, *_ = imread(tmp_path / "report" / "figures" / "training.png").shape
    assert width < 20_000 and height < 2000


@pytest.mark.parametrize("counts", [(9, 8), (-1, 8), (1, None), ("1", 8)])
def test_partitions_of_impossible_counts(tmp_path, capsys, counts):
    from dph.rehearsal.presampled import file_hashes

    path = hostile_seeds.copied(presampled(), tmp_path / "set")
    rows = pq.read_table(path / "partition.parquet").to_pylist()
    rows = [row | {"correct": counts[0], "samples": counts[1]} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), path / "partition.parquet")
    entries(path / "manifest.json", lambda manifest: manifest.update(files=file_hashes(path)))
    words = [
        "train",
        "--preset",
        "grpo",
        *hostile_seeds.TOY,
        *hostile_seeds.SMALL,
        "--model.path",
        base_run() / "model",
    ]
    message = complaint(capsys, *words, "--rehearsal.path", path, "--out", tmp_path / "out")
    assert "partition.parquet is damaged in row 1" in message


def test_a_settings_file_of_keys_without_end(tmp_path, capsys):
    (tmp_path / "a.toml").write_text("x" + ".x" * 20_000 + " = 1\n")
    message = complaint(capsys, "train", "--config", tmp_path / "a.toml", "--out", tmp_path / "out")
    assert "a key has more than 100 parts" in message
    (tmp_path / "b.toml").write_text(f'plugins = ["{"a.b." * 200}"]\n')  # dots of a text are none of a key
    assert "a key has" not in complaint(capsys, "train", "--config", tmp_path / "b.toml", "--out", tmp_path / "out")


# Databases and models ------------------------------------------------------------------------------------------------


def test_a_schema_with_a_name_that_is_not_utf_8(tmp_path, capsys):
    database = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE quux (aaaa TEXT)")
        connection.commit()
    database.write_bytes(database.read_bytes().replace(b"quux", b"qu\xffx"))
    questions = lines(tmp_path / "q.jsonl", [{"question": "q?", "query": "SELECT 1"}])
    assert "a name that is not UTF-8" in complaint(capsys, "init", "sql", database, questions, "--out", tmp_path / "o")


BOMBS = {
    "layers": ({"num_hidden_layers": 10**7}, "num_hidden_layers 10000000, and at most 1000 can be loaded"),
    "labels": ({"num_labels": 10**9}, "num_labels 1000000000, and at most 100000"),
    "names of labels": ({"id2label": {str(i): "x" for i in range(200_000)}}, "id2label 200000, and at most"),
    "layers inside": ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers 1000000000, and at most"),
    "400 digits": ({"vocab_size": HUGE}, "a number has 401 digits"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_models_of_more_parts_than_any_has(tmp_path, capsys, name):
    change, expected = BOMBS[name]
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    entries(model / "config.json", lambda config: config.update(change))
    assert expected in complaint(capsys, "eval", *hostile_seeds.TOY, "--model.path", model, "--out", tmp_path / "out")


def test_chat_templates_whose_names_lead_elsewhere(tmp_path, capsys):
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    templates = [{"name": "default", "template": "x"}, {"name": "../../../owned", "template": "y"}]
    entries(model / "tokenizer_config.json", lambda config: config.update(chat_template=templates))
    data = lines(tmp_path / "d.jsonl", [{"prompt": "easy 1", "response": " yes"}] * 4)
    words = ["sft", "--data", data, "--steps", "1", "--model.path", model, "--out", tmp_path / "a" / "b" / "out"]
    assert "a chat template named '../../../owned'" in complaint(capsys, *words)
    assert not list(tmp_path.rglob("owned*"))


@pytest.mark.parametrize("number", [5, 13, 28, 30])  # EIO, EACCES, ENOSPC, EROFS
def test_a_disk_that_fails_while_the_tokenizer_is_written(tmp_path, capsys, monkeypatch, number):
    from transformers import PreTrainedTokenizerBase

    def refused(*_, **__):  # as the library in Rust raises it
        raise Exception(f"{os.strerror(number)} (os error {number})")

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", refused)
    data = lines(tmp_path / "d.jsonl", [{"prompt": "easy 1", "response": " yes"}] * 4)
    words = ["sft", "--data", data, "--steps", "1", "--model.path", base_run() / "model", "--out", tmp_path / "out"]
    message = complaint(capsys, *words)
    assert os.strerror(number) in message and "cannot write" in message
    monkeypatch.undo()
    assert run(capsys, "sft", "--resume", "--out", tmp_path / "out")[0] == 0


def test_other_errors_of_libraries_stay_what_they_are(tmp_path):
    with pytest.raises(KeyError, match="x"), as_os_errors(tmp_path):
        raise KeyError("x")


MISTYPED = {
    "tokenizer_config.json": {
        "model_max_length": "a",  # fails only when a text is encoded
        "padding_side": "middle",
        "tokenizer_class": 7,
        "added_tokens_decoder": ["x"],
        "eos_token": [],
    },
    "config.json": {
        "hidden_act": "a",
        "head_dim": 0,
        "architectures": 5,
        "layer_types": 3,
        "vocab_size": -1,
        "dtype": "a",
    },
    "generation_config.json": {"pad_token_id": "a", "cache_implementation": "a"},
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, values in MISTYPED.items() for key in values])
def test_the_key_of_a_models_file_that_a_library_cannot_use(tmp_path, capsys, name, key):
    """The libraries' errors name few of them ("unhashable type: 'list'"); the sentence names file, key and value."""
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    value = MISTYPED[name][key]
    entries(model / name, lambda config: config.update({key: value}))
    message = complaint(capsys, "eval", *hostile_seeds.TOY, "--model.path", model, "--out", tmp_path / "out")
    assert message.startswith(f"cannot load a model from {model}: {name} has {key} ")
    assert json.dumps(value).strip('"') in message and "correct it, or copy the model again" in message


@pytest.mark.parametrize("value", [2**64, True, 1.5, "a", [[1]]])
def test_end_tokens_that_are_none(tmp_path, capsys, value):
    """A number of more than 64 bits failed only when the first token was sampled."""
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    entries(model / "generation_config.json", lambda config: config.update(eos_token_id=value))
    words = ["eval", *hostile_seeds.TOY, *hostile_seeds.SMALL, "--model.path", model, "--out", tmp_path / "out"]
    assert "eos_token_id" in complaint(capsys, *words)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json", "config.json", "model.safetensors"])
def test_a_loop_of_links_in_a_model(tmp_path, capsys, name):
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(name)
    status, said = run(capsys, "eval", *hostile_seeds.TOY, "--model.path", model, "--out", tmp_path / "out")
    assert "Traceback" not in said and (status == 2 or name == "chat_template.jinja")


def test_weights_of_another_shape(tmp_path, capsys):
    """One sentence instead of the library's table of all weights."""
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    entries(model / "config.json", lambda config: config.update(intermediate_size=40))
    status, said = run(capsys, "eval", *hostile_seeds.TOY, "--model.path", model, "--out", tmp_path / "out")
    assert status == 2 and "LOAD REPORT" not in said
    assert "_proj.weight are not of the shape that its config.json describes: [" in said


def test_a_tokenizer_without_a_token_for_unknown_words(tmp_path, capsys):
    model = hostile_seeds.copied(base_run() / "model", tmp_path / "model")
    entries(model / "tokenizer.json", lambda tokenizer: tokenizer["model"].update(unk_token="<none>"))
    entries(model / "tokenizer_config.json", lambda config: config.pop("unk_token"))
    problems = lines(tmp_path / "p.jsonl", [PROBLEMS[0] | {"prompt": "zebra"}])
    rows = lines(tmp_path / "d.jsonl", [{"prompt": "easy 1", "response": "zebra"}])
    data = ["--task", "records", "--data", problems, "--task.split", "train"]
    for words in (
        ["eval", *data, *hostile_seeds.SMALL, "--out", tmp_path / "a"],
        ["check", *data, *hostile_seeds.SMALL, "--no-step"],
        ["sft", "--data", rows, "--steps", "1", "--out", tmp_path / "b"],
    ):
        message = complaint(capsys, *words, "--model.path", model)
        assert "the tokenizer cannot encode 'zebra': WordLevel error: Missing [UNK] token" in message


def test_a_library_in_rust_that_panics(tmp_path, capsys, monkeypatch):
    from transformers import PreTrainedTokenizerBase

    class PanicException(BaseException):
        """As pyo3 raises it."""

    def panic(*_, **__):
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", panic)
    message = complaint(
        capsys, "eval", *hostile_seeds.TOY, "--model.path", base_run() / "model", "--out", tmp_path / "out"
    )
    assert "cannot load a model" in message and "unwrap()" in message


KERNEL = ["/proc/x", "/proc/self/x", "/proc/self", "/sys/x"]


@pytest.mark.skipif(not os.path.ismount("/proc") or not os.path.ismount("/sys"), reason="no folders of the kernel")
@pytest.mark.parametrize("place", KERNEL)
def test_places_that_the_kernel_makes_up(tmp_path, capsys, place):
    """A new file there is refused as "no such file", although the folder is there."""
    samples, log = lines(tmp_path / "s.jsonl", SAMPLES), lines(tmp_path / "l.jsonl", LOG)
    toy, model = [*hostile_seeds.TOY, *hostile_seeds.SMALL], base_run() / "model"
    for words in (
        ["passk", log, "--html", place],
        ["certify", samples, samples, "--out", place],
        ["init", "maths", lines(tmp_path / "q.jsonl", QUESTIONS), "--out", place],
        ["eval", *toy, "--model.path", model, "--out", place],
        [
            "report",
            write_eval(tmp_path / f"run{len(os.listdir(tmp_path))}", "a", [1], splits=("test",)),
            "--out",
            place,
        ],
        ["verl", *toy, "--model.path", model, "--out", place],
        ["interpolate", finished("train"), "--out", place],
    ):
        status, said = run(capsys, *words)
        assert status == 2 and "Traceback" not in said, said
        assert f"{place} cannot be written: the kernel makes up the files in " in said or "is a folder" in said


def test_a_label_without_letters_in_the_font_warns_of_nothing(tmp_path, capsys):
    """The figures show boxes; the library's warning would name a line of this package."""
    path = write_eval(tmp_path / "run", "\x1b[2J \u9f98", [1, 0, 4], splits=("test",))
    status, said = run(capsys, "report", path, "--out", tmp_path / "report")
    assert status == 0 and "Glyph" not in said and "Warning" not in said


@pytest.mark.parametrize("task", [None, {}, {"split": 3}, []])
def test_a_presample_run_that_does_not_say_what_it_sampled(tmp_path, capsys, task):
    path = hostile_seeds.copied(kept_aside(), tmp_path / "set")
    entries(path / "manifest.json", lambda manifest: manifest.update(task=task))
    message = complaint(capsys, "certify", path, base_run() / "model", "--certify.epsilon", "0.2")
    assert "does not say which problems it sampled" in message


# From seeds ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return hostile_seeds.prepared(tmp_path_factory.mktemp("world") / "w")


SLOW = ("report", "labels", "resume", "presampled", "model")


@pytest.mark.parametrize("kind", hostile_seeds.KINDS)
def test_inputs_of_seeds(tmp_path, world, kind):
    for seed in range(1000, 1002 if kind in SLOW else 1006):
        here = tmp_path / str(seed)
        here.mkdir()
        words = hostile_seeds.attack(seed, world, here, kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fork beside threads; the child ends in the command
            found = hostile_seeds.outcome(words, here)
        assert not hostile_seeds.fault(words, found), (seed, words, found.said[-3000:])


def test_the_search_finds_what_it_is_to_find():
    """A traceback, a wrong status, a hang, a bomb, control characters and a refusal without a sentence are faults."""
    fine = hostile_seeds.Outcome(2, "dph: no\n", 0.1, 0)
    assert not hostile_seeds.fault([], fine)
    for change in (
        {"said": "Traceback (most recent call last):\nKeyError\n", "status": 1},
        {"status": 1},
        {"status": -9},
        {"seconds": 1e3},
        {"memory": 1 << 40},
        {"said": "dph: \x07\n"},
        {"said": "KeyError\n"},
    ):
        assert hostile_seeds.fault([], fine._replace(**change))
