"""Problems in another engine: JSON in a column of its data set, which the reward function reads back."""

import json

from dph.types import Problem


def problem_json(problem: Problem) -> str:
    """What a verifier needs of a problem: all but its prompt."""
    facts = {"id": problem.id, "answer": problem.answer, "verifier": problem.verifier, "meta": dict(problem.meta)}
    return json.dumps(facts, ensure_ascii=False)


def read_problem(text: str) -> Problem:
    """The problem that `problem_json` wrote, with an empty prompt."""
    return Problem(prompt="", **json.loads(text))
