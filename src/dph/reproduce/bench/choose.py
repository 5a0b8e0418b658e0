"""The rule that chooses two settings of each method on development worlds, and the file that records the choice."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from dph.errors import UserError
from dph.reproduce.bench.design import Rule
from dph.runs.files import write_atomically

ROLES = ("accurate", "diverse")


@dataclass(frozen=True, slots=True)
class Point:
    """What a setting reaches on development worlds, as shares."""

    greedy: float
    coverage: float
    """pass@k at the rule's k."""


Points = Mapping[str, Mapping[str, Point]]
"""By method and by the name of the setting."""


def chosen(points: Mapping[str, Point], target: float, rule: Rule) -> dict[str, str]:
    """The setting of a method for each role."""
    return {role: _best(points, target - slack) for role, slack in zip(ROLES, (rule.near, rule.far), strict=True)}


def _best(points: Mapping[str, Point], least: float) -> str:
    """The highest coverage among the settings that are accurate enough; if none is, the most accurate one. The first
    of equals."""
    able = {name: point for name, point in points.items() if point.greedy >= least}
    if able:
        return max(able, key=lambda name: able[name].coverage)
    return max(points, key=lambda name: (points[name].greedy, points[name].coverage))


def target_of(points: Points, rule: Rule) -> float:
    """The greedy accuracy of the tuned target method."""
    return max(point.greedy for point in points[rule.target].values())


def halved(points: Points, rule: Rule) -> dict[str, list[str]]:
    """The settings of each method that go on to the next world, in the order in which they were given."""
    target = target_of(points, rule)
    kept: dict[str, list[str]] = {}
    for method, found in points.items():
        staying = set(chosen(found, target, rule).values())
        rest = sorted(found, key=lambda name: -(found[name].greedy + found[name].coverage))
        for name in rest:
            if len(staying) < (len(found) + 1) // 2:
                staying.add(name)
        kept[method] = [name for name in found if name in staying]
    return kept


def freeze(points: Points, rule: Rule) -> dict[str, dict[str, str]]:
    """The setting of each method and role, from the means over the development worlds."""
    target = target_of(points, rule)
    return {method: chosen(found, target, rule) for method, found in points.items()}


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
            raise ValueError(f"each method needs {' and '.join(ROLES)}")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the chosen settings {path}: {error}") from error
    return found
