"""From settings to objects: the task with its problems, the verifiers, the sampler."""

import importlib
from typing import TYPE_CHECKING

from dph.config import ModelConfig, RewardConfig, SamplerConfig, TaskConfig, TaskSourceConfig, VerifierConfig
from dph.errors import UserError
from dph.process.user_code import describe, import_file
from dph.tasks import Task, load_task
from dph.tasks.protocol import option_types
from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.function import RewardFunction
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
            import_file(name)
        else:
            importlib.import_module(name)
    except Exception as error:  # it is the user's code
        raise UserError(f"cannot import the plug-in {name!r}: {describe(error, name)}") from error


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


def make_task(config: TaskSourceConfig) -> Task:
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
    """The names in a setting like "train,sums". Raises UserError when there is none."""
    names = [name.strip() for name in splits.split(",") if name.strip()]
    if not names:
        raise UserError("no split was named; add --task.split")
    return names


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


def make_verifiers(
    config: VerifierConfig,
    reward: RewardConfig | None = None,
    function: RewardFunction | None = None,
    *,
    bare_sql: bool = False,
) -> Verifiers:
    """The verifiers, each with the settings that concern it, or a reward function in their place.

    Args:
        reward: where it names a function, that judges every problem.
        function: judges every problem too, in this process; it overrides the one that `reward` names.
        bare_sql: responses are SQL and nothing else.
    """
    common = {"workers": config.workers, "timeout": config.timeout}
    sql = {**common, "comparator": config.comparator, "reward": config.reward, "keep_distinct": config.keep_distinct}
    sql |= {"columns": config.columns, "tolerance": config.tolerance, "unterminated": config.unterminated}
    sql["answer"] = "whole" if bare_sql else "block"
    options = {"sql": sql, "math": {**common, "policy": config.policy, "fallback": config.fallback or None}}
    reward = reward or RewardConfig()
    if function is None and not reward.function:
        return Verifiers(options)
    options["function"] = common | {
        "function": function or reward.function,
        "correct_from": reward.correct_from,
        "in_process": reward.in_process,
    }
    return Verifiers(options, only="function")


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
    from dph.sampling import SAMPLERS  # importing the package registers the built-in samplers

    return SAMPLERS[config.engine](policy, config, model=model, longest=longest, training=training)
