# pyright: reportMissingImports=false
"""The exploration set of a presample run as TRL's dataset, and this package's verifiers as TRL's reward function."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from dph.build import load_plugin, load_problems, make_verifiers
from dph.config import TaskConfig, VerifierConfig, from_dict
from dph.errors import UserError
from dph.models.policy import render_prompt
from dph.rehearsal.check import open_presampled
from dph.rehearsal.partition import training_problems
from dph.rewards import text_of, with_calls
from dph.types import as_messages, as_text, problem_json, read_problem
from dph.verifiers.sql.tool import SqlTool, database_of


def exploration_set(path: str | Path, tokenizer: Any, plugins: Sequence[str] = ()) -> Dataset:
    """D_exp of a presample run, in the columns `prompt` and `problem` (JSON, for `VerifierReward`).

    As in `dph presample`, prompts are conversations if the tokenizer has a chat template, and plain text if not.
    plugins: Python files or modules that register the run's task.

    Raises UserError for a run that is not complete, has an empty exploration set, or sampled other problems, and for a
    prompt that the chat template cannot render.
    """
    for plugin in plugins:
        load_plugin(plugin)
    task = from_dict(TaskConfig, open_presampled(Path(path)).manifest["task"])
    chosen = training_problems(str(path), task, "explore", load_problems(task)[1])
    form = as_messages if getattr(tokenizer, "chat_template", None) else as_text
    if form is as_messages:
        for problem in chosen:  # TRL does so later, without a limit
            render_prompt(tokenizer, problem.prompt)
    return Dataset.from_list([{"prompt": form(one.prompt), "problem": problem_json(one)} for one in chosen])


class SqlEnvironment:
    """`environment_factory` of TRL: the tool `query` on the database of each row's problem. `VerifierReward` judges the
    last message. Instances share the worker processes of `tool`; a subclass may have another `SqlTool`."""

    tool = SqlTool()

    def reset(self, problem: str, **_: Any) -> None:
        """Begin an episode. problem: the column of `exploration_set`."""
        self._database = database_of(read_problem(problem))

    def query(self, sql: str) -> str:
        """Run a read-only SQL query on the database of the question.

        Args:
            sql: The query, in SQLite's dialect.

        Returns:
            The names of the columns and the first rows, or an error.
        """
        return self.tool.query(self._database, sql)


class VerifierReward:
    """A reward function for GRPOTrainer: the verifiers' rewards, or None if the judging itself failed."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        self.__name__ = "verifier"
        config = config or VerifierConfig()
        self._verifiers = make_verifiers(config)
        self._text = with_calls if config.reward == "paper" else text_of

    def __call__(self, completions: Sequence[Any], problem: Sequence[str] = (), **_: Any) -> list[float | None]:
        """completions: texts, or conversations whose last message is the response; the scheme `paper` also pays for a
        call of the SQL tool in an earlier one. problem: the column of `exploration_set`; UserError without it."""
        if not problem:
            raise UserError(
                "VerifierReward judges by the column `problem`, which the dataset lacks; make it with exploration_set, "
                "or give a reward function of your own"
            )
        items = zip(map(read_problem, problem), map(self._text, completions), strict=True)
        verdicts = self._verifiers.verify(list(items))
        return [verdict.reward if verdict.scored else None for verdict in verdicts]

    def close(self) -> None:
        """Stop the verifiers' worker processes."""
        self._verifiers.close()
