# pyright: reportMissingImports=false
"""What `dph presample` left to explore, as TRL's dataset, and this package's verifiers as TRL's reward function."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from dph.build import load_plugin, load_problems, make_verifiers
from dph.config.load import from_dict
from dph.config.schema import TaskConfig, VerifierConfig
from dph.errors import UserError
from dph.rehearsal.check import open_presampled
from dph.rehearsal.partition import partition_of
from dph.types import Message, Problem


def exploration_set(path: str | Path, tokenizer: Any, plugins: Sequence[str] = ()) -> Dataset:
    """The prompts of D_exp of a presample run, in the columns `prompt` and `problem` (JSON, for `Judged`).

    Prompts are conversations where the tokenizer has a chat template, else plain text, as `dph presample` read them.

    Args:
        plugins: Python files or modules that register the run's task.
    Raises UserError where the run is not complete or leaves nothing to explore.
    """
    for plugin in plugins:
        load_plugin(plugin)
    run = open_presampled(Path(path))
    sets = partition_of(run)
    _, problems = load_problems(from_dict(TaskConfig, run.manifest["task"]))
    chosen = [problem for problem in problems if sets.get(problem.id) == "explore"]
    if not chosen:
        raise UserError(f"the presample run {path} left no prompt to explore")
    chat = bool(getattr(tokenizer, "chat_template", None))
    return Dataset.from_list([{"prompt": _prompt(one.prompt, chat), "problem": _as_json(one)} for one in chosen])


def _prompt(prompt: str | Sequence[Message], chat: bool) -> Any:
    """As `Policy.encode_prompt` reads it: a conversation, or text."""
    if chat:
        return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(part) for part in prompt]
    return prompt if isinstance(prompt, str) else "\n\n".join(part["content"] for part in prompt)


def _as_json(problem: Problem) -> str:
    facts = {"id": problem.id, "answer": problem.answer, "verifier": problem.verifier, "meta": dict(problem.meta)}
    return json.dumps(facts, ensure_ascii=False)


class Judged:
    """A reward function for GRPOTrainer: the verifiers' rewards, None where the judging itself failed."""

    def __init__(self, config: VerifierConfig | None = None) -> None:
        self.__name__ = "judged"
        self._verifiers = make_verifiers(config or VerifierConfig())

    def __call__(self, completions: Sequence[Any], problem: Sequence[str], **_: Any) -> list[float | None]:
        """
        Args:
            completions: texts, or conversations of one message each.
            problem: the column of `exploration_set`.
        """
        texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
        parts = map(json.loads, problem)
        problems = [Problem(part["id"], "", part["answer"], part["verifier"], part["meta"]) for part in parts]
        verdicts = self._verifiers.verify(list(zip(problems, texts, strict=True)))
        return [verdict.reward if verdict.scored else None for verdict in verdicts]

    def close(self) -> None:
        """Stop the verifiers' worker processes."""
        self._verifiers.close()
