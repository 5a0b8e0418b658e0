"""Judged samples in the shapes that harnesses write: what is read as what, and what is refused."""

# ruff: noqa: E501  (one shape a line)

import csv
import gzip
import io
import json
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dph.errors import DataError
from dph.measure.samples import Reading, Samples, read_samples

TRUTH = {"a": (2, 3), "b": (0, 3), "c": (3, 3)}
"""Correct and all samples of each problem."""
ROWS = [(id, i, i < c) for id, (c, n) in TRUTH.items() for i in range(n)]


def counts(samples: Samples) -> dict[str, tuple[int, int]]:
    return {id: (int(c), int(n)) for id, c, n in zip(samples.problems, samples.c, samples.n, strict=True)}


def lines(rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def plain(**extra: Any) -> list[dict[str, Any]]:
    return [{"problem_id": id, "sample": i, "correct": right} | extra for id, i, right in ROWS]


def of_problem(value: Any) -> dict[str, Any]:
    return {id: [value(i, i < c) for i in range(n)] for id, (c, n) in TRUTH.items()}


def member(rows: dict[str, Any], **options: Any) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in rows.items():
            archive.writestr(name, json.dumps(value))
    return packed.getvalue()


def table(rows: list[dict[str, Any]], compression: str = "zstd") -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, compression=compression)
    return buffer.getvalue()


def text_of_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def inspect_sample(id: str, epoch: int, right: bool) -> dict[str, Any]:
    scores = {"match": {"value": "C" if right else "I", "answer": f"{right}"}}
    return {
        "id": id,
        "epoch": epoch,
        "input": f"{id}?",
        "scores": scores,
        "output": {"completion": "x"},
        "events": [{}],
    }


def inspect(status: str = "success", total: int = 9) -> dict[str, Any]:
    samples = {f"samples/{id}_epoch_{i}.json": inspect_sample(id, i, right) for id, i, right in ROWS}
    summaries = [inspect_sample(id, i, right) for id, i, right in ROWS]
    header = {"status": status, "eval": {"dataset": {"samples": 100}}, "results": {"total_samples": total}}
    return samples | {"summaries.json": summaries, "header.json": header}


