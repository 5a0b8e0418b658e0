"""What the bench compares: methods with the settings that are tried for each, worlds, and the rule that chooses.

`design.toml` holds it. A phase of the bench is an ordinary grid (`experiments.grid`) with one
base model and one rehearsal set for each world and one arm for each setting and world.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dph.config import is_settings_file, preset_label, read_settings
from dph.errors import UserError
from experiments.grid import Grid, grid_from, joined, nested

DESIGN = Path(__file__).with_name("design.toml")

_LEARNING_RATES = (1e-4, 2e-4)
"""Tried where a method names none."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to train with a method."""

    name: str
    method: str
    title: str
    """The label of the method."""
    label: str
    preset: str
    settings: Mapping[str, Any] = field(compare=False)
    """Settings of `dph train` that override the preset's."""
    evaluate: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Settings of `dph eval` that override the bench's."""
    share: float = 1.0
    """Share of the trained weights in the model that is evaluated."""
    training: str = ""
    """The name of its training, which settings that differ in `evaluate` and `share` only have in common."""
    variant_of: str = ""
    """The setting that it equals but for its number of steps; "" for one with the steps of all."""
    retired: str = ""
    """See `Arm.retired`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How settings of each method are chosen; see design.toml for the words."""

    target: str
    """The method whose highest greedy accuracy is the target."""
    near: float
    far: float
    k: int
    corner: tuple[float, float]
    """Of the hypervolume: accuracy, pass@k."""
    always: frozenset[str]
    """Methods that go on to the test in any case."""
    others: int
    """How many of the others do."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The whole design."""

    methods: Mapping[str, Sequence[Setting]]
    rule: Rule
    development: tuple[int, ...]
    test: tuple[int, ...]
    """Seeds of the worlds."""
    development_seed: int
    test_seeds: tuple[int, ...]
    twice: frozenset[str]
    """Methods that are trained with every test seed; the others have the first."""
    against: Mapping[str, Sequence[str]]
    """Attempts to go past the frontier, with the methods that each of them changes."""
    equal_rollouts: Mapping[str, int]
    """Steps after which a setting that samples more prompts in a step has sampled as many as the others have in all."""
    _tree: Mapping[str, Any]

    def label(self, method: str) -> str:
        return self.methods[method][0].title

    def grid(self, name: str, settings: Sequence[Setting], worlds: Sequence[int], seeds: Sequence[int]) -> Grid:
        """A grid of some settings in some worlds. Raises UserError for settings whose budgets differ."""
        tree: dict[str, Any] = {
            "world": self._tree["world"],
            "seeds": seeds,
            "fewer_seeds": seeds,
            "domains": {"in-domain": self._tree["evaluate"]["task"]["split"]},
            "train": self._tree.get("train", {}),
            "evaluate": self._tree["evaluate"],
            "smoke": self._tree["smoke"],
            "bases": {
                base_of(world): {
                    "label": f"base, world {world}",
                    "sft": {"seed": world},
                    "task": {"options": {"seed": str(world)}},
                }
                for world in worlds
            },
            "stores": {
                base_of(world): {"base": base_of(world), "presample": self._tree.get("presample", {})}
                for world in worlds
            },
            "arms": {
                arm_of(setting, world): {
                    "label": f"{setting.label}, world {world}",
                    "preset": setting.preset,
                    "tier": "core",
                    "base": base_of(world),
                    "store": base_of(world),
                    "train": setting.settings,
                    "evaluate": setting.evaluate,
                    "share": setting.share,
                    "training": f"{setting.training}.{base_of(world)}" if setting.training else "",
                    "variant_of": f"{setting.variant_of}.{base_of(world)}" if setting.variant_of else "",
                    "other_budget": bool(setting.variant_of),
                    "retired": setting.retired,
                }
                for world in worlds
                for setting in settings
            },
        }
        return grid_from(name, tree)


def base_of(world: int) -> str:
    """The name of a world's base model and rehearsal set."""
    return f"world-{world}"


def arm_of(setting: Setting, world: int) -> str:
    """The name of a setting's arm in a world."""
    return f"{setting.name}.{base_of(world)}"


