"""How the columns of a row become a prompt, an answer and what a verifier reads; what nothing reads is named."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dph.columns import MISSING, NAMES, OF_VERIFIERS, ignored, is_empty, is_named, media_of
from dph.errors import DataError, RowsError, SettingsError, counted
from dph.process.progress import say
from dph.tasks import Task
from dph.tasks.doubts import accepted, is_sum, refuse_unseen_choices, refuse_wrong_answer
from dph.tasks.prompts import messages_in, read_prompt, row_variables
from dph.tasks.sql.data import json_meta
from dph.tasks.tables import absent
from dph.types import TEMPLATE_COLUMN, Message, Problem, as_messages, as_text
from dph.verifiers.exact import gold_fault, gold_list, gold_text, plain_gold, shown_value

_TAKEN = {"id", "prompt", "messages", "answer", "verifier", "reward_model", TEMPLATE_COLUMN}
"""Columns that are never passed to the verifier as they are."""
_BUILT_IN = ("sql", "math", "exact")
_VERL_ANSWER = "reward_model.ground_truth"
_CASELESS = {"id", "verifier", "db", "db_id", "reward_model"}
_FIELD = re.compile(r"\\[A-Za-z]{2,}(?:\{[^{}]*\})+|\{([^{}]+)\}")  # of TeX, or a column
_LINKED = re.compile(r"!\[[^\]\n]{0,200}\]\([^)\n]{1,2000}\)|\\includegraphics|<img\s")
"""What shows a picture in Markdown, TeX and HTML."""
_HTML = re.compile(r"&(?:nbsp|lt|gt|amp|quot|#x?[\da-fA-F]+);|</(?:p|b|i|em|strong|span|div|sup|sub)>|<br\s*/?>")
PROMPTS, _ANSWERS = NAMES["prompt"], NAMES["answer"]
"""Usual names of the columns of prompts and of answers; the first that has a value is used."""


@dataclass(kw_only=True)
class RowTask(Task):
    """A task whose problems are rows, with the names of their columns (docs/guides/problems.md says what each option
    does). Raises UserError for a pattern that cannot be used."""

    usual_id: ClassVar[str] = ""
    """The column with ids, if a row has it and no other is named."""
    prompt: str = ""
    answer: str = ""
    answer_pattern: str = ""
    template: str = ""
    system: str = ""
    verifier: str = ""
    verifier_column: str = "verifier"
    id: str = ""
    db_root: str = ""
    db: str = ""
    skip_missing: bool = False

    def __post_init__(self) -> None:
        try:
            self._pattern = re.compile(self.answer_pattern) if self.answer_pattern else None
        except re.error as error:
            raise SettingsError(f"the option answer_pattern is not a regular expression: {error}") from error
        self._said = set[str]()

    def leave(self, *columns: str) -> None:
        """Say nothing about columns that the caller reads itself."""
        self._said |= {*columns}

    def read(self, rows: Iterable[tuple[str, str, dict[str, Any]]], roots: Sequence[Path]) -> list[Problem]:
        """The problems of rows, each with its place for messages and its id if no column has one; `roots`: where
        databases are looked for, after `db_root`. Says, once, which columns nothing reads, and how many prompts link to
        pictures. Raises RowsError with a sentence for each row that cannot be used, or whose id another row has."""
        roots = [Path(self.db_root), *roots] if self.db_root else roots
        problems: list[Problem] = []
        faults: list[str] = []
        places: dict[str, str] = {}
        unread: dict[str, None] = {}
        linked: list[str] = []
        tagged: list[str] = []
        left_out = 0
        for where, default_id, row in rows:
            row = row | {name.lower(): value for name, value in row.items() if name.lower() in _CASELESS - row.keys()}
            try:
                problem = self._problem(row, where, default_id, roots, unread)
            except DataError as error:
                if self.skip_missing and isinstance(error, _MissingDatabase):
                    left_out += 1
                    continue
                faults.append(str(error))
                continue
            if (first := places.setdefault(problem.id, where)) != where:
                faults.append(
                    f"{where}: the split holds the id {problem.id!r} twice; ids must be unique: {first} has it too; "
                    "change one, or name another column with the option id"
                )
            problems.append(problem)
            if _LINKED.search(as_text(problem.prompt)):
                linked.append(where)
            if _HTML.search(as_text(problem.prompt)):
                tagged.append(where)
        if len(problems) > 1 and is_sum(as_text(problems[-1].prompt)):
            last = as_text(problems[-1].prompt)
            faults.append(f"{[*places.values()][-1]}: the prompt is {last!r}, as in a row of sums; leave it out")
        if faults:
            raise RowsError(faults)
        if left_out:
            say(f"left out, because their databases are missing: {counted(left_out, 'row')}")
        if linked:
            link = "prompt links" if len(linked) == 1 else "prompts link"
            say(f"{len(linked)} {link} to pictures, which the model does not see (first: {linked[0]})")
        if tagged:
            holds = "prompt holds" if len(tagged) == 1 else "prompts hold"
            say(f"{len(tagged)} {holds} tags or entities of HTML, which the model reads too (first: {tagged[0]})")
        told = [name for name in unread if name not in self._said]
        if line := ignored([name for name in told if is_named(name, "beside the answer")], _UNITS):
            say(line)
        told = [name for name in told if not is_named(name, "beside the answer")]
        lost = [name for name in told if is_named(name, "beside the question")]
        if line := ignored(lost, "they may belong to the prompts: see the option template"):
            say(line)
        if line := ignored((name for name in told if name not in lost), _WHO):
            say(line)
        self._said |= unread.keys()
        return problems

    def _problem(
        self, row: Mapping[str, Any], where: str, default_id: str, roots: Sequence[Path], unread: dict[str, None]
    ) -> Problem:
        """unread: gets the names of columns and fields that nothing reads. Raises DataError for a row without a prompt,
        an answer that its verifier can use, or its database, and for one with pictures or sounds."""
        used = {self.verifier_column}
        prompt = self._prompt(row, where, used, unread)
        verifier = row.get(self.verifier_column) or self.verifier
        answer, extra = self._answer(row, where, used, needed=bool(verifier))
        if "gold_sql" in extra and not row.get(self.verifier_column):
            verifier = "sql"
        if not isinstance(verifier, str):
            raise DataError(f"{where}: 'verifier' must be a verifier's name, not {shown_value(verifier)}")
        if verifier in _BUILT_IN:
            answer = accepted(answer)
            golds = answer if isinstance(answer, list) else [answer]
            if golds and all(isinstance(gold, str) and gold.strip() in MISSING for gold in golds):
                raise DataError(
                    f"{where}: the answer is {golds[0].strip()!r}, which says that it is missing; write an answer, or "
                    "leave the row out"
                )
            if fault := gold_fault(answer):
                raise DataError(f"{where}: {fault}")
            answer = plain_gold(answer)
            refuse_wrong_answer(row, used, where)
            refuse_unseen_choices(row, as_text(prompt), answer, where)
        else:
            answer = json_meta({"answer": answer}, ()).get("answer")
        meta = {**json_meta(dict(row), _TAKEN), **{name: value for name, value in extra.items() if name != "gold_sql"}}
        if own := row_variables(row, where):
            meta[TEMPLATE_COLUMN] = own
        if verifier == "sql":
            named = row.get("db") or meta.get("db_id") or (str(Path(self.db).absolute()) if self.db else None)
            meta["db"] = _database(named, where, roots)
        used.add(self.usual_id)
        id = self._value(row, self.id, where, used) if self.id else row.get(self.usual_id)
        refuse_media(row, used, where)
        unread |= dict.fromkeys(_unread(row, used, unread, verifier))
        if not isinstance(id, str | int | None) or isinstance(id, bool):
            raise DataError(f"{where}: the id must be text or a whole number, not {shown_value(id)}")
        id = default_id if id is None or not str(id).strip() else str(id).strip()
        for what, held in (("the id", id), ("the prompt", as_text(prompt)), ("the answer", answer)):
            if any("\0" in text for text in gold_list(held) if isinstance(text, str)):
                raise DataError(f"{where}: {what} holds a NUL character, which no text has; remove it")
        return Problem(id, prompt, answer, verifier, meta)

    def _prompt(
        self, row: Mapping[str, Any], where: str, used: set[str], unread: dict[str, None]
    ) -> str | tuple[Message, ...]:
        value = self._filled(row, where, used) if self.template else self._usual_prompt(row, where, used)
        prompt = read_prompt(value, where, unread)
        if not self.system:
            return prompt
        if any(message["role"] == "system" for message in as_messages(prompt)):
            raise DataError(f"{where}: the prompt has a system message; leave out the option system, which adds one")
        return (Message(role="system", content=self.system), *as_messages(prompt))

    def _usual_prompt(self, row: Mapping[str, Any], where: str, used: set[str]) -> Any:
        name, further = self.prompt or usual_column(row, PROMPTS), usual_column(row, NAMES["input"])
        if not name:
            raise DataError(f"{where}: {absent(row, 'prompt', 'messages')}; name the column with the option prompt")
        if not self.prompt:
            refuse_twins(row, name, where, "the option prompt")
        prompt = self._value(row, name, where, used)
        if _is_blank(prompt) or (isinstance(prompt, str) and prompt.strip() in MISSING):
            raise DataError(f"{where}: {name} is null or empty; write a prompt, or leave the row out")
        more = row.get(further)
        if name.lower() == "instruction" and isinstance(more, str) and more.strip():
            used.add(further)
            return f"{prompt}\n\n{more}"
        return prompt

    def _filled(self, row: Mapping[str, Any], where: str, used: set[str]) -> str:
        """The template with the row's values."""
        fields = [field for field in _FIELD.finditer(self.template) if field[1]]
        names = [field[1] for field in fields if field[1] in row or field[1].partition(".")[0] in row]
        if not names:
            raise SettingsError(f"{where}: the template names no column in braces; it has: {', '.join(row)}")
        for field in fields:
            meant = field[1].isidentifier() and self.template[: field.start()][-1:] not in ("^", "_", "\\")
            if meant and field[1] not in names:
                raise DataError(f"{where}: the template names {field[1]!r}, no column; it has: {', '.join(row)}")
        values = {name: self._value(row, name, where, used) for name in names}
        for name, value in values.items():
            if value is None:
                raise DataError(f"{where}: {name} is null or empty; write a prompt, or leave the row out")
            if isinstance(messages_in(value, where), list | dict):
                raise DataError(f"{where}: a template takes texts and numbers, and {name} is a list or has parts")
        return _FIELD.sub(lambda field: str(values.get(field[1], field[0])), self.template)

    def _answer(
        self, row: Mapping[str, Any], where: str, used: set[str], *, needed: bool
    ) -> tuple[Any, dict[str, Any]]:
        """The answer, None if only a reward function can judge the row, and the other fields of verl's ground truth."""
        model = row.get("reward_model")
        truth = model.get("ground_truth") if isinstance(model, dict) else None
        name = self.answer or usual_column(row, _ANSWERS if truth is None else _ANSWERS[:1])
        if name and not self.answer:
            refuse_twins(row, name, where, "the option answer")
        answer = self._value(row, name, where, used) if name else None
        if answer is None and truth is not None:
            used.add(_VERL_ANSWER)
        if answer is None and isinstance(truth, dict):
            if not isinstance(truth.get("gold_sql"), str):
                raise DataError(f"{where}: {_VERL_ANSWER} has no 'gold_sql'; it has: {', '.join(truth)}")
            return truth["gold_sql"], truth
        if answer is not None and not self.answer:
            refuse_two_answers(row, name, where, "the option answer")
        answer = truth if answer is None else answer
        if answer is None and needed:
            fault = absent(row, "answer", _VERL_ANSWER)
            if self.answer:
                fault = f"the column {name!r} is empty; write an answer, or leave the row out"
            raise DataError(f"{where}: {fault}")
        if self._pattern is None or answer is None:
            return answer, {}
        group = 1 if self._pattern.groups else 0
        matches = [match[group] for match in self._pattern.finditer(str(answer)) if match[group] is not None]
        if not matches:
            raise DataError(f"{where}: answer_pattern matches nothing in the answer {str(answer)[-80:]!r}")
        return matches[-1].strip(), {}

    def _value(self, row: Mapping[str, Any], name: str, where: str, used: set[str]) -> Any:
        used.add(name)
        if name in row:
            return row[name]
        value: Any = row
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise DataError(f"{where}: no column {name!r}; it has: {', '.join(row)}")
            value = value[key]
        return value


