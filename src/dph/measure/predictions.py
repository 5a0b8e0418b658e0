"""The predictions of `dph verify`: files (Spider's and BIRD's formats, or rows: docs/guides/verifiers.md), their
problems, and a summary of their verdicts by difficulty and by outcome.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dph.config import VerifyConfig
from dph.errors import DataError, RowsError, counted
from dph.measure.fields import field_text
from dph.measure.predicted import check_rows, prompts_of
from dph.process.progress import say
from dph.tasks.tables import KINDS, parse_file, read_rows, read_text
from dph.types import UNPARSED, UNSCORED, Outcome, Problem
from dph.verifiers.sql.rules import get_rule

Key = Literal["id", "line", "order", "position", "number"]

TEXTS = ("response", "responses", "code", "completion", "completions", "output", "outputs", "text", "generation")
"""Columns with full responses, in the order of preference."""
BARE = ("pred", "preds", "prediction", "predictions", "predicted_sql", "pred_sql", "sql", "SQL")
"""Columns with only the SQL or the answer."""

_KEYS: tuple[tuple[str, Key], ...] = (
    ("id", "id"), ("problem_id", "id"), ("question_id", "number"), ("index", "position"), ("i", "position"),
    ("idx", "position"),
)  # fmt: skip
_BIRD = "\t----- bird -----\t"


@dataclass(frozen=True, slots=True)
class Prediction:
    """One sample for one problem."""

    by: Key
    """Kinds of keys: the problem's id, its position among the questions (a file of lines has all), the place of a row
    without an id, or the problem's number."""
    key: str
    text: str
    bare: bool
    """The text is the SQL or the answer itself; otherwise it is a response that contains it."""
    db_id: str = ""
    """The database that the file names, if any."""
    missing: bool = False
    """Whether the file has null in its place."""
    prompts: tuple[str, ...] = ()
    """The prompts that its row names, as texts."""
    where: str = ""
    """Its row, for messages."""


def read_predictions(path: Path, count: int | None, field: str = "", ids: Collection[str] = ()) -> list[Prediction]:
    """The predictions of a file. Raises UserError if it is missing, damaged or in an unknown format.

    count: number of questions, which distinguishes empty lines between dialogues from missing predictions. field: the
    column to read, if rows have several possible ones. ids: of the problems, which may be the keys of an object.
    """
    name = path.name.lower()
    is_object = name.endswith(".json") and read_text(path).lstrip().startswith("{")
    if field and (is_object or not name.endswith(KINDS)):
        raise DataError(f"{path} has no columns, so that --column {field} names nothing; leave it out")
    if not name.endswith(KINDS):
        return _from_lines(read_text(path), count)
    if is_object:
        return _from_object(path, parse_file(path, read_text(path)), count, ids)
    try:
        return _from_rows(path, read_rows(path), field)
    except RowsError as error:  # whose message names a command that does not read this file
        first, *others = error.faults
        raise DataError(first + (f" (and {counted(len(others), 'more fault')})" if others else "")) from error


def _from_lines(text: str, count: int | None) -> list[Prediction]:
    lines = text.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if count is None or len(lines) != count:
        lines = [line for line in lines if line.strip()]
    predictions = []
    for number, line in enumerate(lines):
        sql, database, *_ = [*line.strip("\r").split("\t"), ""]
        predictions.append(Prediction("line", str(number), sql.strip(), True, database.strip()))
    return predictions


