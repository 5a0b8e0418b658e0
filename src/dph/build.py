"""Builds objects from settings: the task and its problems, the verifiers, the sampler."""

import hashlib
import importlib
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dph.config import (
    EvaluatedModelConfig,
    JudgeConfig,
    Named,
    RewardConfig,
    TaskConfig,
    TaskSource,
    TrainingSamplerConfig,
    VerifierConfig,
    require,
)
from dph.errors import DataError, SettingsError
from dph.process.user_code import ask, describe, import_file, is_ours
from dph.registry import read_option
from dph.tasks import Task, load_task, option_types, problems_of
from dph.types import Problem
from dph.verifiers import Verifiers

if TYPE_CHECKING:  # judging must not import torch, and nothing that is slow to load and not needed
    from dph.models.policy import Policy
    from dph.sampling.protocol import Sampler
    from dph.verifiers.function import RewardFunction


def load_plugin(name: str) -> None:
    """Import a user's module, given by module name or path of a .py file, so that it can register its plug-ins.

    Raises UserError if no flag of the present command names it, and, naming the line, if the import raises anything.
    """
    require(Named("plugins", name, "--plugin"))
    try:
        if name.endswith(".py"):
            import_file(name)
        else:
            importlib.import_module(name)
    except Exception as error:  # user code may raise anything
        raise SettingsError(f"cannot import the plug-in {name!r}: {describe(error, name)}") from error


def make_task(config: TaskSource) -> Task:
    """Create the task that the settings name, with its options."""
    types = option_types(config.name)
    options = {key: read_option(text, types.get(key), f"task.options {key}") for key, text in config.options.items()}
    return load_task(config.name, **options)


def split_names(splits: str) -> list[str]:
    """The names in a setting like "train,sums". Raises UserError if there is none."""
    names = [name.strip() for name in splits.split(",") if name.strip()]
    if not names:
        raise SettingsError("no split was named; add --task.split")
    return names


def select(task: Task, splits: str, limit: int = 0, *, shuffle: bool = False, requires: str = "") -> list[Problem]:
    """Problems of one split or of several, separated by commas: at most `limit` of each (0: all).

    With `shuffle` each split is in a pseudo-random order, which depends on the problems' ids alone: a problem keeps its
    place relative to others when some are added or left out.

    Raises UserError if a split is empty, an id occurs twice, or a problem names another verifier than `requires`.
    """
    seen: set[str] = set()
    selected: list[Problem] = []
    for split in split_names(splits):
        problems = problems_of(task, split)
        if not problems:
            raise DataError(f"the split {split!r} holds no problem")
        for problem in problems:
            if problem.id in seen:
                raise DataError(f"the split {splits!r} holds the id {problem.id!r} twice; ids must be unique")
            seen.add(problem.id)
            if requires and problem.verifier not in (requires, ""):
                raise DataError(
                    f"a preset is for problems that the verifier {requires!r} judges, but {problem.id!r} names "
                    f"{problem.verifier!r}; leave the preset out, or set task.requires to it"
                )
        if shuffle:
            problems = sorted(problems, key=lambda problem: hashlib.sha256(f"0\0order\0{problem.id}".encode()).digest())
        selected += problems[:limit] if limit else problems
    return selected


def load_problems(config: TaskConfig) -> tuple[Task, list[Problem]]:
    """The task and the problems that the settings name."""
    task = make_task(config)
    return task, select(task, config.split, config.limit, shuffle=config.shuffle, requires=config.requires)


def make_verifiers(
    config: JudgeConfig,
    reward: RewardConfig | None = None,
    function: "RewardFunction | None" = None,
    *,
    bare_sql: bool = False,
    answers: bool = False,
) -> Verifiers:
    """The verifiers, each with its settings, or a reward function that judges every problem: `function` in this
    process, or the one that `reward` names.

    bare_sql: responses contain only SQL. answers: `Verifiers.tell` will be asked what judged responses answer.
    """

    def settings(*names: str) -> dict[str, Any]:
        return {name: getattr(config, name) for name in ("workers", "timeout", *names)}

    sql = settings("comparator", "keep_distinct", "columns", "tolerance", "unterminated", "reward")
    sql |= {"answer": "whole" if bare_sql else "block", "answers": answers}
    math = settings("policy", "decimals") | {"fallback": config.fallback or None}
    by_function = settings() | asdict(reward or RewardConfig())
    by_function["function"] = function or by_function["function"]
    only = "function" if by_function["function"] else ""
    skips = isinstance(config, VerifierConfig) and config.skip_weak
    return Verifiers({"sql": sql, "math": math, "function": by_function}, only=only, skip_weak=skips)


def make_sampler(
    config: TrainingSamplerConfig,
    policy: "Policy",
    model: EvaluatedModelConfig,
    longest: int,
    *,
    training: bool = False,
) -> "Sampler":
    """The sampler that the settings name, for up to `longest` tokens of a prompt and its response.

    model: names a model of the policy's architecture, and the weights of a policy that is not trained. training: the
    policy's weights change between calls; `Sampler.weights_changed` announces it.
    """
    from dph.models.fitting import fitting_rows
    from dph.sampling.protocol import SAMPLERS, checked

    if not config.rows:
        config = replace(config, rows=fitting_rows(policy, longest, 0, step=int(training)))
    factory, what = SAMPLERS[config.engine], f"sampler engine {config.engine!r}"
    call = partial(factory, policy, config, model=model, longest=longest, training=training)
    sampler = ask(what, factory, call)
    return sampler if is_ours(factory) else checked(what, sampler)
