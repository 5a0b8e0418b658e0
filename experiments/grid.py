"""Grids of experiments: which methods are trained from which base, with which settings and seeds.

A grid is a TOML file of the folder `grids`. It names base models, rehearsal stores, arms (a method preset with settings
of its own) and sweeps (one setting of an arm varied). Reading it checks that all arms have equal budgets.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from dph.config import flatten, is_settings_file, merge_settings, preset_label, preset_names
from dph.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
"""The repository, in which grids name files of worlds."""

GRIDS = Path(__file__).parent / "grids"
_GPU = "_gpu"
"""Ending of the name of a grid's larger version."""


Tier = Literal["core", "wide", "more"]
TIERS: tuple[Tier, ...] = get_args(Tier)

_BUDGET = ("steps", "rollout.prompts", "rollout.n", "rollout.max_tokens", "optim.minibatches")
"""What must be equal in a comparison: prompts, rollouts and optimizer steps. DAPO's refills come on top."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of training."""

    name: str
    label: str
    preset: str
    tier: Tier
    base: str
    store: str
    settings: Mapping[str, Any]
    """Settings of `dph train` that override the presets'."""
    other_budget: bool = False
    """Whether it is trained longer or shorter on purpose; such an arm must be a variant of another."""
    variant_of: str = ""
    """The arm that it equals except in what its label names."""
    sweep: str = ""
    """The sweep that it belongs to."""
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `dph eval` that override the grid's."""
    share: float = 1.0
    """Share of the trained weights in the model that is evaluated; the rest are the base model's (WiSE-FT)."""
    training: str = ""
    """The name of its training; arms that differ in `evaluate` and `share` only have the same. If it is the
    name of an arm, a file need not repeat that arm's preset, base model, store and settings."""
    retired: str = ""
    """What made it, if this version can no longer train it: its published counts are read, and nothing runs."""

    @property
    def trained(self) -> str:
        """The name of its training."""
        return self.training or self.name


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting of an arm, varied."""

    name: str
    arm: str
    setting: str
    """Dotted name of a setting of `dph train`."""
    values: Mapping[str, float]
    """Value of the setting by arm, the original arm included."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base model."""

    name: str
    label: str
    settings: Mapping[str, Any]
    """Settings of `dph sft`."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task, for every stage of this base model and of what is trained from it: a world of its own."""
    until: Mapping[str, Any] = field(default_factory=dict)
    """The rule by which its training ends where `settings` has no steps; see `experiments.start`."""


@dataclass(frozen=True, slots=True)
class Store:
    """A partition and rehearsal set."""

    name: str
    base: str
    settings: Mapping[str, Any]
    """Settings of `dph presample`."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A whole experiment."""

    name: str
    world: tuple[str, ...]
    """Presets of task, sizes and model, for every stage; later ones override earlier ones."""
    needs_data: bool
    """Whether that task reads a data set."""
    domains: Mapping[str, str]
    """Split by domain: in-domain, cross-domain and out-of-domain, as far as the world has them."""
    seeds: tuple[int, ...]
    """Training seeds of the core arms."""
    fewer_seeds: tuple[int, ...]
    """Training seeds of the other arms."""
    bases: Mapping[str, Base]
    stores: Mapping[str, Store]
    arms: Mapping[str, Arm]
    sweeps: Mapping[str, Sweep]
    train: Mapping[str, Any]
    evaluate: Mapping[str, Any]
    """Settings for every run of `dph train` and `dph eval`."""
    smoke: Mapping[str, Any]
    """Settings by stage that make everything tiny."""

    def chosen(self, names: Sequence[str]) -> list[Arm]:
        """Arms by name, by tier ("core", "wide", "more": each tier alone) or "all", in the grid's order.

        Raises UserError for a name that is none of these.
        """
        known = {*self.arms, *TIERS, "all"}
        for name in names:
            if name not in known:
                listed = ", ".join([*TIERS, "all", *self.arms])
                raise UserError(f"the grid {self.name!r} has no method {name!r}; known are: {listed}")
        return [arm for arm in self.arms.values() if {arm.name, arm.tier, "all"} & set(names)]

    def seeds_of(self, arm: Arm) -> tuple[int, ...]:
        return self.seeds if arm.tier == "core" else self.fewer_seeds


def let_jobs_import() -> None:
    """Let the processes of a study import the plug-in of its world from the repository."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def grid_names() -> list[str]:
    """Grids that one machine can run: a file each, and one more for a file with a table `gpu`."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in GRIDS.glob("*.toml")}
    return sorted([*files, *(name + _GPU for name, text in files.items() if "\n[gpu]\n" in text)])


def read_grid(name: str) -> Grid:
    """A grid by name. Raises UserError for an unknown name, and for arms whose budgets differ."""
    if name not in grid_names():
        raise UserError(f"no scale is named {name!r}; known are: {', '.join([*grid_names(), 'bench', 'full'])}")
    return grid_from(name, _tree(name))


def _tree(name: str) -> dict[str, Any]:
    """The TOML tree of a grid, on top of that of the grid that it `extends`; of NAME_gpu, the file's table `gpu` is on
    top of both."""
    file = name.removesuffix(_GPU)
    tree = tomllib.loads((GRIDS / f"{file}.toml").read_text(encoding="utf-8"))
    larger = tree.pop("gpu", {}) if name != file else {}
    whole = joined(_tree(tree["extends"]), tree) if "extends" in tree else tree
    return joined(whole, larger)


