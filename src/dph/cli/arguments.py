"""Reads a command line: flags for the settings of a stage, flags that all stages have, and short flags for longer
settings."""

import argparse
import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from dph.config import STAGES, Permitted, every_setting, field_docs, nested, preset_names
from dph.errors import RESUMED, SettingsError, near

STAGES_WITH_SHORTCUTS = frozenset({"check", "sft", "presample", "train", "verl", "eval", "verify", "certify", "audit"})

Flags = dict[str, tuple[str, dict[str, Any], str]]
"""For each flag: the setting that it sets, options of argparse, and its help."""
COMMON: Flags = {
    "--preset": ("presets", {"metavar": "NAME"}, "settings by name, or from a TOML or YAML file; may be repeated"),
    "--config": ("files", {"metavar": "FILE", "type": Path}, "settings of a TOML or YAML file; they override presets"),
    "--plugin": ("plugins", {"metavar": "FILE"}, "import a Python file or module that registers tasks, verifiers …"),
}
"""The flags of every stage. Each may be repeated."""
_PATH, _SET = {"metavar": "PATH"}, {"action": "store_const", "const": "true"}
TASK: Flags = {
    "--task": ("task", {"metavar": "NAME"}, "a task, or a benchmark with its split, its rule and (eval) twice its k"),
    "--data": ("options.root", _PATH, "place of the task's data: its option root (records: path, hub: name)"),
    "--databases": ("options.databases", _PATH, "the task's option databases"),
    "--suite": ("options.test_suite", _PATH, "the task's option test_suite"),
    "--gold": ("options.gold", _PATH, "the task's option gold"),
    "--subset": ("options.subset", _SET, "the task's option subset"),
    "--skip-missing": ("options.skip_missing", _SET, "the task's option skip_missing"),
}
"""The short flags of the task, in the stages with shortcuts."""
SHORT = {
    "verifier.comparator": "--rule",
    "verifier.policy": "--policy",
    "verifier.workers": "--workers",
    "verifier.timeout": "--timeout",
    "verifier.keep_distinct": "--keep-distinct",
    "verifier.skip_weak": "--skip-weak",
    "reward.function": "--reward",
    "certify.share": "--certify",
}
"""The settings that have a second, short flag in these stages."""
OF_TASK = {
    "records": {"root": "path", "databases": "db_root"},
    "verl_rows": {"root": "path", "databases": "db_root"},
    "hub": {"root": "name", "databases": "db_root"},
}
"""The options of tasks that have another name for the places of their data and databases."""
FIRST = {
    "init": {"sql|maths": "--kind", "FILE …": "--files"},
    "check": {"DATA": "--data"},
    "report": {"RUN …": "--runs"},
    "passk": {"BEFORE [AFTER …]": "--files"},
    "judge": {"FILE.py:FUNCTION": "--function"},
    "audit": {"BEFORE": "--model.path", "AFTER": "--after"},
    "certify": {"BASE": "--base", "CHECKPOINTS": "--checkpoints"},
    "interpolate": {"RUN": "--run"},
    "doctor": {"[RUN]": "--run"},
}
"""The words before any flag, with the flags that they stand for, as in `dph report RUN …` and `dph certify BASE
CHECKPOINT …`."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words of the command line of a stage, sorted."""

    stage: str
    presets: Sequence[str] = ()
    files: Sequence[Path] = ()
    plugins: Sequence[str] = ()
    resume: bool = False
    help: bool = False
    task: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """The options of the task that short flags set."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that flags set, nested as in a file."""
    permitted: Permitted = field(default_factory=lambda: Permitted({}))
    """The code of others that the flags name, and that may therefore be run."""

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of presets and files, combined with the task of the command line. The named task overrides their
        task, and they override the other settings of a benchmark."""
        if not self.task:
            return dict(settings)
        named = _of_benchmark(self.task, self.stage)
        merged = {**named, **settings}
        for table in named:
            merged[table] = {**named[table], **settings.get(table, {})}
        merged["task"] = {**merged["task"], **named["task"]}
        if settings.get("task", {}).get("name", "") != named["task"]["name"]:  # they may hold options of another task
            from dph.tasks import option_types

            types = option_types(named["task"]["name"])
            merged["task"]["options"] = {k: v for k, v in merged["task"].get("options", {}).items() if k in types}
        return merged

    def finish(self, settings: Any) -> Any:
        """The final settings, with the options of the task from the command line. If the line names a task, the setting
        `data` of `dph sft`, otherwise a file of rows, is the place of the data of the task, as in the other stages."""
        given = self.options
        if self.task and self.settings.get("data"):
            given, settings = {**given, "root": self.settings["data"]}, dataclasses.replace(settings, data="")
        if not given:
            return settings
        names = OF_TASK.get(settings.task.name, {})
        options = {names.get(key, key): value for key, value in given.items()}
        task = dataclasses.replace(settings.task, options={**settings.task.options, **options})
        return dataclasses.replace(settings, task=task)


def read_words(stage: str, words: Sequence[str]) -> CommandLine:
    """Sort the words of the command line of a stage. Raises SettingsError for unknown flags, and for missing or wrong
    values."""
    leading = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    first, flagged, names = words[:leading], words[leading:], [*FIRST.get(stage, {}).values()]
    first = [*(word for pair in zip(names, first, strict=False) for word in pair), *first[len(names) :]]
    parser, flags = _parser(stage, STAGES[stage]())
    values, unknown = parser.parse_known_args([_hyphens(word) for word in [*first, *flagged]])
    if unknown:
        hints = (_meant(_hyphens(word.partition("=")[0]), flags) for word in unknown if word.startswith("-"))
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{next(filter(None, hints), '')}")
    line = CommandLine(stage, **nested(vars(values)))
    named = {**line.settings, "plugins": [*line.settings.get("plugins", ()), *line.plugins]}
    return dataclasses.replace(line, permitted=Permitted(named, ["dph", stage, *words], flags))


def _meant(word: str, flags: Sequence[str]) -> str:
    """A hint at the flags that the user of an unknown flag probably means, such as --model.path for --model, and
    --optim.lr for --lr."""
    if word == "--resume":
        return "; leave it out: this command has no run of its own to continue"
    exact = [flag for flag in flags if flag == f"{word}.path" or flag.endswith(f".{word.lstrip('-')}")]
    return f"; perhaps you meant {' or '.join(exact)}" if exact else near(word, flags)


def purpose(stage: str) -> str:
    """The purpose of a command: the words after its name in the docstring of its settings."""
    return " ".join(str(STAGES[stage].__doc__).split()).partition(": ")[2].removesuffix(".")


def help_page(stage: str, default: Any) -> str:
    """The page of `dph STAGE --help`: every flag, its meaning, and the value that the setting has without the flag."""
    parser, _ = _parser(stage, default, explained=True)
    parser.description = f"{purpose(stage)[0].upper()}{purpose(stage)[1:]}."
    trains = stage in STAGES_WITH_SHORTCUTS or stage in ("sft", "demo")  # presets set tasks and methods
    parser.epilog = f"Presets: {', '.join(preset_names())}" if trains else None
    return parser.format_help()


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence, raised as SettingsError."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; `{self.prog} --help` lists all flags")


class _Switch(argparse.Action):
    """The flags of a truth value: --name or --no-name, without a word behind it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        last = str(option_string).lstrip("-").rpartition(".")[2]
        setattr(namespace, self.dest, not last.startswith("no-"))


