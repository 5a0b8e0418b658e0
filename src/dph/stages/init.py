"""`dph init`: problems, settings and commands from a file of questions, ready to run in a new folder."""

import hashlib
import json
import re
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tomli_w import dumps

from dph.build import make_verifiers
from dph.columns import NAMES, is_named
from dph.config import InitConfig, VerifierConfig, absolute
from dph.config.files import expanded
from dph.errors import DataError, RowsError, SettingsError, counted, one_line, refused
from dph.process.progress import put
from dph.runs.files import cache_folder, directory_written_atomically, say_other_files, write_atomically
from dph.tasks.mathsets import BRIEF_INSTRUCTION, INSTRUCTION, read_answer
from dph.tasks.records import Records
from dph.tasks.rows import PROMPTS, refuse_twins, refuse_two_answers, usual_column
from dph.tasks.sql.lacking import lacking_lines
from dph.tasks.sql.prompt import make_prompt
from dph.tasks.sql.schema import schema_of_file
from dph.tasks.tables import check_file, placed_rows
from dph.types import Message, Problem, as_text
from dph.verifiers.exact import shown_value
from dph.verifiers.golds import asked, tried_golds
from dph.verifiers.protocol import VERIFIERS
from dph.verifiers.sql.files import database as whole_database
from dph.verifiers.sql.text import query_in

_ANSWERS: Mapping[str, Sequence[str]] = {
    "sql": ("query", "sql", "gold_sql", "gold", "answer", "solution"),
    "maths": ("answer", "final_answer", "gold", "target", "label", "solution"),
}
"""The usual names of the column of answers, by the kind of problems."""
_SHOWN = 20
"""The largest number of problems that a line about cleaned queries names."""
_KEPT = (*NAMES["reported"], *NAMES["template variables"])
"""The further columns that later stages read."""
_PRESET = Path(__file__).parents[1] / "presets" / "own_data.toml"
_FOR_A_GPU = re.compile(r"^# The numbers are for one GPU(?:.*\n)+?(?=\[)", re.M)
_FOR_A_CPU = """\
# The numbers end in minutes on a CPU, with a model of 135 million parameters. Those behind "large:" are for one GPU,
# and untested there: `dph init` without --small writes them.
"""
"""The text that takes the place of `_FOR_A_GPU` at the head of the settings when the settings are small."""
_SMALL = re.compile(r"= (\S+)( #.*)\bsmall: (\S+)")
_MODEL = 'path = "Qwen/Qwen2.5-0.5B-Instruct"'  # as it stands in the preset
_USAGE = "write: dph init sql DATABASE FILE --out FOLDER, or dph init maths FILE --out FOLDER"
_DATABASES = (".sqlite", ".sqlite3", ".db")
_COMMANDS = """\
dph check --config dph.toml --preset dph_js
dph presample --config dph.toml --out runs/presample
dph train --config dph.toml --preset dph_js --rehearsal.path runs/presample --out runs/dph_js
dph eval --config dph.toml --label base --out runs/base
dph eval --config dph.toml --model.path runs/dph_js/model --out runs/eval
dph report runs/base runs/eval runs/dph_js --out runs/report
"""


