"""What a command line has beside the flags of a stage's settings: common flags, and short ones for longer settings.

| flag                              | meaning                                                                          |
|-----------------------------------|----------------------------------------------------------------------------------|
| `--preset --config --plugin X`    | settings by name, from a file, and plug-ins; may be repeated                     |
| `--resume`                        | continue an interrupted run                                                      |
| `--check RUN` (presample)         | a setting; the other settings are then those of RUN                              |
| `--task NAME`                     | a benchmark: sets its task, split and official rule and, in `dph eval`, the      |
|                                   | number of samples (twice the paper's k); or the name of any other task           |
| `--data PATH`                     | the task's directory or file: its option `root` (`path` for records, `name` for  |
|                                   | hub)                                                                             |
| `--databases --suite --gold PATH` | the task's options `databases`, `test_suite`, `gold`                             |
| `--subset --skip-missing`         | the task's options with these names, set to true                                 |
| `--rule --policy NAME`            | `verifier.comparator`, `verifier.policy`                                         |
| `--workers --timeout N`           | `verifier.workers`, `verifier.timeout`                                           |
| `--keep-distinct`                 | `verifier.keep-distinct`                                                         |
| `--reward FILE.py:NAME`           | `reward.function`                                                                |
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dph.config import STAGES
from dph.errors import UserError

STAGES_WITH_SHORTCUTS = frozenset({"presample", "train", "eval", "verify"})
_ALL = frozenset(STAGES)


@dataclass(frozen=True, slots=True)
class _Flag:
    """What becomes of a flag and its value."""

    goes: Literal["field", "option", "setting"]
    """To a field of `CommandLine`, to the options of the task, or to a flag of the settings."""
    name: str
    """Of the field, the option or that flag."""
    has_value: bool = True
    stages: frozenset[str] = STAGES_WITH_SHORTCUTS


_FLAGS = {
    "--preset": _Flag("field", "presets", stages=_ALL),
    "--config": _Flag("field", "files", stages=_ALL),
    "--plugin": _Flag("field", "plugins", stages=_ALL),
    "--resume": _Flag("field", "resume", has_value=False, stages=_ALL),
    "--check": _Flag("setting", "--check", stages=frozenset({"presample"})),
    "--task": _Flag("field", "task"),
    "--data": _Flag("option", "root"),
    "--databases": _Flag("option", "databases"),
    "--suite": _Flag("option", "test_suite"),
    "--gold": _Flag("option", "gold"),
    "--subset": _Flag("option", "subset", has_value=False),
    "--skip-missing": _Flag("option", "skip_missing", has_value=False),
    "--rule": _Flag("setting", "--verifier.comparator"),
    "--policy": _Flag("setting", "--verifier.policy"),
    "--workers": _Flag("setting", "--verifier.workers"),
    "--timeout": _Flag("setting", "--verifier.timeout"),
    "--keep-distinct": _Flag("setting", "--verifier.keep-distinct", has_value=False),
    "--reward": _Flag("setting", "--reward.function"),
}
_ROOT_OF = {"records": "path", "hub": "name"}
"""The option with the location of a task's data, for tasks that do not call it `root`."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words of a command line, sorted."""

    stage: str
    presets: tuple[str, ...]
    files: tuple[Path, ...]
    plugins: tuple[str, ...]
    resume: bool
    checked: str
    """Run that `dph presample --check` names, or ""."""
    task: str
    options: dict[str, str]
    """Options of the task."""
    rest: tuple[str, ...]
    """Flags of the stage's settings."""

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Combine with the settings of presets and files: the named task overrides them, and they override the other
        settings of a benchmark."""
        if not self.task:
            return dict(settings)
        named = _of_benchmark(self.task, self.stage)
        merged = {**named, **settings}
        for table in named:
            merged[table] = {**named[table], **settings.get(table, {})}
        merged["task"] = {**merged["task"], **named["task"]}
        return merged

    def finish(self, settings: Any) -> Any:
        """Add the task options to the final settings."""
        if not self.options:
            return settings
        options = {
            _ROOT_OF.get(settings.task.name, key) if key == "root" else key: v for key, v in self.options.items()
        }
        task = dataclasses.replace(settings.task, options={**settings.task.options, **options})
        return dataclasses.replace(settings, task=task)


def read_words(stage: str, words: Sequence[str]) -> CommandLine:
    """Sort the words of a stage's command line. Raises UserError for a flag without its value."""
    found: dict[str, list[str]] = {"presets": [], "files": [], "plugins": [], "resume": [], "--check": [], "task": []}
    options: dict[str, str] = {}
    rest: list[str] = []
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        name, equals, value = word.partition("=")
        flag = _FLAGS.get(name)
        if flag is None or stage not in flag.stages or (equals and not flag.has_value and flag.goes != "setting"):
            rest.append(word)
            continue
        if flag.has_value and not equals:
            if not queue or queue[-1].startswith("--"):
                raise UserError(f"{name} needs a value")
            value = queue.pop()
        if flag.goes == "option":
            options[flag.name] = value if flag.has_value else "true"
        elif flag.goes == "setting":
            rest += [flag.name, value] if flag.has_value else [flag.name + equals + value]
        if flag.name in found:
            found[flag.name].append(value)
    return CommandLine(
        stage=stage,
        presets=tuple(found["presets"]),
        files=tuple(map(Path, found["files"])),
        plugins=tuple(found["plugins"]),
        resume=bool(found["resume"]),
        checked="".join(found["--check"][-1:]),
        task="".join(found["task"][-1:]),
        options=options,
        rest=tuple(rest),
    )


def _of_benchmark(name: str, stage: str) -> dict[str, Any]:
    """The settings implied by the name of a benchmark or task."""
    from dph.tasks.benchmarks import ALIASES, BENCHMARKS

    name = name.lower().replace("-", "_")
    name = ALIASES.get(name, name)
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        return {"task": {"name": name}}
    if stage not in ("eval", "verify"):  # training uses its own splits and the rule of its preset
        return {"task": {"name": benchmark.task}}
    judged = {"comparator": benchmark.rule} if benchmark.rule else {"policy": "qwen"}
    found = {"task": {"name": benchmark.task, "split": benchmark.split}, "verifier": judged}
    return found | ({"rollout": {"n": 2 * benchmark.k}} if stage == "eval" else {})