class _Pairs(argparse.Action):
    """The flag of a table: --name KEY VALUE KEY VALUE …"""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if len(values) % 2:
            parser.error(f"argument {option_string}: expected pairs KEY VALUE, but {values[-1]!r} has no value")
        setattr(namespace, self.dest, dict(zip(values[::2], values[1::2], strict=True)))


def _parser(stage: str, default: Any, *, explained: bool = False) -> tuple[Parser, list[str]]:
    """The parser of a stage, and the list of its flags.

    The values that it reads are named as in `CommandLine`, with dots, and have no defaults, so that only the flags of
    the command line are found. With `explained`, the parser has the texts of the help page, where `default` gives the
    default values.
    """
    usage = " ".join([f"dph {stage}", *FIRST.get(stage, {}), "[flags]"])
    parser = Parser(f"dph {stage}", usage, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    common, shared = parser.add_argument_group("common flags"), {} if stage == "init" else COMMON
    common.add_argument("-h", "--help", action="store_true", help="show this page")
    for flag, (name, options, text) in shared.items():
        common.add_argument(flag, action="append", dest=name, help=text, **options)
    if resumable := stage in RESUMED:
        common.add_argument("--resume", action="store_true", help="continue the run in the same --out directory")
    short = stage in STAGES_WITH_SHORTCUTS
    of_task = {flag: how for flag, how in TASK.items() if short and not hasattr(default, flag.lstrip("-"))}
    of_task |= {"--task": TASK["--task"]} if short else {}  # the setting of the name `task` is a table
    if short:
        shortcuts = parser.add_argument_group("short flags of the task")
        for flag, (name, options, text) in of_task.items():
            shortcuts.add_argument(flag, dest=name, help=text, **options)
    groups: dict[str, Any] = {"": parser.add_argument_group("settings")}
    flags = [*shared, *(["--resume"] if resumable else ()), *of_task]
    for setting in every_setting(default):
        if any(map(dataclasses.is_dataclass, typing.get_args(setting.kind))):
            continue  # only a file can hold tables
        group, dot, name = setting.name.rpartition(".")
        if group not in groups:
            groups[group] = parser.add_argument_group(group, inspect.getdoc(setting.owner) if explained else None)
        spelled = [_hyphens(f"--{setting.name}")]
        if setting.kind is bool:
            spelled.append(_hyphens(f"--{group}{dot}no-{name}"))
        if short and setting.name in SHORT:
            spelled.append(SHORT[setting.name])
        options = {"dest": f"settings.{setting.name}"} | _taken(setting.kind)
        if setting.value == ():
            options["nargs"] = "+"  # without a word, the flag of a list that is empty already would do nothing
        if explained:
            options["help"] = f"{field_docs(setting.owner)[name]} (default: {_shown(setting.value)})".replace("%", "%%")
        groups[group].add_argument(*spelled, **options)
        flags += spelled
    return parser, flags


def _taken(kind: Any) -> dict[str, Any]:
    """The way in which argparse reads the words behind a flag as a value of a type."""
    if kind is bool:
        return {"action": _Switch, "nargs": 0}
    if typing.get_origin(kind) is Literal:
        return {"choices": typing.get_args(kind)}
    if typing.get_origin(kind) is dict:
        return {"action": _Pairs, "nargs": "*", "metavar": "KEY VALUE"}
    if typing.get_origin(kind) is tuple:
        return _taken(typing.get_args(kind)[0]) | {"nargs": "*"}
    return {"type": kind, "metavar": {int: "INT", float: "FLOAT"}.get(kind, "TEXT")}


def _shown(value: Any) -> str:
    """A default value as the help page shows it."""
    if isinstance(value, Mapping):
        value = [word for pair in value.items() for word in pair]
    return (" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) or "empty"


def _hyphens(word: str) -> str:
    """A flag in its spelling with hyphens. Other words, and the value behind =, are returned unchanged."""
    return re.sub(r"^--[^=]+", lambda flag: flag[0].replace("_", "-"), word)


def _of_benchmark(name: str, stage: str) -> dict[str, Any]:
    """The settings that the name of a benchmark or task implies. Raises SettingsError for the name of a preset."""
    from dph.tasks import TASKS
    from dph.tasks.benchmarks import BENCHMARKS

    name = name.lower().replace("-", "_")
    benchmark = BENCHMARKS.get(name)
    if benchmark is None and name in preset_names() and name not in TASKS:
        raise SettingsError(f"{name} is a preset, not a task; write --preset {name}")
    if benchmark is None:
        return {"task": {"name": name}}
    if stage not in ("eval", "verify", "audit"):  # training uses its own splits and the rule of its preset
        return {"task": {"name": benchmark.task}}
    judged = {"comparator": benchmark.rule} if benchmark.rule else {"policy": "qwen"}
    settings = {"task": {"name": benchmark.task, "split": benchmark.split}, "verifier": judged}
    return settings | ({"rollout": {"n": 2 * benchmark.k}} if stage != "verify" else {})
