"""The rule that chooses settings of each method on development worlds, and the file that records the choice."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from dph.errors import UserError
from dph.runs.files import write_atomically
from experiments.bench.design import Rule
from experiments.bench.merit import Place, hypervolume

ROLES: tuple[str, ...] = ("accurate", "diverse", "sampled")


@dataclass(frozen=True, slots=True)
class Point:
    """What a setting reaches on development worlds, as shares."""

    greedy: float
    mean: float
    """mean@n."""
    coverage: float
    """pass@k at the rule's k."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the tuned target method reaches, each with a setting of its own."""

    greedy: float
    mean: float


Points = Mapping[str, Mapping[str, Point]]
"""By method and by the name of the setting."""


def chosen(points: Mapping[str, Point], target: Target, rule: Rule) -> dict[str, str]:
    """The setting of a method for each role."""
    greedy = {name: (point.greedy, point.coverage) for name, point in points.items()}
    mean = {name: (point.mean, point.coverage) for name, point in points.items()}
    found = (
        _best(greedy, target.greedy - rule.near),
        _best(greedy, target.greedy - rule.far),
        _best(mean, target.mean - rule.far),
    )
    return dict(zip(ROLES, found, strict=True))


def _best(places: Mapping[str, Place], least: float) -> str:
    """The highest coverage among the settings that are accurate enough; if none is, the most accurate one. The first
    of equals."""
    able = {name: coverage for name, (accuracy, coverage) in places.items() if accuracy >= least}
    if able:
        return max(able, key=lambda name: able[name])
    return max(places, key=lambda name: places[name])


def target_of(points: Points, rule: Rule) -> Target:
    """The highest accuracies of the target method."""
    found = points[rule.target].values()
    return Target(max(point.greedy for point in found), max(point.mean for point in found))


def halved(points: Points, rule: Rule) -> dict[str, list[str]]:
    """The settings of each of the best methods that go on to the next world, in the order in which they were given."""
    target = target_of(points, rule)
    kept: dict[str, list[str]] = {}
    for method in best_methods(points, rule):
        found = points[method]
        staying = set(chosen(found, target, rule).values())
        rest = sorted(found, key=lambda name: -(found[name].greedy + found[name].coverage))
        for name in rest:
            if len(staying) < (len(found) + 1) // 2:
                staying.add(name)
        kept[method] = [name for name in found if name in staying]
    return kept


def freeze(points: Points, rule: Rule) -> dict[str, dict[str, str]]:
    """The setting of each role, from the means over the development worlds, of each method that goes on to the test."""
    target = target_of(points, rule)
    return {method: chosen(points[method], target, rule) for method in best_methods(points, rule)}


def best_methods(points: Points, rule: Rule) -> list[str]:
    """The methods that the rule always tests, and of the others those with the highest hypervolume of mean@n and
    coverage."""
    volumes = {
        method: hypervolume([(point.mean, point.coverage) for point in found.values()], rule.corner)
        for method, found in points.items()
        if method not in rule.always
    }
    best = sorted(volumes, key=lambda method: -volumes[method])[: rule.others]
    return [method for method in points if method in rule.always or method in best]


def write_frozen(frozen: Mapping[str, Mapping[str, str]], path: Path) -> None:
    """Write the choice, or add methods to it. Raises UserError if it would change a method that is there already."""
    before = read_frozen(path) if path.exists() else {}
    for method, roles in frozen.items():
        if before.get(method, roles) != roles:
            raise UserError(f"{path} holds another choice for {method}; a choice is final: use a different --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tomli_w.dumps({**before, **frozen}))


def read_frozen(path: Path) -> dict[str, dict[str, str]]:
    """The recorded choice. Raises UserError when the file cannot be read."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(roles, dict) and set(roles) == set(ROLES) for roles in found.values()):
            raise ValueError(f"each method needs {', '.join(ROLES[:-1])} and {ROLES[-1]}")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the chosen settings {path}: {error}") from error
    return found
