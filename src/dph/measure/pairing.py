"""Which problem each prediction of `dph verify` is for: by id, number, prompt, position or order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dph.errors import counted
from dph.measure.predicted import Asked
from dph.measure.predictions import Prediction
from dph.process.progress import say
from dph.types import Problem


@dataclass(frozen=True, slots=True)
class Pairing:
    """The predictions of each problem."""

    pairs: list[tuple[Problem, list[Prediction]]]
    """Problems that have predictions, in order."""
    without: list[Problem]
    """Problems without predictions."""
    unknown: list[Prediction]
    """Predictions for unknown problems."""


def by_prompt(problems: Sequence[Problem], predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions, of which those of rows without an id are paired by their prompts if each is that of one problem,
    else by order. Raises DataError for a row whose prompt is not that of its problem."""
    asked = Asked(problems, [prediction.prompts for prediction in predictions if prediction.prompts])
    unnamed = [prediction for prediction in predictions if prediction.by == "order"]
    found = {prediction.where: asked.problem_of(prediction.prompts) for prediction in unnamed}
    together = bool(unnamed) and None not in found.values()
    if unnamed:
        rows = f"{unnamed[0].where.rpartition(', row ')[0]}: {counted(len(found), 'row')} without an id"
        say(f"{rows}, paired by {'prompt' if together else 'order'}")
    if together:
        predictions = [
            replace(prediction, by="id", key=found[prediction.where] or "") if prediction.by == "order" else prediction
            for prediction in predictions
        ]
    for problem, of_problem in pair(problems, predictions).pairs:
        for prediction in of_problem:
            asked.check(prediction.where, prediction.prompts, problem)
    return list(predictions)


def pair(problems: Sequence[Problem], predictions: Sequence[Prediction]) -> Pairing:
    """Pair predictions with problems by id, position among the questions, or the question's number (at the end of the
    id, or "question_id" in the problem's meta). Of a question that a split repeats, each problem has an equal part of
    the predictions, in order, or all of them if they cannot be divided evenly."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, problem in enumerate(problems):
        split, _, last = problem.id.rpartition("/")
        number = str(problem.meta.get("question_id", last))
        position = str(problem.meta.get("index", place))
        places["position", position] = places["line", position] = places["order", position] = [place]
        places["id", problem.id] = [place]
        if number.isdecimal():
            same = places.setdefault(("number", str(int(number))), [])
            if not same or problems[same[0]].id.rpartition("/")[0] == split:
                same.append(place)
    keyed: dict[tuple[str, str], list[Prediction]] = {}
    unknown = []
    for prediction in predictions:
        name = prediction.key
        if (prediction.by, name) not in places:
            name = name.removesuffix(".0")  # as a table of text writes whole numbers
        key = (prediction.by, name)
        if key not in places and prediction.by == "id" and name.isdecimal():
            key = ("number", str(int(name)))
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