def _from_object(path: Path, data: Mapping[str, Any], count: int | None, ids: Collection[str]) -> list[Prediction]:
    """The keys are ids of problems, or positions. BIRD's evaluator pairs by order, whatever the keys are; a file with
    only some of the predictions is paired by its keys. A value is a text, a message, a list of these, or an object with
    a column of predictions. An object may also hold rows under one key, or columns."""
    if (rows := _rows_in(data, ids)) is not None:
        return _from_rows(path, rows, "")
    positions = [*data] == [str(number) for number in range(len(data))]
    by_id = all(key in ids for key in data) or (not positions and any(key in ids for key in data))
    if not (by_id or positions) and len(data) == count:
        say(f"{path}: its keys are neither ids nor positions in order, so predictions are paired by order")
    predictions: list[Prediction] = []
    for number, (key, value) in enumerate(data.items()):
        if len(data) != count and not key.isdecimal() and not by_id:
            lacks = f"the file lacks some of {counted(count or 0, 'question')}"
            raise DataError(f"{path}: the key {key!r} is not a position, and {lacks}")
        place = str(number) if len(data) == count and not by_id else key
        for text, bare in _texts_of(value, f"{path}, key {key!r}"):
            sql, _, db_id = (text or "").partition(_BIRD) if bare else (text or "", "", "")
            by: Key = "id" if by_id else "position"
            predictions.append(Prediction(by, place, sql, bare, db_id.strip(), text is None))
    return predictions


def _texts_of(value: Any, where: str) -> list[tuple[str | None, bool]]:
    """The predictions in the value of a key, and whether each is bare."""
    column = ""
    if isinstance(value, dict) and "content" not in value:
        column = _column(value) or ""
        if not column:
            raise DataError(f"{where}: no column of {', '.join((*TEXTS, *BARE))}; it has: {', '.join(value) or 'none'}")
        _check_column(value, column, where, "remove one of them")
        value = value[column]
    several = value if isinstance(value, list) and not _is_conversation(value) else [value]
    return [
        (None if item is None else _text(item, where), column not in TEXTS and not isinstance(item, list | dict))
        for item in several
    ]


def _column(row: Mapping[str, Any]) -> str | None:
    """The preferred column of predictions, one with a value before one without; None if a row has none."""
    columns = [name for name in (*TEXTS, *BARE) if name in row]
    return next((name for name in columns if row[name] is not None), columns[0] if columns else None)


def _check_column(row: Mapping[str, Any], column: str, where: str, choice: str) -> None:
    """Raises DataError if another column of the same kind holds something else. `sql` beside a prediction is the gold,
    and a bare answer beside a response is what was found in it."""
    for other in TEXTS if column in TEXTS else BARE:
        if row.get(other) not in (None, row[column]) and not (other.lower() == "sql" and column.startswith("pred")):
            raise DataError(f"{where}: {column!r} and {other!r} differ, and both may hold the prediction; {choice}")


def _rows_in(data: Mapping[str, Any], ids: Collection[str]) -> list[Mapping[str, Any]] | None:
    """The rows of an object that has them under its only list of them, or as columns; None if its keys are problems."""
    if any(key in ids for key in data):
        return None
    lists = {key: value for key, value in data.items() if isinstance(value, list) and value}
    rows = [value for value in lists.values() if all(isinstance(row, dict) and _column(row) for row in value)]
    if len(rows) == 1:
        return rows[0]
    if _column(lists) and _key(lists) and len({*map(len, lists.values())}) == 1:
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return None


def _from_rows(path: Path, rows: Sequence[Mapping[str, Any]], field: str) -> list[Prediction]:
    predictions, kept = list[Prediction](), list[tuple[str, str, Mapping[str, Any]]]()
    for number, row in enumerate(rows):
        where = f"{path}, row {number + 1}"
        if row.get("sample") == -1:  # the greedy response in the completions of `dph eval`
            continue
        column = field or _column(row) or ""
        if column not in row:
            wanted = repr(field) if field else f"of {', '.join((*TEXTS, *BARE))}"
            choice = "correct it" if field else "name the column of the predictions with --column"
            raise DataError(f"{where}: no column {wanted}; it has: {', '.join(row)}; {choice}")
        if not field:
            _check_column(row, column, where, f"choose one with --column, as --column {column}")
        key = _key(row)
        database, asked = str(row.get("db_id") or ""), prompts_of(row)
        kept += [(column, key[1], row)] if key else []
        for value in _values_of(row[column]):
            text = "" if value is None else _text(value, where)
            place = key or ("order", str(number))
            predictions.append(Prediction(*place, text, column not in TEXTS, database, value is None, asked, where))
    if kept:
        columns, keys, of_ids = zip(*kept, strict=True)
        shared = any(prediction.by == "number" for prediction in predictions)
        check_rows(path, of_ids, columns, (*TEXTS, *BARE), keys, shared=shared)
    return predictions


