"""Short flags, such as `--task spider --data DIR --rule bird`, in place of longer settings.

| flag                              | meaning                                                                          |
|-----------------------------------|----------------------------------------------------------------------------------|
| `--task NAME`                     | a benchmark: sets its task, split and official rule and, in `dph eval`, the      |
|                                   | number of samples (twice the paper's k); or the name of any other task           |
| `--data PATH`                     | the task's directory or file: its option `root` (`path` for records)             |
| `--databases --suite --gold PATH` | the task's options `databases`, `test_suite`, `gold`                             |
| `--subset --skip-missing`         | the task's options with these names, set to true                                 |
| `--rule --policy NAME`            | `verifier.comparator`, `verifier.policy`                                         |
| `--workers --timeout N`           | `verifier.workers`, `verifier.timeout`                                           |
| `--keep-distinct`                 | `verifier.keep-distinct`                                                         |
| `--reward FILE.py:NAME`           | `reward.function`                                                                |
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dph.errors import UserError

STAGES_WITH_SHORTCUTS = frozenset({"presample", "train", "eval", "verify"})
_LONG = {
    "--rule": "--verifier.comparator",
    "--policy": "--verifier.policy",
    "--workers": "--verifier.workers",
    "--timeout": "--verifier.timeout",
    "--reward": "--reward.function",
}
_SWITCHES = {"--keep-distinct": "--verifier.keep-distinct"}
_OPTIONS = {"--data": "root", "--databases": "databases", "--suite": "test_suite", "--gold": "gold"}
_TRUE_OPTIONS = {"--subset": "subset", "--skip-missing": "skip_missing"}
_ROOT_OF = {"records": "path"}
"""The option with the location of a task's data, for tasks that do not call it `root`."""


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """The short flags of a command line."""

    stage: str
    task: str = ""
    options: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] = ()
    """The remaining words; short flags that equal one setting are replaced by that setting."""

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


def take_shortcuts(stage: str, words: Sequence[str]) -> Shortcuts:
    """Extract the short flags from a stage's command line. Raises UserError for a flag without a value."""
    if stage not in STAGES_WITH_SHORTCUTS:
        return Shortcuts(stage, rest=tuple(words))
    task, options, rest = "", {}, []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        if name in _SWITCHES or (name in _TRUE_OPTIONS and not equals):
            if name in _SWITCHES:
                rest.append(_SWITCHES[name] + equals + value)
            else:
                options[_TRUE_OPTIONS[name]] = "true"
        elif name == "--task" or name in _OPTIONS or name in _LONG:
            if not equals:
                if not queue or queue[0].startswith("--"):
                    raise UserError(f"{name} needs a value")
                value = queue.pop(0)
            if name == "--task":
                task = value
            elif name in _OPTIONS:
                options[_OPTIONS[name]] = value
            else:
                rest += [_LONG[name], value]
        else:
            rest.append(word)
    return Shortcuts(stage, task, options, tuple(rest))


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
