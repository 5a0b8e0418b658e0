# pyright: reportMissingImports=false
"""The exploration set of a presample run as TRL's dataset, and this package's verifiers as TRL's reward function."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset

from dph.config import TaskConfig, VerifierConfig, from_dict
from dph.engine import (
    Presampled,
    Rendering,
    encode_problem,
    load_plugin,
    load_problems,
    make_verifiers,
    refuse_own_variables,
)
from dph.errors import DataError, UserError
from dph.rewards import text_of, with_calls
from dph.rewards.unjudged import UnjudgedWatch, refuse_unjudgeable
from dph.types import Problem, Verdict, as_messages, as_text, problem_json, read_problem
from dph.verifiers.sql.tool import SqlTool, database_of


def exploration_set(
    path: str | Path,
    tokenizer: Any,
    plugins: Sequence[str] = (),
    prompt_set: Literal["explore", "all"] = "explore",
) -> Dataset:
    """D_exp of a presample run, in the columns `prompt` and `problem` (JSON, for `VerifierReward`).

    As in `dph presample`, prompts are conversations if the tokenizer has a chat template, and plain text if not.
    plugins: Python files or modules that register the run's task. prompt_set: "all" for the mastered prompts too, which
    a bank that begins with the run's responses needs.

    Raises UserError for a run that is not complete, has an empty exploration set, or sampled other problems, and for a
    prompt that the chat template cannot render or that sets variables of its own, which TRL does not read.
    """
    for plugin in plugins:
        load_plugin(plugin)
    presampled = Presampled.open(Path(path))
    manifest = presampled.run.manifest
    task = from_dict(TaskConfig, manifest["task"])
    chosen = presampled.training_problems(task, prompt_set, load_problems(task)[1])
    form = as_messages if getattr(tokenizer, "chat_template", None) else as_text
    refuse_own_variables(chosen, "GRPOTrainer", "DPHConfig(chat_template_kwargs=…)")
    if form is as_messages:
        for problem in chosen:  # TRL does so later, without a limit
            encode_problem(tokenizer, problem, Rendering.recorded(manifest))
    return Dataset.from_list([{"prompt": form(problem.prompt), "problem": problem_json(problem)} for problem in chosen])


class SqlEnvironment:
    """`environment_factory` of TRL: the tool `query` on the database of each row's problem. `VerifierReward` judges the
    last message. Instances share the worker processes of `tool`; a subclass may have another `SqlTool`."""

    tool = SqlTool()

    def reset(self, problem: str, **_: Any) -> None:
        """Begin an episode. problem: the column of `exploration_set`."""
        self._database = database_of(_problem(problem))

    def query(self, sql: str) -> str:
        """Run a read-only SQL query on the database of the question.

        Args:
            sql: The query, in SQLite's dialect.

        Returns:
            The names of the columns and the first rows, or an error.
        """
        return self.tool.query(self._database, sql)


_OWN_DATA = (
    'make the data set with exploration_set or, for one of your own, use dph.rewards.reward_function("math"), which '
    "reads the column `answer`"
)


def _problem(text: Any) -> Problem:
    """The problem in a value of the column `problem`. Raises UserError for another value, such as a question."""
    try:
        return read_problem(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"the column `problem` holds {text!r:.60}, not a problem as exploration_set writes it; {_OWN_DATA}"
        ) from error


class VerifierReward:
    """A reward function for GRPOTrainer: the verifiers' rewards, or None if the judging itself failed."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        self.__name__ = "verifier"
        config = config or VerifierConfig()
        self._verifiers = make_verifiers(config)
        self._text = with_calls if config.reward == "paper" else text_of
        self._watch = UnjudgedWatch()

    def __call__(self, completions: Sequence[Any], problem: Sequence[str] = (), **_: Any) -> list[float | None]:
        """completions: texts, or conversations whose last message is the response; the scheme `paper` also pays for a
        call of the SQL tool in an earlier one. problem: the column of `exploration_set`. Raises UserError without
        it, and if none of the first responses can be judged."""
        verdicts = self._verdicts(completions, problem)
        self._watch.note(verdicts)
        return [verdict.reward if verdict.scored else None for verdict in verdicts]

    def check_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises UserError if rows of a data set lack the column `problem`, or none of them can be judged."""
        problems = [row["problem"] for row in rows if row.get("problem") is not None]
        refuse_unjudgeable(self._verdicts([""] * len(problems), problems))

    def _verdicts(self, completions: Sequence[Any], problem: Sequence[str]) -> Sequence[Verdict]:
        if not problem:
            raise UserError(f"VerifierReward judges by the column `problem`, which the dataset lacks; {_OWN_DATA}")
        items = zip(map(_problem, problem), map(self._text, completions), strict=True)
        return self._verifiers.verify(list(items))

    def close(self) -> None:
        """Stop the verifiers' worker processes."""
        self._verifiers.close()