def _values_of(value: Any) -> list[Any]:
    """The predictions in a cell: one, or those of a list, also of a list of lists with one for each sample, as the
    `resps` of lm-eval are."""
    if not isinstance(value, list) or _is_conversation(value):
        return [value]
    if value and all(isinstance(each, list) and each and all(isinstance(one, str) for one in each) for each in value):
        return [one for each in value for one in each]
    return value


def _key(row: Mapping[str, Any]) -> tuple[Key, str] | None:
    for name, by in _KEYS:
        for column, value in row.items():
            if column.lower() == name and value is not None:
                return by, field_text(value).strip()
    return None


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) and "role" in turn for turn in value)


def _text(value: Any, where: str) -> str:
    """A prediction: a text, a number, a message or a conversation."""
    if not isinstance(value, list | dict):
        return str(value)
    from dph.rewards import text_of  # it loads asyncio

    try:
        return text_of(value if isinstance(value, list) or "content" in value else [None])
    except DataError as error:
        raise DataError(f"{where}: a prediction must be text, a number or messages, not {value!r:.100}") from error


_LEVELS = ("easy", "simple", "medium", "moderate", "hard", "challenging", "extra")
"""The difficulty levels of Spider and BIRD, from easy to hard; other levels follow in alphabetical order."""


Judged = tuple[Problem, list[dict[str, Any]]]
"""A problem, and a row of verdicts.jsonl for each of its predictions."""


def judged_rows(
    problem: Problem,
    texts: Sequence[str],
    verdicts: Sequence[Mapping[str, Any]],
    answers: Sequence[str | None],
    flags: Sequence[str],
) -> list[dict[str, Any]]:
    """The rows of a problem's predictions. verdicts: with the fields of `Verdict`; answers: those that were judged;
    flags: why the gold answer may judge wrongly."""
    difficulty, db_id = str(problem.meta.get("difficulty", "")), problem.meta.get("db_id")
    return [
        {
            "id": problem.id,
            "sample": sample,
            "outcome": str(verdict["outcome"]),
            "correct": verdict["outcome"] == Outcome.CORRECT,
            "reward": verdict["reward"],
            "detail": verdict["detail"],
            "difficulty": difficulty,
            "db_id": db_id,
            "gold_flags": [str(flag) for flag in flags],
            "prediction": text,
            "extracted_answer": answer,
            "gold": problem.answer,
        }
        for sample, (text, verdict, answer) in enumerate(zip(texts, verdicts, answers, strict=True))
    ]


def summarise_predictions(
    config: VerifyConfig, judged: Sequence[Judged], excluded: Mapping[str, str]
) -> dict[str, Any]:
    """The content of scores.json (layout: docs/guides/verify.md)."""
    every = [rows for _, rows in judged]
    samples = max(map(len, every))
    levels = sorted({rows[0]["difficulty"] for rows in every} - {""})
    levels.sort(key=lambda level: _LEVELS.index(level) if level in _LEVELS else len(_LEVELS))
    by_level = {level: [rows for rows in every if rows[0]["difficulty"] == level] for level in levels}
    return {
        "predictions": config.predictions,
        "task": config.task.name,
        "split": config.task.split,
        "rules": _rules(config, [problem for problem, _ in judged]),
        "problems": len(judged),
        "samples": samples,
        "metrics": _metrics(every, samples),
        "by_difficulty": {
            level: {"problems": len(items), "metrics": _metrics(items, samples)} for level, items in by_level.items()
        },
        "outcomes": dict(Counter(row["outcome"] for rows in every for row in rows).most_common()),
        "unparsed": sum(row["detail"] == UNPARSED for rows in every for row in rows),
        "gold_flags": dict(Counter(flag for rows in every for flag in rows[0]["gold_flags"]).most_common()),
        "excluded": dict(excluded),
    }