def grid_from(name: str, tree: Mapping[str, Any]) -> Grid:
    """A grid from its TOML tree; see `read_grid`."""
    bases = {
        key: Base(key, value["label"], value.get("sft", {}), value.get("task", {}), value.get("until", {}))
        for key, value in tree["bases"].items()
    }
    stores = {key: Store(key, value["base"], value.get("presample", {})) for key, value in tree["stores"].items()}
    arms: dict[str, Arm] = {}
    for key, given in tree["arms"].items():
        value = _with_training(name, key, given, tree["arms"])
        arms[key] = Arm(
            key,
            value.get("label") or preset_label(value["preset"]),
            value["preset"],
            value["tier"],
            value.get("base", "base"),
            value.get("store", "one"),
            value.get("train", {}),
            value.get("other_budget", False),
            value.get("variant_of", ""),
            evaluate=value.get("evaluate", {}),
            share=value.get("share", 1.0),
            training=value.get("training", ""),
            retired=value.get("retired", ""),
        )
    worlds = (tree["world"],) if isinstance(tree["world"], str) else tree["world"]
    world = tuple(str(ROOT / name) if is_settings_file(name) else name for name in worlds)
    shared = tree.get("train", {})
    sweeps: dict[str, Sweep] = {}
    for key, value in tree.get("sweeps", {}).items():
        arm = arms[value["arm"]]
        own = float(flatten(train_settings(world, arm, shared))[value["setting"]])
        points = {arm.name: own}
        for number in value["values"]:
            varied = f"{arm.name}-{key}-{number:g}"
            settings = joined(arm.settings, nested(value["setting"], number))
            label = f"{arm.label}, {value['setting'].rpartition('.')[2]} {number:g}"
            arms[varied] = replace(
                arm,
                name=varied,
                label=label,
                tier=value["tier"],
                settings=settings,
                variant_of=arm.name,
                sweep=key,
            )
            points[varied] = float(number)
        sweeps[key] = Sweep(key, arm.name, value["setting"], points)
    grid = Grid(
        name,
        world,
        tree.get("needs_data", False),
        tree.get("domains", {}),
        tuple(tree["seeds"]),
        tuple(tree["fewer_seeds"]),
        bases,
        stores,
        arms,
        sweeps,
        shared,
        tree.get("evaluate", {}),
        tree.get("smoke", {}),
    )
    _check(grid)
    return grid


def _with_training(grid: str, name: str, arm: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of an arm, with that of the arm whose training it names beneath. A training that is no arm is allowed
    where the arm says by itself what it is made of."""
    trained = arms.get(arm.get("training", ""), {})
    value = joined({key: trained[key] for key in ("preset", "base", "store", "train") if key in trained}, arm)
    if "preset" not in value:
        raise UserError(f"the grid {grid!r}: {name!r} names neither a preset nor the training of an arm that has one")
    return value


def train_settings(world: Sequence[str], arm: Arm, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an arm that presets and the grid give to `dph train`."""
    merged = merge_settings("train", [*world, arm.preset], [])
    return joined(merged, shared, arm.settings)


def joined(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings; later layers override earlier ones."""
    found: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = joined(found[key], value) if both else value
    return found


def nested(dotted: str, value: Any) -> dict[str, Any]:
    """The setting with a dotted name as nested tables."""
    head, _, rest = dotted.partition(".")
    return {head: nested(rest, value) if rest else value}


def _check(grid: Grid) -> None:
    budgets: dict[tuple[Any, ...], str] = {}
    trained: dict[str, Arm] = {}
    for arm in grid.arms.values():
        if not 0 < arm.share <= 1:
            raise UserError(f"the grid {grid.name!r}: the share of {arm.name!r} is {arm.share}; it must lie in (0, 1]")
        other = trained.setdefault(arm.trained, arm)
        if (other.base, other.store) != (arm.base, arm.store):
            raise UserError(
                f"the grid {grid.name!r}: {other.name!r} and {arm.name!r} name one training but begin from different "
                "base models or stores"
            )
        for kind, name, known in (
            ("preset", arm.preset, [*preset_names(), *([arm.preset] if is_settings_file(arm.preset) else [])]),
            ("base", arm.base, grid.bases),
            ("store", arm.store, grid.stores),
            ("tier", arm.tier, TIERS),
        ):
            if name not in known:
                raise UserError(f"the grid {grid.name!r}: the arm {arm.name!r} names an unknown {kind} {name!r}")
        plain = grid.arms.get(arm.variant_of, arm)
        if arm.variant_of and (plain is arm or plain.base != arm.base):
            raise UserError(
                f"the grid {grid.name!r}: the arm {arm.name!r} is a variant of {arm.variant_of!r}, which is no other "
                "arm of the same base model"
            )
        if arm.other_budget and not arm.variant_of:
            raise UserError(
                f"the grid {grid.name!r}: the arm {arm.name!r} has another budget, so it cannot be compared with "
                "the other methods; name the arm to compare it with as variant_of"
            )
        if grid.stores[arm.store].base != arm.base:
            raise UserError(f"the grid {grid.name!r}: the store of the arm {arm.name!r} belongs to another base model")
        if not arm.other_budget:
            settings = flatten(train_settings(grid.world, arm, grid.train))
            budgets.setdefault(tuple(settings.get(key) for key in _BUDGET), arm.name)
    if len(budgets) > 1:
        raise UserError(f"the grid {grid.name!r}: {_unequal(budgets)}; budgets must be equal, or set other_budget")


def _unequal(budgets: Mapping[tuple[Any, ...], str]) -> str:
    (first, one), (second, other) = list(budgets.items())[:2]
    parts: Iterable[str] = (
        f"{key} is {a} for {one!r} and {b} for {other!r}"
        for key, a, b in zip(_BUDGET, first, second, strict=True)
        if a != b
    )
    return ", ".join(parts)