def usual_column(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The column with the first of some names, in any case, with a value if there is one; "" without such a column.

    >>> usual_column({"Question": "1 + 1?", "id": 1}, ("prompt", "question"))
    'Question'
    """
    found = [(lower, column) for column in row if (lower := column.lower()) in names]
    columns = [column for name in names for lower, column in found if lower == name]
    return next((column for column in columns if not _is_blank(row[column])), next(iter(columns), ""))


def refuse_twins(row: Mapping[str, Any], name: str, where: str, option: str) -> None:
    """Raises DataError if a column of the same name in other letters says something else: nobody knows which is
    meant."""
    for twin in row:
        if twin != name and twin.lower() == name.lower() and not _is_blank(row[twin]) and row[twin] != row[name]:
            raise DataError(f"{where}: the columns {name!r} and {twin!r} hold different values; name one with {option}")


def refuse_two_answers(row: Mapping[str, Any], name: str, where: str, option: str) -> None:
    """Raises DataError if verl's ground truth says something else than the column of answers: it is neither the answer
    nor stands at the end of a longer one, as of a solution."""
    model = row.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    truth = truth.get("gold_sql") if isinstance(truth, dict) else truth
    if truth is None or _is_blank(row.get(name)):
        return
    golds, said = ({gold_text(gold).strip() for gold in gold_list(given)} for given in (truth, row[name]))
    ends = (text.rstrip("}$.").endswith(gold) for text in said for gold in golds if len(text) > 2 * len(gold) + 4)
    if not golds & said and not any(ends):
        raise DataError(f"{where}: {name!r} and {_VERL_ANSWER!r} hold different answers; name one with {option}")


_UNITS = "they may belong to the answers, which are judged without them: write them into the answers"
_WHO = "a reward function of your own gets the columns"


def _unread(row: Mapping[str, Any], used: Collection[str], known: Collection[str], verifier: str) -> Iterator[str]:
    """The columns of a row that say something and that nothing reads, and such fields of a column of which another
    field is read; those that are `known` may be left out. A reward function and a plug-in's verifier read all columns
    that they are passed."""
    mine = OF_VERIFIERS.get(verifier)
    for column, value in row.items():
        if column in used or column in known or is_empty(value) or is_named(column, "template variables", "reported"):
            continue
        if isinstance(value, dict) and any(name.startswith(f"{column}.") for name in used):
            fields = (f"{column}.{field}" for field, inner in value.items() if not is_empty(inner))
            yield from (name for name in fields if not any(f"{read}.".startswith(f"{name}.") for read in used))
            continue
        copied = (lower := column.lower()) != column and lower in _CASELESS and row.get(lower) is value
        if copied or (mine is not None and column in mine):
            continue
        if mine is not None or column in _TAKEN or is_named(column, "of the prompt"):
            yield column


def refuse_media(row: Mapping[str, Any], used: Collection[str], where: str) -> None:
    """Raises DataError if a column of a row that is not used as text holds pictures, films or sounds."""
    if media := media_of(row, used):
        raise DataError(
            f"{where}: the column {media!r} holds pictures, films or sounds, and a prompt is text alone; leave the "
            "row out, or the column if the text says it all"
        )


def _is_blank(value: Any) -> bool:
    """Whether a value is null, text without a character, or a list that is empty or whose last message says nothing."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content", value)
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


class _MissingDatabase(DataError):
    """The database of a row is not there."""


def _database(name: Any, where: str, roots: Sequence[Path]) -> str:
    if not isinstance(name, str):
        but = "" if name is None else f" of text, not {shown_value(name)}"
        raise DataError(f"{where}: a problem for the SQL verifier needs a column 'db' or 'db_id'{but}")
    tried = [path for root in roots for path in (root / name, root / name / f"{name}.sqlite")]
    for path in tried:
        if os.path.isfile(path):  # unlike Path.is_file, it takes any text
            return str(path.absolute())
    raise _MissingDatabase(
        f"{where}: no database {name!r}; looked for {', '.join(dict.fromkeys(map(str, tried)))}; add it, or set the "
        "option skip_missing to leave such rows out"
    )
