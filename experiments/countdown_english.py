"""Countdown in plain English, for pretrained models: the problems and the verifier of the task `countdown`."""

from dataclasses import replace
from typing import Any

from dph.tasks import register_task
from dph.tasks.countdown import Countdown
from dph.types import Problem, as_text


def in_english(prompt: str) -> str:
    """A prompt of the task `countdown`, such as 3,4,8,9>15:, as a question."""
    numbers, target = prompt.rstrip(":").split(">")
    *first, last = numbers.split(",")
    return (
        f"Use some of the numbers {', '.join(first)} and {last}, each at most once, with + - * / and brackets, to make "
        f"{target}. Write only the expression."
    )


@register_task("countdown_english")
class CountdownEnglish(Countdown):
    """It has the splits, options and styles of `countdown`; only the prompts differ."""

    def problems(self, split: str) -> list[Problem]:
        return [replace(one, prompt=in_english(as_text(one.prompt))) for one in super().problems(split)]

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        return [row | {"prompt": in_english(row["prompt"])} for row in super().demonstrations(count, seed)]
