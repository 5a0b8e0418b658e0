"""Reads files of predictions (Spider's and BIRD's formats, or rows: docs/guides/verifiers.md) and pairs predictions
with problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dph.errors import DataError, SettingsError
from dph.tasks import register_task
from dph.tasks.sql.data import Databases, Question, SqlTask, read_gold
from dph.tasks.tables import parse_file, read_rows, read_text
from dph.types import Problem

Key = Literal["id", "position", "number"]

TEXTS = ("response", "responses", "code", "completion", "completions", "output", "outputs", "text", "generation")
"""Columns with full responses, in the order of preference."""
BARE = ("pred", "preds", "prediction", "predictions", "predicted_sql", "pred_sql", "sql", "SQL")
"""Columns with only the SQL or the answer."""

_ROWS = (".jsonl", ".jsonl.gz", ".parquet")
_KEYS: tuple[tuple[str, Key], ...] = (
    ("id", "id"), ("problem_id", "id"), ("question_id", "number"), ("index", "position"), ("i", "position"),
    ("idx", "position"),
)  # fmt: skip
_BIRD = "\t----- bird -----\t"
_NOTHING = " "  # what BIRD's evaluator executes if a prediction is not text


@dataclass(frozen=True, slots=True)
class Prediction:
    """One sample for one problem."""

    by: Key
    """What the key is: the problem's id, its position among the questions, or its number (see `pair`)."""
    key: str
    text: str
    bare: bool
    """The text is the SQL or the answer itself; otherwise it is a response that contains it."""
    db_id: str = ""
    """The database that the file names, if any."""


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """The contents of a file of predictions."""

    kind: Literal["lines", "bird", "rows"]
    predictions: list[Prediction]


def read_predictions(path: Path, count: int | None, field: str = "") -> PredictionFile:
    """Read a file of predictions.

    Args:
        count: number of questions, which distinguishes empty lines between dialogues from missing predictions.
        field: the column to read, if rows have several possible ones.
    Raises:
        UserError: the file is missing, damaged or in an unknown format.
    """
    name = path.name.lower()
    if name.endswith(_ROWS):
        return PredictionFile("rows", _from_rows(path, read_rows(path), field))
    text = read_text(path)
    if not name.endswith(".json"):
        return PredictionFile("lines", _from_lines(text, count))
    if text.lstrip().startswith("{"):
        return PredictionFile("bird", _from_bird(path, parse_file(path, text), count))
    return PredictionFile("rows", _from_rows(path, read_rows(path), field))


def _from_lines(text: str, count: int | None) -> list[Prediction]:
    lines = text.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if count is None or len(lines) != count:
        lines = [line for line in lines if line.strip()]
    predictions = []
    for number, line in enumerate(lines):
        sql, *rest = line.strip("\r").split("\t")
        predictions.append(Prediction("position", str(number), sql.strip(), True, rest[0].strip() if rest else ""))
    return predictions


def _from_bird(path: Path, data: Mapping[str, Any], count: int | None) -> list[Prediction]:
    """The official evaluator pairs by order; a file with only some of the predictions is paired by its keys."""
    predictions = []
    for number, (key, value) in enumerate(data.items()):
        if len(data) != count and not key.isdecimal():
            raise DataError(
                f"{path}: the key {key!r} is not a position, and the file does not have all {count} questions"
            )
        text = value if isinstance(value, str) else _NOTHING
        sql, _, db_id = text.partition(_BIRD)
        predictions.append(Prediction("position", str(number) if len(data) == count else key, sql, True, db_id.strip()))
    return predictions


def _from_rows(path: Path, rows: Sequence[Mapping[str, Any]], field: str) -> list[Prediction]:
    predictions = []
    for number, row in enumerate(rows):
        where = f"{path}, row {number + 1}"
        if row.get("sample") == -1:  # the greedy response in the completions of `dph eval`
            continue
        columns = [name for name in (*TEXTS, *BARE) if name in row]
        column = field or next((name for name in columns if row[name] is not None), columns[0] if columns else "")
        if column not in row:
            wanted = repr(field) if field else f"of {', '.join((*TEXTS, *BARE))}"
            raise DataError(f"{where}: no column {wanted}; it has: {', '.join(row)}")
        by, key = _key(row, number)
        values = row[column] if isinstance(row[column], list) else [row[column]]
        for value in values:
            text = "" if value is None else str(value)
            predictions.append(Prediction(by, key, text, column not in TEXTS, str(row.get("db_id") or "")))
    return predictions