SHAPES: dict[str, tuple[str, bytes, Reading]] = {
    "rows": ("r.jsonl", lines(plain()), Reading()),
    "rows of another ending": ("r.json", lines(plain()), Reading()),
    "a list": ("r.json", json.dumps(plain(), indent=1).encode(), Reading()),
    "gzip": ("r.jsonl.gz", gzip.compress(lines(plain())), Reading()),
    "zstd": ("r.jsonl.zst", pa.compress(lines(plain()), "zstd", asbytes=True), Reading()),
    "parquet": ("r.parquet", table(plain()), Reading()),
    "parquet, nested": ("r.parquet", table([{"doc": {"id": id}, "metric": {"odd_name": float(r)}} for id, _, r in ROWS]), Reading()),
    "csv": ("r.csv", text_of_csv(plain(response="one\ntwo, three")), Reading()),
    "tsv": ("r.tsv", text_of_csv(plain(), "\t"), Reading()),
    "columns": ("r.json", json.dumps({k: [row[k] for row in plain()] for k in plain()[0]}).encode(), Reading()),
    "text verdicts": ("r.json", json.dumps([{"task_id": id, "attempt": i, "result": "passed" if r else "failed: x"} for id, i, r in ROWS]).encode(), Reading()),
    "a named value": ("r.jsonl", lines({"name": id, "status": "OK1" if r else "Crash"} for id, _, r in ROWS), Reading(correct="status=OK1")),
    "lists by id": ("r.json", json.dumps({"raw_generations": of_problem(lambda i, r: "x"), "raw_scored_generations": of_problem(lambda i, r: r), "pass_at_1": 55.0}).encode(), Reading()),
    "records by id": ("r.json", json.dumps({"date": "x", "eval": of_problem(lambda i, r: {"task_id": "?", "solution": "x", "base_status": "pass" if r else "fail"} | {})}).encode(), Reading(id="id")),
    "lists in rows": ("r.jsonl", lines({"question_id": id, "code_list": ["x"] * 3, "graded_list": v, "pass@1": 0.5} for id, v in of_problem(lambda i, r: r).items()), Reading()),
    "nested samples": ("r.json", json.dumps({"name": "x", "total_examples": 3, "results": [{"question": id, "best_score": 1.0, "completions": v} for id, v in of_problem(lambda i, r: {"score": float(r), "model_answer": str(i)}).items()]}).encode(), Reading()),
    "one file a problem": ("f", b"", Reading()),
    "one file a sample": ("g", b"", Reading()),
    "minus one": ("r.jsonl", lines({"input": id, "output": "x", "score": 1.0 if r else -1.0, "acc": r, "step": 5} for id, _, r in ROWS), Reading()),
    "numbers of correct samples": ("r.jsonl", lines({"id": id, "correct": c, "samples": n} for id, (c, n) in TRUTH.items()), Reading()),
    "a filter": ("r.jsonl", lines({"doc_id": id, "filter": f, "exact_match": float(r and f == "flexible")} for f, (id, _, r) in product(("strict", "flexible"), ROWS)), Reading(filter=("flexible",))),
    "a threshold": ("r.jsonl", lines({"id": id, "reward": 0.9 if r else 0.05} for id, _, r in ROWS), Reading(threshold=0.5)),
    "a header row": ("r.jsonl", lines([{"accuracy": 0.5, "total_count": 9}, *({"id": id, "valid": r} for id, _, r in ROWS)]), Reading()),
    "greedy responses": ("r.jsonl", lines([*plain(), *({"problem_id": id, "sample": -1, "correct": True} for id in TRUTH)]), Reading()),
    "a deep verdict": ("r.jsonl", lines({"index": id, "sample_score": {"score": {"value": {"acc": float(r)}}}} for id, _, r in ROWS), Reading()),
    "an archive": ("r.eval", member(inspect()), Reading()),
    "a document with samples": ("r.json", json.dumps({"status": "success", "results": {"scores": [{"name": "m", "metrics": {"accuracy": {"value": 0.5}}}]}, "samples": [inspect_sample(*row) for row in ROWS]}).encode(), Reading()),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read(tmp_path: Path, shape: str) -> None:
    name, content, reading = SHAPES[shape]
    path = tmp_path / name
    if content:
        path.write_bytes(content)
    else:
        path.mkdir()
    if name == "f":
        for id, results in of_problem(lambda i, r: {"program": "x", "status": "OK" if r else "Exception"}).items():
            (path / f"{id}.results.json").write_text(json.dumps({"name": id, "prompt": f"{id}?", "results": results}))
    if name == "g":
        for i in range(3):
            rows = [{"predicted_answer": "1", "symbolic_correct": i < c} for c, _ in TRUTH.values()]
            (path / f"output-rs{i}.jsonl").write_bytes(lines(rows))
        (path / "metrics.json").write_text(json.dumps({"gpqa": {"pass@1": {"symbolic_correct": 50.0}}}))
    found = read_samples(path, reading)
    expected = TRUTH if name != "g" else dict(zip("123", TRUTH.values(), strict=True))
    assert counts(found) == expected
    assert found.read_as.startswith(str(path))


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "cut rows": ("r.jsonl", lines(plain())[:-9], "row 9 is cut off"),
    "a cut list": ("r.json", json.dumps(plain()).encode()[:-9], "is cut off or damaged"),
    "cut gzip": ("r.jsonl.gz", gzip.compress(lines(plain()))[:-9], "may be cut off"),
    "cut parquet": ("r.parquet", table(plain())[:-9], "may be cut off"),
    "a cut archive": ("r.eval", member(inspect())[:-30], "may be cut off"),
    "an empty file": ("r.jsonl", b"", "is empty"),
    "a pickle": ("r.json", b"\x80\x04}.", "none of JSON, CSV"),
    "deep rows": ("r.jsonl", b'{"id": 1, "correct": true}\n{"a": ' + b"[" * 200_000 + b"\n", "nested too deeply"),
    "a deep document": ("r.json", b"[" * 200_000, "nested too deeply"),
    "a deep table": ("r.json", b'{"a":' * 200_000, "nested too deeply"),
    "a crashed run": ("r.eval", member({"samples/a.json": inspect_sample("a", 1, True)}), "the run did not finish"),
    "a cancelled run": ("r.eval", member(inspect("cancelled")), "the run did not finish"),
    "a run without a score": ("r.eval", member({"header.json": {"status": "error"}, "samples/a.json": {"id": "a", "epoch": 1, "input": "a?", "error": {}}}), "the run did not finish"),
    "fewer than promised": ("r.eval", member(inspect(total=12)), "promises 12"),
    "empty responses": ("r.jsonl", lines(plain(completion=[])), "every response of 9 samples is empty"),
    "no verdict": ("r.jsonl", lines({"id": 1, "text": "x"} for _ in range(3)), "no column holds verdicts"),
    "no id": ("r.jsonl", lines({"correct": True} for _ in range(3)), "no column names the problems"),
    "a missing id": ("r.jsonl", lines([*plain(), {"sample": 4, "correct": True}]), "row 10 has no 'problem_id'"),
    "unequal n": ("r.jsonl", lines(plain()[:-1]), "1 of 3 problems have fewer than 3"),
    "a missing verdict": ("r.jsonl", lines([*plain()[:-1], plain()[-1] | {"correct": None}]), "1 of 9 samples have no"),
    "failed judging": ("r.jsonl", lines([*plain(outcome="wrong")[:-1], plain(outcome="infra_error")[-1]]), "1 of 9 samples"),
    "duplicates": ("r.jsonl", lines([*plain(), *plain()]), "has 2 rows with sample 0"),
    "rival verdicts": ("r.jsonl", lines(row | {"acc_norm": True} for row in plain()), "the verdicts differ between"),
    "models in columns": ("r.jsonl", lines({"question": id, "m1": {"is_correct": r}, "m2": {"is_correct": True}} for id, _, r in ROWS), "m2.is_correct (1.000"),
    "graded scores": ("r.jsonl", lines({"id": id, "reward": 1.0 if r else 0.05} for id, _, r in ROWS), "with --threshold"),
    "partial credit": ("r.jsonl", lines({"id": i, "scores": {"m": {"value": v}}} for i, v in enumerate("CIP")), "is graded"),
    "unknown words": ("r.jsonl", lines({"id": id, "status": "meh"} for id, _, _ in ROWS), "--correct status=VALUE"),
    "filters": ("r.jsonl", lines({"doc_id": id, "filter": f, "exact_match": 1.0} for f in "xy" for id in "ab"), "--filter filter=y"),
    "filters without a name": ("r.jsonl", lines({"doc_id": id, "filtered_resps": ["1"], "exact_match": 1.0} for _ in "xy" for id in "ab"), "--filter 1"),
    "two models": ("r.jsonl", lines({"id": id, "model": m, "correct": True} for m in "xy" for id in "ab"), "2 values of 'model'"),
    "two steps": ("r.jsonl", lines({"input": id, "step": s, "score": 1.0} for s in (1, 2) for id in "ab"), "2 values of 'step'"),
    "prompts under one id": ("r.jsonl", lines({"id": i % 3, "prompt": f"p{i // 3}", "reward": 1.0} for i in range(9)), "3 different prompts"),
    "ids of samples": ("r.jsonl", lines({"id": i, "prompt": f"p{i // 3}", "reward": 1.0} for i in range(9)), "is there 3 times"),
    "two sets of samples": ("r.json", json.dumps({"x": plain(), "y": plain()}).encode(), "--records KEY"),
    "lists of different lengths": ("r.jsonl", lines([{"id": 1, "score": [1, 0], "correct": [True]}] * 2), "different lengths"),
    "only a summary": ("r.json", json.dumps({"results": {"t": {"exact_match,none": 0.8}}, "higher_is_better": {"t": {"exact_match": True}}}).encode(), "holds no samples"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_unclear_is_one_sentence(tmp_path: Path, fault: str) -> None:
    name, content, said = REFUSED[fault]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read_samples(tmp_path / name)
    assert said in str(error.value) and str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 900


def test_partial_counts_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(lines([*plain()[:-1], plain()[-1] | {"correct": None}]))
    found = read_samples(tmp_path / "r.jsonl", Reading(partial=True))
    assert counts(found) == TRUTH | {"c": (2, 2)} and len(found.notes) == 2


def test_files_of_several_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in ("qwen-7b", "qwen-14b"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(plain()))
    with pytest.raises(DataError, match="name one of them"):
        read_samples(tmp_path)


def test_shards_of_one_run_are_joined_and_tasks_are_kept_apart(tmp_path: Path) -> None:
    for id in TRUTH:
        (tmp_path / f"{id}.jsonl").write_bytes(lines(row for row in plain() if row["problem_id"] == id))
    assert counts(read_samples(tmp_path)) == TRUTH
    rows = [{"task": task, "doc_id": 0, "acc": float(task == "x")} for task in "xy" for _ in range(2)]
    (tmp_path / "t").write_bytes(lines(rows))
    assert counts(read_samples(tmp_path / "t")) == {"x/0": (2, 2), "y/0": (0, 2)}


def test_the_metadata_beside_a_file_promise_its_rows(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(lines(plain()))
    (tmp_path / "metadata.json").write_text(
        json.dumps({"num_examples": 3, "rollouts_per_example": 3, "avg_reward": 0.5})
    )
    assert counts(read_samples(tmp_path)) == counts(read_samples(tmp_path / "results.jsonl")) == TRUTH
    (tmp_path / "metadata.json").write_text(json.dumps({"num_examples": 3, "rollouts_per_example": 4}))
    for path in (tmp_path, tmp_path / "results.jsonl"):
        with pytest.raises(DataError, match="promises 12"):
            read_samples(path)


def test_a_gold_answer_is_no_answer_of_a_sample(tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_bytes(lines(row | {"answer": row["problem_id"]} for row in plain()))
    (tmp_path / "own.jsonl").write_bytes(lines(row | {"answer": row["sample"], "target": 1} for row in plain()))
    assert read_samples(tmp_path / "gold.jsonl").answer is None
    assert read_samples(tmp_path / "own.jsonl").answer is not None
    assert read_samples(tmp_path / "gold.jsonl", Reading(answer="answer")).answer is not None


@pytest.mark.parametrize("kind", ["gzip", "zip", "zstd"])
def test_a_bomb_is_one_sentence(tmp_path: Path, kind: str) -> None:
    zeros = b'{"id": 1, "correct": true}\n' * 2 + (b" " * (1 << 20) + b"\n") * 70
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "b", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("samples/a.json", zeros)
            archive.writestr("header.json", "{}")
    else:
        packed = gzip.compress(zeros) if kind == "gzip" else pa.compress(zeros, "zstd", asbytes=True)
        (tmp_path / "b").write_bytes(packed)
    with pytest.raises(DataError, match="too much to read"):
        read_samples(tmp_path / "b")


def test_an_archive_packed_by_zstd_is_read(tmp_path: Path) -> None:
    """Python's zipfile writes no zstd before 3.14: the method of stored members is patched."""
    samples = [json.dumps(inspect_sample(*row)).encode() for row in ROWS]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for i, sample in enumerate(samples):
            archive.writestr(f"samples/{i}.json", pa.compress(sample, "zstd", asbytes=True))
        archive.writestr("header.json", json.dumps({"status": "success"}))
        for item, sample in zip(archive.infolist(), samples, strict=False):
            item.compress_type, item.file_size = 93, len(sample)
    (tmp_path / "r.eval").write_bytes(packed.getvalue())
    assert counts(read_samples(tmp_path / "r.eval")) == TRUTH


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.jsonl").write_bytes(lines(plain()))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(DataError, match="0 files"):
        read_samples(folder)


def test_samples_keep_the_numbers_that_the_file_gives_them(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(lines(reversed(plain())))
    found = read_samples(tmp_path / "r.jsonl")
    assert found.number is not None
    assert sorted(zip(found.problem.tolist(), found.number.tolist(), found.right.tolist(), strict=True)) == sorted(
        ([*found.problems].index(id), i, right) for id, i, right in ROWS
    )
    folder = tmp_path / "runs"
    folder.mkdir()
    for i in range(3):
        (folder / f"rs{i}.jsonl").write_bytes(lines({"id": id, "correct": right} for id, j, right in ROWS if i == j))
    found = read_samples(folder)
    assert found.number is not None and found.number.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    (tmp_path / "counts.jsonl").write_bytes(
        lines({"id": id, "correct": c, "samples": n} for id, (c, n) in TRUTH.items())
    )
    assert read_samples(tmp_path / "counts.jsonl").number is None  # the right ones come first here