def with_steps(setting: Setting, steps: int) -> Setting:
    """The same setting with another number of steps. It is of no method, so no figure of merit counts it."""
    return replace(
        setting,
        name=f"{setting.name}-steps{steps}",
        method="",
        label=f"{setting.label}, {steps} steps",
        settings=joined(setting.settings, {"steps": steps}),
        training=f"{setting.training}-steps{steps}" if setting.training else "",
        variant_of=setting.name,
    )


def read_bench(chosen: Sequence[str] = (), *, smoke: bool = False) -> Bench:
    """The design with the chosen methods (all, if none is named) and the method that sets the target.

    A method is one of design.toml or the path of a preset file, whose table `meta` may have the keys `strength`,
    `values` and `lr` of design.toml. Raises UserError for a name that is neither.

    smoke: two settings of each method and one test world.
    """
    tree = tomllib.loads(DESIGN.read_text(encoding="utf-8"))
    known: Mapping[str, Any] = tree["methods"]
    wanted = dict.fromkeys(chosen or known)
    for name in wanted:
        if name not in known and not is_settings_file(name):
            raise UserError(
                f"the bench has no method {name!r}; known are: {', '.join(known)}; for a method of your own give the "
                "path of its preset, which ends in .toml or .yaml"
            )
    target = tree["target"]
    methods = {
        Path(name).stem: _settings(Path(name).stem, tried.get("preset", name), tried)
        for name in [target, *wanted]
        for tried in [known.get(name) or _own(name)]
    }
    if smoke:
        methods = {name: [settings[0], settings[-1]] for name, settings in methods.items()}
    always = frozenset(methods if chosen else tree["always"])
    seeds, k = tree["seeds"], tree["smoke"]["evaluate"]["rollout"]["n"] if smoke else tree["k"]
    return Bench(
        methods,
        Rule(target, tree["near"], tree["far"], k, tuple(tree["corner"]), always, tree["others"]),
        tuple(tree["worlds"]["development"]),
        tuple(tree["worlds"]["test"][: 1 if smoke else None]),
        seeds["development"],
        tuple(seeds["test"]),
        frozenset(seeds["twice"]),
        {name: known[name]["against"] for name in wanted if "against" in known.get(name, {})},
        tree["equal_rollouts"],
        tree,
    )


def _own(path: str) -> Mapping[str, Any]:
    """What the preset file of a user says about the settings to try."""
    meta = read_settings(Path(path)).get("meta", {})
    return {key: meta[key] for key in ("strength", "values", "lr") if key in meta} if isinstance(meta, dict) else {}


def _settings(method: str, preset: str, tried: Mapping[str, Any]) -> list[Setting]:
    """Every value of the strength with every learning rate."""
    fields, values = tried.get("strength", ()), tried.get("values", ())
    if bool(fields) != bool(values) or not isinstance(fields, list | tuple) or not isinstance(values, list | tuple):
        raise UserError(f"the preset {preset}: meta.strength is a list of settings and meta.values of their values")
    title = tried.get("label") or preset_label(preset) or Path(preset).stem
    fixed = tried.get("train", {})
    trained = method if fixed else Path(preset).stem
    found = []
    for value in values or (None,):
        strength, words, label = dict[str, Any](), [], [title]
        if value is not None:
            layers = (nested(field, f"{value:g}" if "options." in field else value) for field in fields)
            strength = joined(*layers)
            short = str(fields[0]).rpartition(".")[2]
            words.append(f"{short}{value:g}")
            label.append(f"{short} {value:g}")
        evaluate, share = strength.pop("evaluate", {}), strength.pop("trained_share", None)
        if not isinstance(evaluate, Mapping):
            raise UserError(f"the preset {preset}: meta.strength names no setting of `dph eval` after 'evaluate'")
        shared = value is not None and not strength
        if share is not None:  # the training keeps all of its weights; a share of them is made after it
            strength["trained_share"] = 1.0
        for lr in tried.get("lr", _LEARNING_RATES):
            found.append(
                Setting(
                    name="-".join([method, *words, f"lr{lr:g}"]),
                    method=method,
                    title=title,
                    label=", ".join([*label, f"lr {lr:g}"]),
                    preset=preset,
                    settings=joined(fixed, strength, nested("optim.lr", lr)),
                    evaluate=evaluate,
                    share=1.0 if share is None else share,
                    training=f"{trained}-lr{lr:g}" if shared else "",
                    retired=tried.get("retired", ""),
                )
            )
    return found