def _key(row: Mapping[str, Any], number: int) -> tuple[Key, str]:
    for name, by in _KEYS:
        if row.get(name) is not None:
            return by, str(row[name])
    return "position", str(number)


@dataclass(frozen=True, slots=True)
class Pairing:
    """The predictions of each problem."""

    pairs: list[tuple[Problem, list[Prediction]]]
    """Problems that have predictions, in order."""
    without: list[Problem]
    """Problems without predictions."""
    unknown: list[Prediction]
    """Predictions for unknown problems."""


def pair(problems: Sequence[Problem], predictions: Sequence[Prediction]) -> Pairing:
    """Pair predictions with problems by id, position among the questions, or the question's number (at the end of the
    id, or "question_id" in the problem's meta).

    A question that a split repeats shares its predictions: each problem has an equal part of them, in order, or all of
    them if they cannot be divided evenly.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for place, problem in enumerate(problems):
        split, _, last = problem.id.rpartition("/")
        number = str(problem.meta.get("question_id", last))
        places["position", str(problem.meta.get("index", place))] = [place]
        places["id", problem.id] = [place]
        if number.isdecimal():
            same = places.setdefault(("number", str(int(number))), [])
            if not same or problems[same[0]].id.rpartition("/")[0] == split:
                same.append(place)
    keyed: dict[tuple[str, str], list[Prediction]] = {}
    unknown = []
    for prediction in predictions:
        key = (prediction.by, prediction.key)
        if key not in places and prediction.by == "id" and prediction.key.isdecimal():
            key = ("number", str(int(prediction.key)))
        if key in places:
            keyed.setdefault(key, []).append(prediction)
        else:
            unknown.append(prediction)
    by_place: dict[int, list[Prediction]] = {}
    for key, ordered in keyed.items():
        sharing = places[key]
        share = len(ordered) // len(sharing) if len(ordered) % len(sharing) == 0 else 0
        for turn, place in enumerate(sharing):
            by_place.setdefault(place, []).extend(ordered[turn * share : (turn + 1) * share] if share else ordered)
    pairs = [(problems[place], by_place[place]) for place in sorted(by_place)]
    return Pairing(pairs, [problem for place, problem in enumerate(problems) if place not in by_place], unknown)


@register_task("gold")
class Gold(SqlTask):
    """Problems with only a gold query and a database, for any split: predictions can be judged, but there are no
    prompts."""

    name = "gold"

    def __init__(
        self, *, gold: str = "", databases: str = "", test_suite: str = "", skip_missing: bool = False
    ) -> None:
        """gold: file with one line "SQL<TAB>db_id" per problem; databases: folder of <db>/<db>.sqlite; test_suite:
        folder of the test-suite databases; skip_missing: leave out problems whose database is missing. Raises UserError
        if one of the first two is missing."""
        if not gold or not databases:
            raise SettingsError(
                "no problems were named; add --task NAME --data FOLDER, or --gold FILE --databases FOLDER for SQL alone"
            )
        options = {"subset": True, "skip_missing": skip_missing, "test_suite": test_suite}
        super().__init__(root=databases, prompt_style=None, **options)
        self._queries = Path(gold)

    def questions(self, split: str) -> list[Question]:
        questions = []
        for index, (sql, db_id) in enumerate(read_gold(self._queries)):
            if not db_id:
                raise DataError(f"{self._queries}, query {index + 1}: no database; a line must be SQL<TAB>database")
            questions.append(Question(f"gold/{index:05d}", "", sql, db_id, meta={"index": index}))
        return questions

    def files(self, split: str) -> Databases:
        return Databases([Path(self.root)], [])

    def rated(self, split: str) -> bool:
        return True