def init(config: InitConfig) -> None:
    """Write the folder, run each gold answer once, name the gold answers that cannot be used or are weak, and print the
    commands to run next.

    Raises UserError, before anything is written, for a folder that has settings already, and for files, columns and
    rows that cannot be used.
    """
    if config.kind not in _ANSWERS:
        raise SettingsError(f"dph init makes problems of the kind sql or maths, not {config.kind!r}; {_USAGE}")
    *databases, questions = map(Path, config.files or [""])
    misplaced = len(databases) != (config.kind == "sql") or questions.suffix in _DATABASES
    if not config.out or not config.files or misplaced:
        named = f"{', '.join(config.files) or 'no file'} and --out {config.out or 'without a folder'}"
        raise SettingsError(f"dph init {config.kind} was given {named}; {_USAGE}")
    out, database = Path(config.out), databases[0] if databases else None
    if (out / "dph.toml").exists() or (out / "problems").exists():
        raise SettingsError(f"{out} holds settings or problems already; give another --out")
    try:
        problems = _problems(config, questions, database)
    except RowsError as error:
        if len(error.faults) == 1:
            raise DataError(error.faults[0]) from error
        put("".join(f"{one_line(fault)}\n" for fault in error.faults), end="")
        raise DataError(f"faults in rows: {len(error.faults)}; correct these rows, or leave them out") from error
    with make_verifiers(VerifierConfig()) as verifiers:  # may refuse the problems: before anything is written
        usable, lines = tried_golds(verifiers, problems, None)
    test = _in_test(problems, config.test_share)
    model = dumps({"path": absolute(config.model)}).strip() if config.model else _MODEL
    text = _PRESET.read_text(encoding="utf-8").replace(_MODEL, model)
    if config.small:
        text = _SMALL.sub(_as_small, _FOR_A_GPU.sub(_FOR_A_CPU, text))
    out.mkdir(parents=True, exist_ok=True)
    say_other_files(out, "problems and settings are")
    with directory_written_atomically(out / "problems") as folder:
        for split in ("train", "test") if test else ("train",):
            rows = [_row(problem) for problem in problems if (problem.id in test) == (split == "test")]
            write_atomically(folder / f"{split}.jsonl", "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
        if database:
            _copy(database, folder / database.name)
        write_atomically(out / "dph.toml", f'{text}\n[task.options]\npath = "problems"\n')
    sizes = f"{counted(len(problems) - len(test), 'problem')} to train on, {len(test)} for tests"
    put(f"{out / 'problems'}: {sizes}{', and a copy of the database' if database else ''}")
    if kept := [name for name in _KEPT if any(name in problem.meta for problem in problems)]:
        put(f"kept in them for evaluations and templates: {', '.join(kept)}")
    put(f"{out / 'dph.toml'}: the settings; its comments say what to change")
    can = f"{len(usable)} of {counted(len(problems), 'gold answer')} can be judged against"
    _say_what_to_expect(config, problems, len(test), [can, *lines])
    put(f"\ncd {shlex.quote(str(out))}\n{_COMMANDS}")


def _as_small(setting: re.Match[str]) -> str:
    large, comment, small = setting.groups()
    return f"= {small}{comment}large: {large}"


def _copy(database: Path, target: Path) -> None:
    """Copy a database together with the rows that are still in its log."""
    uri = whole_database(str(database))[0]
    try:
        with closing(sqlite3.connect(uri, uri=True)) as whole, closing(sqlite3.connect(target)) as copy:
            whole.backup(copy)
    except sqlite3.Error as error:  # a full disk causes this error
        raise DataError(refused(f"cannot copy the database {database}", error, "free disk space")) from error


def _say_what_to_expect(config: InitConfig, problems: Sequence[Problem], tests: int, lines: Sequence[str]) -> None:
    """Say how few the test problems are, which gold answers cannot be used or are weak (`lines`), and whether the model
    is looked for on a hub."""
    if tests < 100:
        worth = f"one answer moves a score by {100 / tests:.3g} points" if tests else "nothing can be evaluated"
        put(f"{counted(tests, 'test problem')}: {worth}; add questions, or raise --test-share")
    if repeats := len(problems) - len({asked(problem) for problem in problems}):
        ask, they = ("asks", "it is") if repeats == 1 else ("ask", "they are")
        put(f"{counted(repeats, 'problem')} {ask} what another one asks; {they} in the same split as that")
    put("".join(f"{one_line(line, 1 << 20)}\n" for line in (*lines, *lacking_lines(problems))), end="")
    places = expanded(config.model), cache_folder() / "models" / config.model
    if config.model and not any(place.exists() for place in places):
        put(f"there is no folder {config.model} here, so it is taken as the name of a model on a hub")


def _problems(config: InitConfig, questions: Path, database: Path | None) -> list[Problem]:
    """The problems of all rows, with whole prompts."""
    placed = placed_rows(questions)
    named = dict.fromkeys(name for _, row in placed for name in row)
    filled = named | {name: value for _, row in placed for name, value in row.items() if value is not None}
    columns: dict[str, Any] = _columns(config, questions, filled)
    _refuse_unclear(config, placed, columns)
    if database is None:
        read = Records(path=str(questions), verifier="math", **columns).problems_of(questions, placed)
        return [_boxed(problem, BRIEF_INSTRUCTION if config.small else INSTRUCTION) for problem in read]
    check_file(database, _DATABASES)
    placed = _of_one_database(questions, placed, database)
    hint = usual_column(filled, NAMES["hint"])
    records = Records(path=str(questions), verifier="sql", db=str(database), **columns)
    records.leave(hint)
    problems = records.problems_of(questions, placed)
    schema = schema_of_file(database, views=True)
    if schema.left_out:
        put(f"views that SQLite cannot read, so that no prompt shows them: {one_line(', '.join(schema.left_out))}")
    if hint:
        put(f"the column {one_line(hint)!r} stands before each question in its prompt")
    if not schema.tables:
        raise DataError(f"the database {database} has no tables; give the file that the queries are for")

    def made(problem: Problem, row: Mapping[str, Any]) -> Problem:
        hinted = str(row.get(hint) or "")
        prompt = make_prompt("omnisql", schema, database, as_text(problem.prompt), hinted, steps=not config.small)
        query = query_in(problem.answer) if isinstance(problem.answer, str) else problem.answer
        return replace(problem, prompt=prompt, answer=query)

    whole = [made(problem, row) for problem, (_, row) in zip(problems, placed, strict=True)]
    if taken := [before.id for before, after in zip(problems, whole, strict=True) if before.answer != after.answer]:
        more = f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else ""
        put(
            f"queries read out of a fence, out of tags or after a label: {len(taken)}: "
            f"{one_line(', '.join(taken[:_SHOWN]))}{more}"
        )
    return whole


def _refuse_unclear(
    config: InitConfig, placed: Sequence[tuple[str, dict[str, Any]]], columns: Mapping[str, str]
) -> None:
    """Raises RowsError for rows in which two columns could be meant, and for those that ask for a verifier which the
    commands of the new folder lack: they run without plug-ins and reward functions."""
    faults: list[str] = []
    named = {text.partition("=")[0] for text in config.columns}
    known = [name for name in VERIFIERS if name != "function"]
    for where, row in placed:
        try:
            for name in ("prompt", "answer"):
                if name not in named and columns[name] in row:
                    refuse_twins(row, columns[name], where, f"--columns {name}=COLUMN")
            if "answer" not in named:
                refuse_two_answers(row, columns["answer"], where, "--columns answer=COLUMN")
        except DataError as error:
            faults.append(str(error))
        wanted = next((value for name, value in row.items() if name.lower() == "verifier" and value), None)
        if wanted is not None and wanted not in known:
            faults.append(
                f"{where}: dph init knows the verifiers {', '.join(known)}, not {shown_value(wanted)}; leave the "
                "column 'verifier' out, or write the settings yourself, with plugins or reward.function"
            )
    if faults:
        raise RowsError(faults)


def _of_one_database(
    questions: Path, placed: Sequence[tuple[str, dict[str, Any]]], database: Path
) -> list[tuple[str, dict[str, Any]]]:
    """The rows without the column that names their database, because all rows belong to the given database. Raises
    DataError if the rows name several databases."""
    columns = dict.fromkeys(name for _, row in placed for name in row if is_named(name, "database"))
    for column in columns:
        names = dict.fromkeys(str(row[column]) for _, row in placed if row.get(column) not in (None, ""))
        if len(names) > 1:
            some = f"{', '.join([*names][:5])}{' and more' if len(names) > 5 else ''}"
            raise DataError(
                f"{questions}: the column {column!r} names {len(names)} databases ({some}), and dph init takes one; "
                "run it once for each, with the rows of that database in a file of their own"
            )
        if names and not {*names} & {str(database), database.name, database.stem}:
            other = one_line(", ".join(names))
            put(f"the column {one_line(column)!r} names {other!r}; all rows are taken for {database.name}")
    return [(where, {name: row[name] for name in row if name not in columns}) for where, row in placed]


def _columns(config: InitConfig, path: Path, row: Mapping[str, Any]) -> dict[str, str]:
    """The columns of prompt, answer and id: those that the settings name, and otherwise those with usual names. row:
    for each column that has values, one of them."""
    usual = {"prompt": PROMPTS, "answer": _ANSWERS[config.kind], "id": () if "id" in row else ("question_id",)}
    named = {name: column for name, _, column in (text.partition("=") for text in config.columns)}
    if wrong := [name for name, column in named.items() if name not in usual or not column]:
        raise SettingsError(f"--columns takes prompt=COLUMN, answer=COLUMN and id=COLUMN, not {wrong[0]!r}")
    columns = {name: named.get(name) or usual_column(row, names) for name, names in usual.items()}
    for name, column in columns.items():
        if column not in row and (column or name != "id"):
            fault = f"no column {column!r}" if column else f"no column for the {name} ({', '.join(usual[name])})"
            raise DataError(f"{path} has {fault}; it has: {', '.join(row)}; name one with --columns {name}=COLUMN")
    return columns


def _boxed(problem: Problem, instruction: str) -> Problem:
    """A problem of mathematics whose prompt asks for the answer in a box, and whose gold answer is the answer alone."""
    answer = read_answer(problem.answer)
    boxed = replace(problem, answer="" if answer is None else answer)
    if r"\boxed" in as_text(problem.prompt):
        return boxed
    if isinstance(problem.prompt, str):
        return replace(boxed, prompt=f"{problem.prompt}\n{instruction}")
    *before, last = problem.prompt
    return replace(boxed, prompt=(*before, Message(**{**last, "content": f"{last['content']}\n{instruction}"})))


def _in_test(problems: Sequence[Problem], share: float) -> set[str]:
    """The ids of the problems for tests.

    The id alone decides whether a problem is a test. Of problems that ask the same question, the first id decides for
    all, so that no test question is trained on. If there are several questions, each split has at least one.
    """
    leader: dict[str, str] = {}
    for problem in sorted(problems, key=lambda problem: (len(problem.id), problem.id)):
        leader.setdefault(asked(problem), problem.id)
    digests = {id: hashlib.sha256(f"0\0test\0{id}".encode()).digest() for id in leader.values()}
    ordered = sorted(digests, key=digests.__getitem__)
    count = sum(int.from_bytes(digest[:8]) < share * 2**64 for digest in digests.values())
    chosen = set(ordered[: min(max(count, 1), len(ordered) - 1) if share else 0])
    return {problem.id for problem in problems if leader[asked(problem)] in chosen}


def _row(problem: Problem) -> dict[str, Any]:
    row = {name: getattr(problem, name) for name in ("id", "prompt", "answer", "verifier")}
    row |= {name: problem.meta[name] for name in _KEPT if name in problem.meta}
    return row | ({"db": Path(problem.meta["db"]).name} if problem.verifier == "sql" else {})
