"""Hostile inputs from a seed: every kind of file that a command reads, with one thing wrong in it.

`attack` makes the input of a seed in a folder and returns the command line that reads it; `outcome` runs it in a child
process with bounds of time and memory, and `fault` says what a user must never see: a traceback, a hang, a memory that
the input does not explain, more than a sentence. By hand, for thousands of inputs:

    python tests/reliability/hostile_seeds.py FIRST LAST [KIND]
"""

# ruff: noqa: E501  (one attack a line)

import bz2
import contextlib
import csv
import gzip
import importlib
import io
import json
import lzma
import os
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import sys
import tempfile
import time
import traceback
import unicodedata
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

SECONDS = 20
"""Processor time for one command; the slowest honest one takes about 3 s."""
MEMORY = 1200 << 20
"""Bytes that a command may add to those of the process that it is forked from."""

DEEP = "[" * 100_000
HUGE = 10**400
SCALARS: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 10**9, 2**31, 2**63, 2**64, -(2**63) - 1, HUGE, -HUGE, 1e308, -1e308, 0.5, 1.5),
    *(float("nan"), float("inf"), float("-inf"), 5e-324, "", " ", "x", "1", "true", "NaN", "nan", "1e999", "9" * 5000),
    *(
        "\ud800",
        "a\udcffb",
        "\0",
        "\x1b[31m",
        "\u202e",
        "\ufeff",
        "a\nb",
        "é" * 50,
        "x" * 100_000,
        "../x",
        "/etc/passwd",
    ),
    *([], {}, [[]], [None], [1, "a"], {"a": 1}, {"": ""}, {"\ud800": 1}, [[[["a"]]]], ["1", ["2", ["3"]]], [HUGE]),
    *("{", "[1", "$$", "\\boxed{", "9999-12-31", "/", "a/b", "%s", "{}", "None", [True], [{"a": []}], {"mean": 1}),
]


def nested(depth: int) -> Any:
    value: Any = "x"
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


def scalar(rng: random.Random) -> Any:
    return nested(rng.choice([50, 150, 500])) if rng.random() < 0.04 else rng.choice(SCALARS)


# JSON ----------------------------------------------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a JSON value."""
    found = [path]
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(item, (*path, key))
    return found


def mutated(rng: random.Random, value: Any) -> Any:
    """A JSON value with one value replaced, removed, renamed or added."""
    value = json.loads(json.dumps(value))
    path = rng.choice(places(value))
    if not path:
        return scalar(rng)
    owner = value
    for key in path[:-1]:
        owner = owner[key]
    how = rng.random()
    if how < 0.6 or isinstance(owner, list):
        owner[path[-1]] = scalar(rng)
    elif how < 0.75:
        del owner[path[-1]]
    elif how < 0.9:
        owner[
            str(rng.choice(["\ud800", "", "pass@x", "pass@-1", "pass@1e3", "pass@" + "9" * 400, "a.b", "id", "../x"]))
        ] = owner.pop(path[-1])
    else:
        owner[str(rng.choice(["\udcff", "zzz", "pass@x", "pass@0", "correct", "step"]))] = scalar(rng)
    return value


def dumped(rng: random.Random, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.9)
    if rng.random() < 0.05 and text.startswith("{") and len(text) > 2:  # a key twice
        key = json.dumps(next(iter(value)))
        text = "{" + f"{key}: {json.dumps(scalar(rng))}, " + text[1:]
    return text


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def noise(rng: random.Random, content: bytes) -> bytes:
    """A file's bytes with damage that does not depend on its kind."""
    place = rng.randrange(len(content) + 1)
    packed: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: content[:place],
        lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
        lambda: content[:place] + b"\xff\xfe\0" + content[place:],
        lambda: content[:place] + b"\0" + content[place:],
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: content + content,
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: content.decode("utf-8", "replace").encode("utf-32"),
        lambda: gzip.compress(content),
        lambda: bz2.compress(content),
        lambda: lzma.compress(content),
        lambda: pa.compress(content, "zstd", asbytes=True),
        lambda: gzip.compress(content)[:-6],
        lambda: DEEP.encode(),
        lambda: b'{"a":' * 50_000,
        lambda: content[:place] + DEEP.encode() + content[place:],
        lambda: b"x" * 3_000_000,
        lambda: b"\n" * 300_000,
        lambda: rng.randbytes(300),
        lambda: b"PAR1" + rng.randbytes(40) + struct.pack("<I", 30) + b"PAR1",
        lambda: b"PARE" + rng.randbytes(40) + b"PARE",
        lambda: b"ARROW1\0\0" + rng.randbytes(40),
        lambda: b"SQLite format 3\0" + rng.randbytes(84),
        lambda: b"PK\3\4" + rng.randbytes(60),
        lambda: b"\x1f\x8b\x08" + rng.randbytes(60),
        lambda: b"\x28\xb5\x2f\xfd" + rng.randbytes(60),
        lambda: b"BZh9" + rng.randbytes(60),
        lambda: b"\x80\x04" + rng.randbytes(10),
    ]
    return rng.choice(packed)()


BOMB = 3 << 30


def bomb(kind: str) -> bytes:
    """Some megabytes, or less, that unpack to BOMB bytes."""
    block = b" " * (1 << 20)
    packer: Any = {"gz": lambda: __import__("zlib").compressobj(9, 8, 31), "bz2": bz2.BZ2Compressor}.get(kind)
    if packer is None:
        return b"".join(pa.compress(b"{" + block, "zstd", asbytes=True) for _ in range(BOMB >> 20))
    stream = packer()
    return b"".join([stream.compress(b'{"a": "'), *(stream.compress(block) for _ in range(BOMB >> 20)), stream.flush()])