def _rules(config: VerifyConfig, problems: Sequence[Problem]) -> dict[str, str]:
    """The rule of each verifier that judged a problem."""
    rule = get_rule(config.verifier.comparator)
    sql = f"{rule.name}@{rule.version}" + (" keep_distinct" if config.verifier.keep_distinct else "")
    suite = ", on every test-suite database" if any("suite" in problem.meta for problem in problems) else ""
    named = {"sql": sql + suite, "math": config.verifier.policy}
    names = sorted({problem.verifier for problem in problems})
    return {name: named.get(name, name) for name in names}


def _metrics(items: Sequence[Sequence[Mapping[str, Any]]], samples: int) -> dict[str, Any]:
    """With one prediction per problem "accuracy", else mean@n and pass@k, with their intervals. A problem counts
    towards pass@k only if k of its predictions were judged, and towards the others only if one was; "problems" is the
    number of those that count, if some do not."""
    from dph.measure.intervals import mean_interval  # numpy takes a while, and the sums come last
    from dph.measure.passk import sample_metrics

    judged = [[row for row in rows if row["outcome"] not in UNSCORED] for rows in items]
    counts = [(len(rows), sum(row["correct"] for row in rows)) for rows in judged if rows]
    if not counts:
        return {}
    metrics = sample_metrics(counts, samples)
    if samples == 1:
        metrics = {"accuracy": metrics["mean@1"]}
    intervals = {name: (mean_interval(values), len(values)) for name, values in metrics.items()}
    return {
        name: {"mean": interval.estimate, "low": interval.low, "high": interval.high}
        | ({"problems": problems} if problems < len(items) else {})
        for name, (interval, problems) in intervals.items()
    }


def table_of(summary: Mapping[str, Any]) -> str:
    """The summary as text: a row for all problems and one per difficulty, then outcomes and remarks on gold answers."""
    rules = ", ".join(f"{task} by {rule}" for task, rule in summary["rules"].items())
    each = f", up to {summary['samples']} predictions each" if summary["samples"] > 1 else ""
    lines = [f"{summary['task']} {summary['split']}: {counted(summary['problems'], 'problem')}{each}; {rules}", ""]
    rows = {"all": {"problems": summary["problems"], "metrics": summary["metrics"]}, **summary["by_difficulty"]}
    names = list(summary["metrics"])
    cells = {name: [_cell(row["metrics"].get(metric)) for metric in names] for name, row in rows.items()}
    first, width = max(map(len, rows)), max([21, *(len(cell) for row in cells.values() for cell in row)])
    lines.append(f"{'':{first}}  problems" + "".join(f"  {name:>{width}}" for name in names))
    for name, row in rows.items():
        lines.append(f"{name:{first}}  {row['problems']:>8}" + "".join(f"  {cell:>{width}}" for cell in cells[name]))
    total = sum(summary["outcomes"].values())
    outcomes = [f"{name} {count} ({100 * count / total:.1f} %)" for name, count in summary["outcomes"].items()]
    lines += ["", "percent with 95 % intervals; outcomes: " + ", ".join(outcomes)]
    if summary["gold_flags"]:
        flagged = ", ".join(f"{count} {_FLAGS.get(name, name)}" for name, count in summary["gold_flags"].items())
        lines.append(f"doubtful gold queries: {flagged}")
    if summary["excluded"]:
        lines.append(f"left out because the gold answer fails: {counted(len(summary['excluded']), 'problem')}")
    unjudged = sum(summary["outcomes"].get(str(outcome), 0) for outcome in UNSCORED)
    if unjudged:
        lines.append(f"{counted(unjudged, 'prediction')} could not be judged and will not count")
    return "\n".join(lines)


_FLAGS = {
    "decimal_comma": "that may be numbers with a decimal comma",
    "empty": "with an empty result",
    "changes": "that ask for the time or for random numbers",
    "limit_ties": "whose LIMIT cuts through a tie",
    "order_ties": "whose ORDER BY leaves a tie",
}


def _cell(value: Mapping[str, float] | None) -> str:
    if value is None:
        return "–"
    over = f"; {counted(int(value['problems']), 'problem')}" if "problems" in value else ""
    return f"{100 * value['mean']:.1f} ({100 * value['low']:.1f}–{100 * value['high']:.1f}{over})"
