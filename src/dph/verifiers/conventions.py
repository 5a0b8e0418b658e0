"""How a reward function of somebody else is called: by the names of its parameters (standard library only).

TRL calls f(prompts, completions, **columns) with lists, verl compute_score(data_source, solution_str, ground_truth,
extra_info) with one response or, in its batched form, with lists, OpenRLHF f(queries, prompts, labels), and this
package f(prompt, completion, **columns). A parameter's name says what it takes, and a plural that it takes a list.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dph.errors import UserError

_RESPONSE = (
    *("completion", "response", "solution_str", "model_output", "model_response", "prediction", "predict_str", "pred"),
    *("output", "generation", "generated", "generated_text", "candidate", "student_answer"),
)
_GOLD = (
    *("ground_truth", "gold", "gold_answer", "golden_answer", "reference", "reference_answer", "correct_answer"),
    *("true_answer", "expected", "expected_answer", "target", "label", "gt", "truth"),
)
_EITHER = ("answer", "solution")
"""The gold answer in most functions; in those that name the gold answer otherwise, the response."""
_WEAK = ("text", "queries")
"""The response, if no parameter has a clearer name: OpenRLHF's queries are prompts with their responses."""
_PROMPT = ("prompt", "question", "problem", "query", "instruction", "input")
_DATABASE = ("db", "db_path", "db_file", "database", "database_path", "sqlite_path", "db_id", "db_name")
_COLUMNS = ("answer", "solution", "ground_truth", "gold", "target", "label", "reference_answer")
"""Where data sets have the gold answer, for functions that take any column."""
_WRAP = "write def f(completion, answer) around it"

SOURCE = "HuggingFaceH4/MATH-500"
"""The data source that verl's dispatcher is told, which chooses its judge of mathematics."""


@dataclass(frozen=True, slots=True)
class Convention:
    """How a function is called."""

    roles: Mapping[str, str]
    """The role of each parameter that is given a value: response, gold, prompt, database, source or extra."""
    lists: bool
    """Whether every parameter takes a list with one entry per response."""
    any_column: bool
    """Whether the function takes further columns by name."""
    unnamed: Sequence[str] = ()
    """The parameters that a caller cannot name."""

    def __str__(self) -> str:
        """The call in words.

        >>> def accuracy(completions, solution, **kwargs): ...
        >>> str(convention_of(accuracy))
        'lists (completions = responses, solution = right answers)'
        """
        words = {"response": "responses", "gold": "right answers", "prompt": "prompts"}
        each = ", ".join(f"{name} = {words[role]}" for name, role in self.roles.items() if role in words)
        return f"{'lists' if self.lists else 'single responses'} ({each})"

    def arguments(
        self, response: Any, gold: str, prompt: str, database: str, columns: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of one call: those without a name, and the others.

        database: a file of SQLite, or "" for mathematics; columns: what the user adds by name."""
        query = prompt + (response if isinstance(response, str) else "")
        values = {"response": response, "gold": gold, "prompt": prompt, "query": query}
        held = dict.fromkeys(("db", "db_path"), database) if database else {}
        extra = {"question": prompt, "index": 0, "split": "test"} | held
        values |= {"source": SOURCE, "extra": extra, "database": database}
        named = {name: values[role] for name, role in self.roles.items()}
        if self.any_column:
            golds = dict.fromkeys(_COLUMNS, gold) if "gold" not in self.roles.values() else {}
            named = golds | held | {"prompts" if self.lists else "prompt": prompt, "id": "pair"} | named
        named |= columns
        if self.lists:
            named = {name: [value] for name, value in named.items()}
        return [named.pop(name) for name in self.unnamed if name in named], named


def convention_of(function: Callable[..., Any], given: Sequence[str] = ()) -> Convention:
    """How a function is called. given: columns that the user adds by name.

    Raises UserError if no parameter is known to take the response, or if one that needs a value is not known."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise UserError(f"the parameters of {function!r:.80} cannot be read; {_WRAP}") from error
    usual = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    roles = _roles([p.name for p in usual if p.name not in given])
    if "response" not in roles.values() and "query" not in roles.values():
        listed = ", ".join(p.name for p in usual) or "none"
        raise UserError(f"none of its parameters ({listed}) is known to take the response; {_WRAP}")
    if needed := [p.name for p in usual if p.default is p.empty and p.name not in (*roles, *given)]:
        raise UserError(f"what its parameter {needed[0]!r} takes is not known; give a value with --columns, or {_WRAP}")
    [response] = [name for name, role in roles.items() if role in ("response", "query")]
    return Convention(
        roles,
        lists=response == "queries" or response != _singular(response),
        any_column=any(p.kind is p.VAR_KEYWORD for p in parameters),
        unnamed=[p.name for p in usual if p.kind is p.POSITIONAL_ONLY],
    )


def _roles(names: Sequence[str]) -> dict[str, str]:
    """What each parameter takes, of those that are known."""

    def first(known: Sequence[str], besides: str = "") -> str:
        there = {_singular(name): name for name in reversed(names) if name != besides}
        return next((there[name] for name in known if name in there), "")

    response, gold = first(_RESPONSE), first(_GOLD)
    role = "response"
    if not response and (response := first(_WEAK)):
        role = "query" if response == "queries" else "response"
    either = [name for name in names if _singular(name) in _EITHER]
    if not response and either and (gold or len(either) > 1):
        response = either[0]
    gold = gold or first(_EITHER, response)
    roles = {response: role, gold: "gold", first(_PROMPT, response): "prompt"}
    roles |= {first(("data_source",)): "source", first(("extra_info",)): "extra", first(_DATABASE): "database"}
    return {name: roles[name] for name in names if name in roles}


def _singular(name: str) -> str:
    """The name of one of them: completion of completions."""
    known = (*_RESPONSE, *_GOLD, *_EITHER, *_PROMPT, *_DATABASE, "data_source", "extra_info", "text")
    return name[:-1] if name.endswith("s") and name[:-1] in known else name


def as_messages(response: str) -> list[dict[str, str]]:
    """A response as the conversation in which TRL hands it to reward functions."""
    return [{"role": "assistant", "content": response}]


def call_by(
    function: Callable[..., Any],
    convention: Convention,
    response: Any,
    gold: str,
    prompt: str,
    database: str,
    columns: Mapping[str, Any],
) -> float | None:
    """The reward of one response, None if the function gives none. Raises whatever the function raises, and TypeError
    or ValueError for what is no finite number."""
    unnamed, named = convention.arguments(response, gold, prompt, database, columns)
    found = function(*unnamed, **named)
    if inspect.isawaitable(found):
        found = asyncio.run(_awaited(found))
    if convention.lists:
        [found] = found  # one entry, of one response
    if isinstance(found, Mapping):  # verl's score and what it reports besides
        found = found["score"] if "score" in found else found["reward"]
    if isinstance(found, tuple):  # of a score and what explains it
        found = found[0]
    if found is None:
        return None
    if isinstance(found, str | bytes):
        raise TypeError(f"it returned {found!r:.60}, which is no number")
    number = float(found)
    if not math.isfinite(number):
        raise ValueError(f"it returned {number}, which is not finite")
    return number


async def _awaited(found: Any) -> Any:
    return await found