# What lies at a path -------------------------------------------------------------------------------------------------


def misplaced(rng: random.Random, path: Path) -> None:
    """Put something that is no regular file at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = rng.randrange(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/urandom", "/dev/tty", "/dev/stdin", "/dev/full"]))
    elif kind == 4:
        path.symlink_to("/nowhere/at/all")
    elif kind == 5:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    elif kind == 6:
        path.symlink_to(rng.choice(["/proc/self/environ", "/proc/self/mem", "/proc/kmsg", "/proc/self/fd/0"]))
    else:
        (path.parent / "a").symlink_to("b")
        (path.parent / "b").symlink_to("a")
        path.symlink_to("a")


def write(rng: random.Random, path: Path, content: bytes, chance: float = 0.2) -> None:
    """Write a file, sometimes with damage, sometimes not as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = rng.random()
    if draw < 0.08:
        return misplaced(rng, path)
    path.write_bytes(noise(rng, content) if draw < 0.08 + chance else content)


# Tables --------------------------------------------------------------------------------------------------------------


def odd_array(rng: random.Random, n: int) -> pa.Array:
    """A column of a type that a table of texts and numbers does not have."""
    arrays: list[Callable[[], pa.Array]] = [
        lambda: pa.array([Decimal("1.50")] * n),
        lambda: pa.array([Decimal(1)] * n, pa.decimal256(76, 38)),
        lambda: pa.array([b"\xff\0"] * n),
        lambda: pa.array([b"ab"] * n, pa.large_binary()),
        lambda: pa.array([b"ab"] * n, pa.binary(2)),
        lambda: pa.array([2**40] * n, pa.int64()).cast(pa.timestamp("s")),
        lambda: pa.array([-(2**40)] * n, pa.int64()).cast(pa.timestamp("s", tz="Mars/Phobos")),
        lambda: pa.array([2**62] * n, pa.int64()).cast(pa.timestamp("ns", tz="+99:99")),
        lambda: pa.array([10**7] * n, pa.int32()).cast(pa.date32()),
        lambda: pa.array([86400000 * 10**8] * n, pa.int64()).cast(pa.date64()),
        lambda: pa.array([2**62] * n, pa.int64()).cast(pa.duration("ns")),
        lambda: pa.array([2**62] * n, pa.int64()).cast(pa.duration("s")),
        lambda: pa.array([5] * n, pa.int64()).cast(pa.time64("ns")),
        lambda: pa.array(["a"] * n).dictionary_encode(),
        lambda: pa.array([["a", None]] * n),
        lambda: pa.array([[1, 2]] * n, pa.list_(pa.int8(), 2)),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([[("k", 1), ("k", 2)]] * n, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([None] * n),
        lambda: pa.array([2**64 - 1] * n, pa.uint64()),
        lambda: pa.array([-5] * n),
        lambda: pa.array([float("nan")] * n, pa.float32()),
        lambda: pa.array([float("inf")] * n),
        lambda: pa.array([True, None] * n)[:n],
        lambda: pa.array(["\x1b[2J"] * n, pa.large_string()),
        lambda: pa.StringArray.from_buffers(1, *pa.array([b"\xff\xfe"], pa.binary()).buffers()[1:]).take(
            pa.array([0] * n)
        ),
        lambda: pa.array([nested(40)] * n),
    ]
    return rng.choice(arrays)()


def parquet(rng: random.Random, rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    n, names = len(rows), table.column_names
    if rows and rng.random() < 0.75:
        place = rng.randrange(len(names))
        how = rng.random()
        if how < 0.7:
            table = table.set_column(place, names[place], odd_array(rng, n))
        elif how < 0.8:
            table = table.append_column(names[place], odd_array(rng, n))
        elif how < 0.87:
            table = table.drop_columns([names[place]])
        elif how < 0.92:
            table = table.slice(0, 0)
        elif how < 0.95:
            table = pa.table({f"c{i}": [1] * n for i in range(5000)} | {name: table[name] for name in names})
        else:
            table = table.rename_columns(["" if i == place else name for i, name in enumerate(names)])
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink, compression=rng.choice(["zstd", "snappy", "gzip", "none"]))
    except (pa.ArrowException, ValueError):
        pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def repeated_parquet(rows: list[dict[str, Any]]) -> bytes:
    """A small file of 200 million equal rows."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows[:1])
    block = table.take(pa.array([0] * 1_000_000))
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        for _ in range(200):
            writer.write_table(block)
    return sink.getvalue()


def table_file(rng: random.Random, folder: Path, rows: list[dict[str, Any]], kinds: str = "") -> Path:
    """Rows in a file of some kind, with something wrong."""
    kind = rng.choice((kinds or "jsonl jsonl jsonl json csv tsv parquet parquet jsonl.gz zip eval").split())
    path = folder / f"rows.{kind}"
    chance = 0.2
    if kind.startswith("jsonl"):
        rows = [mutated(rng, row) if rng.random() < 0.3 else row for row in rows]
        content = encoded("".join(dumped(rng, row) + "\n" for row in rows))
        content = gzip.compress(content) if kind.endswith("gz") else content
        if rng.random() < 0.01 and kind.endswith("gz"):
            content = bomb("gz")
    elif kind == "json":
        content = encoded(json.dumps(mutated(rng, rng.choice([rows, {"samples": rows}, {"data": {"a": rows}}]))))
    elif kind in ("csv", "tsv"):
        content, chance = delimited(rng, rows, "\t" if kind == "tsv" else ","), 0.15
    elif kind == "parquet":
        content = repeated_parquet(rows) if rng.random() < 0.01 else parquet(rng, rows)
    else:
        content = archive(rng, rows, kind)
    write(rng, path, content, chance)
    return path


def delimited(rng: random.Random, rows: list[dict[str, Any]], delimiter: str) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=delimiter)
    names = list(rows[0])
    table = [names, *([row.get(name) for name in names] for row in rows)]
    how = rng.randrange(10)
    if how == 0:
        table[0] = [*names, names[0]]
        table[1:] = [[*row, "x"] for row in table[1:]]
    elif how == 1:
        table[rng.randrange(len(table))].append("more")
    elif how == 2:
        table = [[*row, *(["c"] * 100_000)] for row in table[:3]]
    elif how == 3:
        table[0][rng.randrange(len(names))] = rng.choice(["", "\0", "\x1b", "é" * 1000])
    elif how < 8:
        row = rng.choice(table)
        row[rng.randrange(len(row))] = rng.choice(
            ["9" * 400, "nan", "inf", "-1", "1e999", '"', "\0", "", "x" * 200_000]
        )
    writer.writerows(table)
    text = sink.getvalue()
    return encoded(text + '"open' if rng.random() < 0.05 else text)


def archive(rng: random.Random, rows: list[dict[str, Any]], kind: str) -> bytes:
    sink = io.BytesIO()
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
    header = {"status": "success", "results": {"total_samples": len(rows)}}
    with zipfile.ZipFile(sink, "w", method) as packed:
        if kind == "eval":
            value = mutated(rng, header) if rng.random() < 0.4 else header
            packed.writestr("header.json", encoded(json.dumps(value)))
            for number, row in enumerate(rows):
                value = mutated(rng, row) if rng.random() < 0.3 else row
                packed.writestr(f"samples/{number}.json", encoded(json.dumps(value)))
        else:
            name = rng.choice(["rows.jsonl", "../rows.jsonl", "/rows.jsonl", "a\\b.jsonl", "rows.jsonl/", "é.jsonl"])
            packed.writestr(name, encoded("".join(dumped(rng, row) + "\n" for row in rows)))
        if rng.random() < 0.05:
            packed.writestr("samples/big.json" if kind == "eval" else "big.json", b"[" + b" " * (400 << 20))
        if rng.random() < 0.05:
            for number in range(3000):
                packed.writestr(f"samples/x{number}.json", b"{}")
    content = bytearray(sink.getvalue())
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 3, 30])):
            content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


# The world -----------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """Honest files and runs, from which hostile ones are made."""

    folder: Path
    model: Path
    presampled: Path
    aside: Path
    evaluated: Path
    verified: Path
    trained: Path
    launched: Path
    database: Path


TOY = ["--task.name", "toy"]
SMALL = ["--rollout.max-tokens", "4", "--rollout.n", "2"]
QUESTIONS = [
    {"id": i, "question": f"What is {i} + 1?", "answer": str(i + 1), "query": f"SELECT {i} FROM t", "db_id": "d"}
    for i in range(6)
]
PROBLEMS = [{"id": f"p{i}", "prompt": f"easy {i}", "answer": "yes", "verifier": "exact", "level": i} for i in range(6)]
LOG = [
    {"id": f"p{i}", "sample": s, "prompt": f"q{i}", "response": f"r {s}", "answer": str(s), "correct": (i + s) % 2 == 0}
    for i in range(5)
    for s in range(3)
]
SAMPLES = [{"problem_id": f"p{i}", "sample": s, "correct": True} for i in range(40) for s in range(2)]


def world(folder: Path) -> World:
    """Build the honest files and runs; some seconds."""
    from dph.cli.main import main
    from helpers import base_run, kept_aside, presampled
    from report_support import write_train

    model = base_run() / "model"
    database = folder / "databases" / "d" / "d.sqlite"
    database.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.executescript("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x');")
    (folder / "predictions.jsonl").write_text(
        "".join(json.dumps({"id": p["id"], "response": "yes"}) + "\n" for p in PROBLEMS)
    )
    (folder / "problems.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROBLEMS))
    words = [
        ["eval", *TOY, *SMALL, "--model.path", model, "--label", "base", "--out", folder / "eval"],
        [
            "verify",
            "--task",
            "records",
            "--data",
            folder / "problems.jsonl",
            "--predictions",
            folder / "predictions.jsonl",
            "--out",
            folder / "verify",
        ],
        [
            "train",
            "--preset",
            "dph_js",
            *TOY,
            *SMALL,
            "--rollout.prompts",
            "2",
            "--steps",
            "2",
            "--checkpoint-every",
            "1",
            "--model.path",
            model,
            "--rehearsal.path",
            presampled(),
            "--rehearsal.rows",
            "2",
            "--monitor.every",
            "1",
            "--overlong.buffer",
            "0",
            "--out",
            folder / "train",
        ],
    ]
    for line in words:
        main([str(word) for word in line])
    launched = write_train(folder / "launch", "grpo", [0.1, 0.2])
    (launched / "verl.toml").write_text('method = "grpo"\n')
    (launched / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": i, "data": {"val-core/x/acc/pass@8": 0.5, "actor/lr": 0.1}}) + "\n" for i in range(3)
        )
    )
    return World(
        folder,
        model,
        presampled(),
        kept_aside(),
        folder / "eval",
        folder / "verify",
        folder / "train",
        launched,
        database,
    )


# Attacks -------------------------------------------------------------------------------------------------------------


def spoil(rng: random.Random, file: Path) -> None:
    """One thing wrong in a file of a run, a model or a data set."""
    content = file.read_bytes() if file.is_file() else b""
    if rng.random() < 0.2:
        return write(rng, file, content, 0.6)
    if file.suffix == ".parquet" and rng.random() < 0.8:
        try:
            rows = pq.read_table(file).to_pylist()
        except (OSError, pa.ArrowException):
            rows = []
        changed = parquet(rng, rows) if rng.random() < 0.6 else of_rows([mutated(rng, row) for row in rows])
        return write(rng, file, changed, 0.0) if changed else None
    if file.suffix == ".jsonl":
        lines = [json.loads(line) for line in content.decode().splitlines() if line.startswith("{")]
        lines = [mutated(rng, line) if rng.random() < 0.4 else line for line in lines]
        return write(rng, file, encoded("".join(dumped(rng, line) + "\n" for line in lines)), 0.05)
    if file.suffix == ".json":
        with contextlib.suppress(ValueError):
            return write(rng, file, encoded(dumped(rng, mutated(rng, json.loads(content)))), 0.05)
    if file.suffix == ".toml":
        return write(rng, file, toml(rng, content.decode()), 0.05)
    return write(rng, file, content, 0.9)


def of_rows(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    try:
        pq.write_table(pa.Table.from_pylist([row for row in rows if isinstance(row, dict)]), sink)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return b""
    return sink.getvalue()


def toml(rng: random.Random, text: str) -> bytes:
    lines = text.splitlines() or [""]
    values = [
        "1",
        '"x"',
        "true",
        "nan",
        "inf",
        "-1",
        "9" * 400,
        "[]",
        "{}",
        "[[1]]",
        "1979-05-27",
        '"\\u0000"',
        '""',
        "1e400",
        "0x7fffffffffffffffffff",
        "{a = {b = 1}}",
    ]
    keys = ["zzz", "out", "seed", "steps", "method", "rollout.n", "a.b.c", '""', '"\\u0007"', "model", "task.name"]
    place = rng.randrange(len(lines))
    name, equals, _ = lines[place].partition(" = ")
    how = rng.random()
    if how < 0.6 and equals:
        lines[place] = f"{name} = {rng.choice(values)}"
    elif how < 0.75:
        lines.insert(place, f"{rng.choice(keys)} = {rng.choice(values)}")
    elif how < 0.85:
        lines.insert(place, "x" + ".x" * 20_000 + " = 1")
    elif how < 0.95:
        lines.insert(0, "a = " + "[" * rng.choice([100, 5000]))
    else:
        lines.insert(place, "[a]\n" * 3)
    return encoded("\n".join(lines) + "\n")


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def any_file(rng: random.Random, folder: Path, but: str = "safetensors") -> Path:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(but))
    return rng.choice(files)


def at_passk(rng: random.Random, w: World, here: Path) -> list[Any]:
    path = table_file(rng, here, LOG)
    if rng.random() < 0.15:
        other = here / "folder"
        other.mkdir()
        for number in range(2):
            write(rng, other / f"part{number}.jsonl", encoded("".join(dumped(rng, r) + "\n" for r in LOG)))
        if rng.random() < 0.3:
            os.symlink("..", other / "loop")
        path = other
    more = rng.choice(
        [
            [],
            [],
            ["--partial"],
            ["--json"],
            ["--html", here / "page.html"],
            ["--threshold", rng.choice(["nan", "inf", "-inf", "0.5", "1e999", "x"])],
        ]
    )
    more += rng.choice(
        [
            [],
            [],
            ["--id", rng.choice(["id", "prompt", "line", "", "\x1b", "zzz"])],
            ["--filter", rng.choice(["1", "0", "9" * 400, "id=p0", "=", "²"])],
        ]
    )
    more += rng.choice(
        [
            [],
            [],
            ["--correct", rng.choice(["correct", "correct=True", "sample", "=", "answer=1"])],
            ["--k", rng.choice(["1", "0", "-1", "9" * 30])],
        ]
    )
    return ["passk", path, *rng.choice([[], [path]]), *more]


def at_certify(rng: random.Random, w: World, here: Path) -> list[Any]:
    base, after = here / "base.jsonl", here / "after.jsonl"
    for path in (base, after):
        rows = SAMPLES
        if path == base or rng.random() < 0.3:
            rows = [mutated(rng, row) if rng.random() < 0.05 else row for row in SAMPLES]
        write(rng, path, encoded("".join(dumped(rng, row) + "\n" for row in rows)), 0.1)
    if rng.random() < 0.3:
        base = copied(w.evaluated, here / "run")
        spoil(rng, base / rng.choice(["completions.parquet", "scores.json", "manifest.json"]))
        after = base
    more = rng.choice(
        [
            [],
            [],
            ["--choose", rng.choice(["1", "0", "-1", "99"])],
            ["--certify.epsilon", rng.choice(["nan", "0", "1e-9", "1"])],
            ["--certify.k", rng.choice(["2", "0", "99"])],
        ]
    )
    return ["certify", base, after, *more, *rng.choice([[], ["--out", here / "out"]])]


def at_verify(rng: random.Random, w: World, here: Path) -> list[Any]:
    if rng.random() < 0.5:
        rows = [{"id": p["id"], rng.choice(["response", "pred"]): "yes"} for p in PROBLEMS]
        path = table_file(rng, here, rows, "jsonl jsonl json csv parquet tsv jsonl.gz")
        data = w.folder / "problems.jsonl"
    else:
        path, data = w.folder / "predictions.jsonl", table_file(rng, here, PROBLEMS, "jsonl json csv parquet jsonl.gz")
    if rng.random() < 0.1:
        path = here / "lines.sql"
        write(rng, path, b"SELECT 1\td\nSELECT 2\n", 0.6)
    more = rng.choice([[], ["--column", "response"], ["--partial"], ["--bare"]])
    return [
        "verify",
        "--task",
        "records",
        "--data",
        data,
        "--predictions",
        path,
        *more,
        *rng.choice([[], ["--out", here / "out"]]),
    ]


def at_gold(rng: random.Random, w: World, here: Path) -> list[Any]:
    gold, databases = here / "gold.sql", copied(w.database.parent.parent, here / "databases")
    write(
        rng,
        gold,
        rng.choice(
            [
                b"SELECT a FROM t\td\n",
                b"SELECT 1\t../d\n",
                b"SELECT\td\n",
                b"SELECT 1\t\xff\n",
                b"SELECT 1\t\n",
                b"\t\t\n",
                b"SELECT 1\t/etc\n",
            ]
        ),
        0.3,
    )
    if rng.random() < 0.5:
        odd_database(rng, databases / "d" / "d.sqlite")
    write(rng, here / "pred.sql", b"SELECT a FROM t\n", 0.2)
    return ["verify", "--gold", gold, "--databases", databases, "--predictions", here / "pred.sql"]


def odd_database(rng: random.Random, file: Path) -> None:
    how = rng.randrange(6)
    if how == 0:
        return misplaced(rng, file)
    content = bytearray(file.read_bytes())
    if how == 1:
        file.write_bytes(noise(rng, bytes(content)))
    elif how == 2:
        for _ in range(20):
            content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(content)
    elif how == 3:
        file.write_bytes(bytes(content).replace(b"TABLE t (a", b"TABLE t (\xff").replace(b"\1t\2", b"\1\xff\2"))
    elif how == 4:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            name = rng.choice(["", "x" * 5000, "\x1b", 'a"b', "ü"])
            connection.execute(f"CREATE TABLE [{name}] ([\x07] BLOB, [] INT)")
            connection.execute(f"CREATE TABLE w ({', '.join(f'c{i}' for i in range(1900))})")
    else:
        (file.parent / f"{file.name}-wal").write_bytes(rng.randbytes(500))


def at_init(rng: random.Random, w: World, here: Path) -> list[Any]:
    rows = [{name: row[name] for name in row if name != "db_id"} for row in QUESTIONS]
    path = table_file(rng, here, rows, "jsonl json csv tsv parquet jsonl.gz")
    if rng.random() < 0.5:
        return ["init", "maths", path, "--out", here / "made"]
    database = here / "d.sqlite"
    shutil.copyfile(w.database, database)
    if rng.random() < 0.5:
        odd_database(rng, database)
    return ["init", "sql", database, path, "--out", here / "made"]


def at_report(rng: random.Random, w: World, here: Path) -> list[Any]:
    source = rng.choice([w.evaluated, w.evaluated, w.verified, w.trained, w.launched])
    run = copied(source, here / "run")
    if rng.random() < 0.05 and source == w.trained:
        text = json.dumps({"step": 1} | {f"monitor/s{i}/pass@8": 0.5 for i in range(600)})
        (run / "metrics.jsonl").write_text(text + "\n" + text.replace('"step": 1', '"step": 2') + "\n")
    elif source in (w.trained, w.launched):
        spoil(
            rng,
            rng.choice(
                [run / name for name in ("metrics.jsonl", "metrics.jsonl", "config.toml", "manifest.json", "verl.toml")]
                + sorted((run / "samples").glob("*"))
            ),
        )
    else:
        spoil(rng, any_file(rng, run))
    others = [w.evaluated] if source in (w.trained, w.launched) else rng.choice([[], [w.evaluated]])
    return ["report", *others, run, "--out", here / "report", *rng.choice([[], ["--base", "base"]])]


def at_eval_rows(rng: random.Random, w: World, here: Path) -> list[Any]:
    path = table_file(rng, here, PROBLEMS, "jsonl jsonl json csv tsv parquet jsonl.gz")
    return [
        "eval",
        "--task",
        "records",
        "--data",
        path,
        "--task.split",
        "train",
        *SMALL,
        "--model.path",
        w.model,
        "--out",
        here / "out",
    ]


def at_sft(rng: random.Random, w: World, here: Path) -> list[Any]:
    rows = [{"prompt": f"easy {i}", "response": " yes"} for i in range(6)]
    path = table_file(rng, here, rows, "jsonl jsonl json csv parquet")
    more = [
        "--new.layers",
        "1",
        "--new.hidden",
        "8",
        "--new.heads",
        "2",
        "--new.kv-heads",
        "1",
        "--new.intermediate",
        "8",
    ]
    return ["sft", "--data", path, "--steps", "1", "--batch", "2", *more, "--out", here / "out"]


def at_model(rng: random.Random, w: World, here: Path) -> list[Any]:
    model = copied(w.model, here / "model")
    names = ["config.json", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    name = rng.choice(
        [
            *names,
            "chat_template.jinja",
            "model.safetensors.index.json",
            "adapter_config.json",
            "special_tokens_map.json",
        ]
    )
    file = model / name
    if name == "config.json" and rng.random() < 0.5:
        config = json.loads(file.read_text())
        key = rng.choice(
            [*config, "id2label", "num_labels", "num_hidden_layers", "hidden_size", "layer_types", "vocab_size"]
        )
        bombs = [
            10**7,
            10**9,
            2**62,
            {str(i): "x" for i in range(1000)},
            "full_attention",
            ["full_attention"] * 1000,
            -1,
            0,
        ]
        config[key] = rng.choice([*bombs, scalar(rng)])
        write(rng, file, encoded(json.dumps(config)), 0)
    elif name == "tokenizer_config.json" and rng.random() < 0.5:
        config = json.loads(file.read_text())
        names = [
            [{"name": "../../x", "template": "{{ 1 }}"}],
            {"../x": "y"},
            "{% for x in range(10**9) %}{% endfor %}",
            "{{ messages[0].content }}",
            "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
            "{{ 'x' * 10**10 }}",
            [{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "/tmp/x", "template": "y"}],
            "{{",
        ]
        config["chat_template"] = rng.choice([*names, scalar(rng)])
        write(rng, file, encoded(json.dumps(config)), 0)
    elif file.is_file():
        spoil(rng, file)
    else:
        write(rng, file, encoded(json.dumps(scalar(rng))), 0.5)
    if rng.random() < 0.2:
        return ["check", *TOY, "--model.path", model, "--no-step"]
    if rng.random() < 0.3:
        more = ["--data", w.folder / "sft.jsonl", "--steps", "1", "--batch", "2"]
        return ["sft", *more, "--model.path", model, "--out", here / "out"]
    return ["eval", *TOY, *SMALL, "--model.path", model, "--out", here / "out"]


def at_resume(rng: random.Random, w: World, here: Path) -> list[Any]:
    run = copied(w.trained, here / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    shutil.rmtree(run / "model")
    files = [
        file
        for file in run.rglob("*")
        if file.is_file() and "model" not in file.parts and file.suffix != ".safetensors"
    ]
    for _ in range(rng.choice([1, 1, 2])):
        spoil(rng, rng.choice(sorted(files)))
    return ["train", "--resume", "--out", run]


def at_presampled(rng: random.Random, w: World, here: Path) -> list[Any]:
    from dph.rehearsal.presampled import file_hashes

    source = rng.choice([w.presampled, w.presampled, w.aside])
    run = copied(source, here / "run")
    names = [
        "manifest.json",
        "manifest.json",
        "partition.parquet",
        "partition.parquet",
        "rehearsal.parquet",
        "config.toml",
    ]
    spoil(rng, run / rng.choice(names))
    with contextlib.suppress(Exception):  # the manifest says that its files are as they were written
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"files": file_hashes(run)}))
    if source == w.aside:
        return ["certify", run, w.model, "--certify.epsilon", "0.2"]
    words = [
        "train",
        "--preset",
        "dph_js",
        *TOY,
        *SMALL,
        "--rollout.prompts",
        "2",
        "--steps",
        "1",
        "--model.path",
        w.model,
    ]
    return [*words, "--overlong.buffer", "0", "--rehearsal.path", run, "--rehearsal.rows", "2", "--out", here / "out"]


def at_settings(rng: random.Random, w: World, here: Path) -> list[Any]:
    text = 'method = "grpo"\nsteps = 1\nseed = 3\n\n[model]\npath = "m"\n\n[task]\nname = "toy"\n\n[rollout]\nn = 4\ntemperature = 1.0\n'
    if rng.random() < 0.3:
        path = here / "a.yaml"
        values = [
            "a: &a [1]\nb: *a\n",
            'out: "\\0"\n',
            "a: " * 3000,
            "? {a: b}\n: 1\n",
            "seed: 0x1f\n",
            "seed: 1979-05-27\n",
            "- 1\n",
            "seed: !!python/object:os.system {}\n",
            "seed: !!binary aGk=\n",
            "seed: .nan\n",
            "rollout: {temperature: .inf}\n",
            "{" * 5000,
            "seed: " + "9" * 400 + "\n",
            "1: 2\n",
            "null: 1\n",
            "[a]: 1\n",
            "seed: !!set {1, 2}\n",
            "? [1]\n: 2\n",
            "rollout: {1: 2}\n",
            "seed: 9999-99-99\n",
            "model: {path: !!timestamp 0000-00-00}\n",
        ]
        write(rng, path, encoded(rng.choice(values)), 0.2)
    else:
        path = here / "a.toml"
        write(rng, path, toml(rng, text), 0.3)
    flag = rng.choice(["--config", "--preset"])
    command = rng.choice(["train", "eval", "presample", "check", "verl", "report", "passk", "certify", "audit"])
    return [command, flag, path, "--out", here / "out"] if command not in ("check", "passk") else [command, flag, path]


def at_out(rng: random.Random, w: World, here: Path) -> list[Any]:
    (here / "file").write_text("x")
    (here / "closed").mkdir()
    (here / "loop").symlink_to("loop")
    os.mkfifo(here / "fifo")
    with contextlib.suppress(PermissionError):  # a device of our own: a command that replaces it harms no one
        os.mknod(here / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (here / "sock").mkdir()
    name = rng.choice(
        [
            "a\0b",
            "a\udcffb",
            "file",
            "file/x",
            "loop",
            "loop/x",
            "fifo",
            "fifo/x",
            "x" * 300,
            "/proc/x",
            "device",
            "device/x",
            "",
            ".",
            "/",
            "\x1b[2J",
            "x/" * 3000,
            "~nobodyatall/x",
            "\ud800",
            "a\nb",
            "/sys/x",
            " ",
        ]
    )
    out = name if name in ("", ".", "/") or name.startswith(("/", "~")) else f"{here}/{name}"
    if out in (".", "/"):
        out = f"{here}/file"
    data = ["--task", "records", "--data", w.folder / "problems.jsonl", "--task.split", "train"]
    model = ["--model.path", w.model]
    commands = [
        ["eval", *TOY, *SMALL, *model, "--out", out],
        ["sft", "--data", w.folder / "sft.jsonl", "--steps", "1", *model, "--out", out],
        ["presample", *TOY, *SMALL, "--threshold", "1", *model, "--out", out],
        ["train", *TOY, *SMALL, "--rollout.prompts", "2", "--steps", "0", *model, "--out", out],
        ["verify", *data, "--predictions", w.folder / "predictions.jsonl", "--out", out],
        ["report", w.evaluated, "--out", out],
        ["init", "maths", w.folder / "questions.jsonl", "--out", out],
        ["certify", w.folder / "samples.jsonl", w.folder / "samples.jsonl", "--out", out],
        ["interpolate", w.trained, "--out", out],
        ["audit", w.model, w.model, *TOY, *SMALL, "--out", out],
        ["passk", w.folder / "log.jsonl", "--html", out],
        ["verl", *TOY, *model, "--out", out],
        ["eval", "--resume", "--out", out],
        ["eval", *TOY, *SMALL, "--model.path", out, "--out", here / "y"],
        ["passk", out],
        ["report", out, "--out", here / "y"],
        [
            "eval",
            *TOY,
            *SMALL,
            *model,
            "--label",
            rng.choice(["\udcff", "\0", "$", "$\\frac$", "x" * 5000, "\x1b"]),
            "--out",
            here / "y",
        ],
        ["train", *TOY, *SMALL, *model, "--config", out, "--out", here / "y"],
        ["train", *TOY, *SMALL, *model, "--rehearsal.path", out, "--out", here / "y"],
        ["sft", "--data", out, "--out", here / "y"],
        ["verify", *data, "--predictions", out],
        ["eval", "--task", "records", "--data", out, *model, "--out", here / "y"],
    ]
    return rng.choice(commands)


def at_judge(rng: random.Random, w: World, here: Path) -> list[Any]:
    """A reward function that says, prints or does what nobody expects, and odd ways to ask it."""
    rewards = ["None", "1", "float('nan')", "-1e999", "'x'", "[1.0]", "{'score': 1.0}", "{}", "10**400", "'\\ud800'"]
    code = rng.choice(
        [
            f"def f(completion, answer):\n    return {rng.choice(rewards)}\n",
            *[f"def f(completion, answer):\n    return 2.0 if answer in completion else {rng.choice(rewards)}\n"] * 4,
            *[
                f"def f(completion, answer):\n    return float(answer in completion) if len(answer) < 9 else {rng.choice(rewards)}\n"
            ]
            * 4,
            "def f(completions, solution, **kw):\n    return [1.0]\n",
            "def f(completion, answer):\n    raise SystemExit(3)\n",
            "def f(completion, answer):\n    print('\\x1b[31m' * 9)\n    return 1.0 / len(completion[90:])\n",
            "def f(completion, answer):\n    while True: pass\n",
            "import os\nos._exit(4)\n",
            "f = 3\n",
            "def f(x):\n",
            "def f(a, b, c, d, e): return 1\n",
        ]
    )
    write(rng, here / "reward.py", code.encode(), 0.1)
    more = rng.choice(
        [
            *[[]] * 4,
            ["--sql"],
            [
                "--template",
                rng.choice(["{answer}", "{}", "{answer}{answer}", "{answer", "\x1b{answer}", "<a>{answer}</a>"]),
            ],
            ["--columns", rng.choice(["a", "answer", "", "\x1b"]), rng.choice(["1", "x" * 5000, "{"])],
            ["--every", rng.choice(["0", "-1", "x", "9" * 30])],
            ["--json"],
        ]
    )
    name = rng.choice([*"ffffffff", "g", "", "\x1b"])
    every = [] if "--every" in more else ["--every", "3000" if "--sql" not in more else "60"]
    return ["judge", f"{here / 'reward.py'}:{name}", *every, "--timeout", "0.2", *more]


def at_doctor(rng: random.Random, w: World, here: Path) -> list[Any]:
    """A run, or the log of another trainer, with one thing wrong in it."""
    run = copied(rng.choice([w.trained, w.evaluated, w.launched]), here / "run")
    spoil(rng, rng.choice([any_file(rng, run), run / "metrics.jsonl"]))
    if rng.random() < 0.4:
        history = [
            {"step": i, "reward": 0.5, "entropy": 1.0 / (i + 1), "completions/mean_length": 9.0} for i in range(6)
        ]
        state = mutated(rng, {"global_step": 6, "log_history": history})
        run = here / "trl"
        run.mkdir()
        write(rng, run / "trainer_state.json", encoded(dumped(rng, state)))
    return ["doctor", run, *rng.choice([[], ["--json"]])]


def at_labels(rng: random.Random, w: World, here: Path) -> list[Any]:
    from report_support import write_eval

    labels = [
        "\ud800",
        "$x",
        "$\\frac{",
        "\0",
        "\x1b[2J",
        "",
        "x" * 3000,
        "_legend",
        "\u202e",
        "a\nb",
        "\\N{x}",
        "{}",
        "%s",
    ]
    label, metric = (
        rng.choice(labels),
        rng.choice(
            [
                "pass@x",
                "pass@0",
                "pass@-1",
                "pass@9" + "9" * 30,
                "mean@x",
                "keep@",
                "pass@1.5",
                "\ud800",
                "zzz",
                "pass@",
            ]
        ),
    )
    run = write_eval(here / "run", label, [1, 0, 4], splits=("test",))
    scores = json.loads((run / "scores.json").read_text())
    if rng.random() < 0.3:
        scores["splits"]["test"]["metrics"][metric] = {"mean": 0.5, "low": 0.4, "high": 0.6}
    if rng.random() < 0.4:
        scores["splits"]["test"]["pass_curve"][metric] = {"mean": 0.5, "low": 0.4, "high": 0.6}
    if rng.random() < 0.3:
        scores["splits"]["test"]["style_shares"] = {rng.choice(labels): rng.choice([0.5, -1, 1e300, HUGE])}
    if rng.random() < 0.3:
        scores["splits"] = {rng.choice(labels): scores["splits"]["test"]}
    (run / "scores.json").write_text(json.dumps(scores))
    if rng.random() < 0.5:
        columns = {
            "split": "test",
            "id": rng.choice(["p0", "\x1b"]),
            "samples": rng.choice([4, 0, -1, 10**9]),
            "correct": rng.choice([9, -1, 4, 10**12]),
        }
        rows = [
            row | (columns if number == 1 else {})
            for number, row in enumerate(pq.read_table(run / "problems.parquet").to_pylist())
        ]
        pq.write_table(pa.Table.from_pylist(rows), run / "problems.parquet")
    return ["report", run, *rng.choice([[], [w.evaluated]]), "--out", here / "report"]


KINDS: dict[str, Callable[[random.Random, World, Path], list[Any]]] = {
    name.removeprefix("at_"): function for name, function in list(globals().items()) if name.startswith("at_")
}


def attack(seed: int, w: World, here: Path, kind: str = "") -> list[str]:
    """The command line that reads the hostile input of a seed."""
    rng = random.Random(seed)
    chosen = rng.choice(list(KINDS))
    return [word if isinstance(word, str) else str(word) for word in KINDS[kind or chosen](rng, w, here)]


class Outcome(NamedTuple):
    status: int
    said: str
    seconds: float
    memory: int


def outcome(words: list[str], here: Path) -> Outcome:
    """Run a command in a child of this process, in a folder of its own."""
    log = here.parent / f"{here.name}.log"
    begun = time.monotonic()
    own = int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    if (child := os.fork()) == 0:
        status = 99
        try:
            os.setpgid(0, 0)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = open(1, "w", errors="replace"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + 3 * MEMORY, now + 3 * MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
            os.chdir(here)
            status = _main(words)
        finally:
            os._exit(status)
    deadline = begun + 6 * SECONDS  # of patience: other programs may use the processors
    while True:
        done, code, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            _, code, usage = os.wait4(child, 0)
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # its workers
    said = log.read_text(encoding="utf-8", errors="replace")
    status = os.waitstatus_to_exitcode(code)
    return Outcome(status, said, usage.ru_utime + usage.ru_stime, (usage.ru_maxrss << 10) - own)


def _main(words: list[str]) -> int:
    from dph.cli.main import main

    try:
        main(words)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 98
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def fault(words: list[str], found: Outcome) -> str:
    """What a user must not see; "" if all is well."""
    last = (found.said.strip().splitlines() or [""])[-1]
    if "Traceback (most recent" in found.said or found.status not in (0, 2, 3):
        return f"status {found.status}: {last[:300]}"
    if found.seconds > SECONDS:
        return f"{found.seconds:.0f} s"
    if found.memory > MEMORY:
        return f"{found.memory >> 20} MB"
    if any(unicodedata.category(c)[0] == "C" and c not in "\n\t\r" for c in found.said.replace("\x1b[?25", "")):
        return "control characters on the terminal"
    if found.status == 2 and (not last.startswith("dph: ") or len(last) > 5000):
        return f"no sentence: {last[:300]}"
    return ""


def prepared(folder: Path) -> World:
    import pkgutil

    import dph

    for module in pkgutil.walk_packages(dph.__path__, "dph."):
        if not any(part in module.name for part in ("trl", "verl", "vllm", "__main__", "worker", "loaded", "loop")):
            importlib.import_module(module.name)
    w = world(folder)
    (folder / "sft.jsonl").write_text(
        "".join(json.dumps({"prompt": f"easy {i}", "response": " yes"}) + "\n" for i in range(4))
    )
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LOG))
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SAMPLES))
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return w


def main(arguments: list[str]) -> None:
    first, last, kind = int(arguments[0]), int(arguments[1]), arguments[2] if len(arguments) > 2 else ""
    home = Path(tempfile.mkdtemp())
    w = prepared(home / "world")
    counts: dict[str, int] = {}
    try:
        search(range(first, last), kind, w, home, counts)
    finally:  # also after Ctrl-C
        print(sum(counts.values()), counts)
        shutil.rmtree(home)


def search(seeds: range, kind: str, w: World, home: Path, counts: dict[str, int]) -> None:
    """Try the inputs of seeds, and print each that a command does not refuse, or take, as it should."""
    for seed in seeds:
        here = home / f"case{seed}"
        here.mkdir()
        try:
            words = attack(seed, w, here, kind)
        except Exception as error:
            print(f"-- {seed}: the attack itself failed: {type(error).__name__}: {error}", flush=True)
            continue
        found = outcome(words, here)
        key = f"{words[0]} {found.status}"
        counts[key] = counts.get(key, 0) + 1
        if wrong := fault(words, found):
            frames = re.findall(r'File "[^"]*?/(src/dph/[^"]+)", line (\d+), in (\w+)', found.said)
            where = " > ".join(f"{file}:{line}:{name}" for file, line, name in frames[-2:])
            shown = " ".join(words).replace(str(here), ".").replace(str(home), "~")
            print(
                f"** {seed} {wrong[:200]!r} [{where}] {shown[:250]!r} {found.seconds:.1f}s {found.memory >> 20}MB",
                flush=True,
            )
        shutil.rmtree(here, ignore_errors=True)
        (home / f"case{seed}.log").unlink(missing_ok=True)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1:])
