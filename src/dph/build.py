"""From settings to objects: the task with its problems, the verifiers, the sampler."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from dph.config.schema import ModelConfig, SamplerConfig, TaskConfig, VerifierConfig
from dph.errors import UserError
from dph.tasks import Task, load_task
from dph.tasks.protocol import option_types
from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.sql.plan import PlanReader

if TYPE_CHECKING:  # judging needs no torch
    from dph.models.policy import Policy
    from dph.sampling.protocol import Sampler


def load_plugin(name: str) -> None:
    """Import a module of the user's, by module name or path of a .py file, so that what it registers is known.

    Raises UserError, naming the line, for whatever its import raises.
    """
    try:
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(name).stem, name)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            importlib.import_module(name)
    except Exception as error:  # it is the user's code
        raise UserError(f"cannot import the plug-in {name!r}: {_where(name, error)}{error}") from error


def _where(name: str, error: Exception) -> str:
    """Kind of an error and the line of a plug-in's file at which it came up; empty where the file was not found."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(name).absolute()]
    if isinstance(error, SyntaxError):  # names its line itself
        return "SyntaxError: "
    return f"{type(error).__name__} in line {lines[-1]}: " if lines else ""


def _value(text: str) -> str | int | float | bool:
    """An option's value: numbers and true/false are read as such."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def make_task(config: TaskConfig) -> Task:
    """The task that the settings name, made with its options."""
    kinds = option_types(config.name)
    return load_task(config.name, **{key: _option(key, text, kinds.get(key)) for key, text in config.options.items()})


def _option(name: str, text: str, kind: object) -> object:
    """An option's value, of the type that the task gives it. Raises UserError for one of another type."""
    if kind in (str, str | None):
        return text
    value = _value(text)
    for wanted, fitting, words in _KINDS:
        if kind is wanted and type(value) not in fitting:
            raise UserError(f"task.options {name} must be {words}, not {text!r}")
    return value


_KINDS = ((bool, (bool,), "true or false"), (int, (int,), "a whole number"), (float, (int, float), "a number"))


def split_names(splits: str) -> list[str]:
    """The names in a setting like "train,sums"."""
    return [name.strip() for name in splits.split(",")]


def select(task: Task, splits: str, limit: int = 0) -> list[Problem]:
    """Problems of a split, or of several with commas between them, at most `limit` of each (0: all), with unique ids.

    Raises UserError where a split holds none.
    """
    seen: set[str] = set()
    selected: list[Problem] = []
    for split in split_names(splits):
        problems = task.problems(split)
        if not problems:
            raise UserError(f"the split {split!r} holds no problem")
        for problem in problems:
            if problem.id in seen:
                raise UserError(f"the split {splits!r} holds the id {problem.id!r} twice; ids must be unique")
            seen.add(problem.id)
        selected += problems[:limit] if limit else problems
    return selected


def load_problems(config: TaskConfig) -> tuple[Task, list[Problem]]:
    """The task and its problems that the settings name."""
    task = make_task(config)
    return task, select(task, config.split, config.limit)


def make_verifiers(config: VerifierConfig, *, bare_sql: bool = False) -> Verifiers:
    """The verifiers, each with the settings that concern it. bare_sql: responses are SQL and nothing else."""
    common = {"workers": config.workers, "timeout": config.timeout}
    sql = {**common, "comparator": config.comparator, "reward": config.reward, "keep_distinct": config.keep_distinct}
    sql |= {"columns": config.columns, "tolerance": config.tolerance, "unterminated": config.unterminated}
    sql["answer"] = "whole" if bare_sql else "block"
    return Verifiers({"sql": sql, "math": {**common, "policy": config.policy, "fallback": config.fallback or None}})


def make_plan_reader(config: VerifierConfig) -> PlanReader:
    """What reads execution plans, in as many processes and with the same limit as the verifiers."""
    return PlanReader(workers=config.workers, timeout=config.timeout)


def make_sampler(
    config: SamplerConfig, policy: "Policy", model: ModelConfig, longest: int, *, training: bool = False
) -> "Sampler":
    """The sampler that the settings name.

    Args:
        model: where a model of the policy's shape and, unless it is trained, of its weights can be loaded from.
        longest: tokens of the longest prompt and response together.
        training: the policy's weights change between calls; `dph.sampling.protocol.weights_changed` announces it.
    """
    import dph.sampling.hf
    import dph.sampling.vllm  # noqa: F401 (importing samplers registers them)
    from dph.sampling.protocol import SAMPLERS

    return SAMPLERS[config.engine](policy, config, model=model, longest=longest, training=training)
