"""Supervised demonstrations, which teach the base model five styles and both readings."""

import random

from dph.tasks.minisql.arithmetic import Sum
from dph.tasks.minisql.kinds import KINDS
from dph.tasks.minisql.questions import Question
from dph.tasks.minisql.world import ask
from dph.tasks.styles import STYLES, Style, required_form, respond

STYLE_WEIGHTS: dict[Style, float] = {"direct": 0.28, "plan": 0.18, "cte": 0.18, "nested": 0.18, "stepwise": 0.18}
"""How often each style is shown."""
SECOND_READING: dict[Style, float] = {"direct": 0.40, "plan": 0.42, "cte": 0.48, "nested": 0.52, "stepwise": 0.45}
"""How often each style follows the second reading: below one half overall, so that the base model's greedy answer is
mostly the first reading, and unequal, so that a reward for the second reading also shifts the styles."""
MATH_SHARE = 0.15


def response(question: Question, style: Style, *, second: bool) -> str:
    """The response to a question in a style and a reading. The plan and the steps do not reveal the reading."""
    query = question.second if second else question.first
    return respond(style, query.sql(required_form(style)), question.tables, question.first.outputs)


def demonstrate(rng: random.Random, sums: list[Sum]) -> dict[str, str]:
    """One row {prompt, response}: a SQL question in a random style and reading, or one of `sums`."""
    if rng.random() < MATH_SHARE:
        drawn = rng.choice(sums)
        return {"prompt": drawn.prompt, "response": drawn.response}
    asked = ask(rng, rng.choice(KINDS))
    style = rng.choices(STYLES, [STYLE_WEIGHTS[style] for style in STYLES])[0]
    second = rng.random() < SECOND_READING[style]
    return {"prompt": asked.prompt, "response": response(asked.question, style, second=second)}
