"""Certificates after the fact: of models, or of samples that any program judged."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dph.build import make_verifiers
from dph.config import CertifyStageConfig, EvalConfig, ModelConfig, comparable, narrowed
from dph.errors import DataError, RunError, SettingsError
from dph.evaluation.certificate import Certificate, certificate, fixed_sequence
from dph.evaluation.certification import CertificationSet
from dph.evaluation.samples import read_samples
from dph.models.policy import Policy
from dph.process.progress import say
from dph.runs.directory import find_model
from dph.runs.files import write_atomically
from dph.runs.parquet import read_parquet, rows_of
from dph.stages.evaluate import evaluate
from dph.tasks.tables import read_rows
from dph.types import UNSCORED, Outcome

Samples = Mapping[str, Sequence[int]]
"""By the id of a problem, 1 for each correct and 0 for each wrong sample, in their order."""


def certify(config: CertifyStageConfig, *, resume: bool = False) -> list[Certificate]:
    """Check checkpoints in their order until one fails; returns the checks, and writes them if a folder is named.
    Raises UserError for samples of different problems, and for a presample run that kept too few aside."""
    if not config.base or not config.checkpoints:
        raise SettingsError("dph certify needs a base and checkpoints: dph certify BASE CHECKPOINT …")
    is_set = (Path(config.base) / "partition.parquet").exists()
    sequence = fixed_sequence(_of_set(config) if is_set else of_samples(config, resume))
    checks = []
    for name, check in zip(config.checkpoints, sequence, strict=False):
        say(f"{name}: {check.sentence()}")
        checks.append(check)
    if config.out:
        Path(config.out).mkdir(parents=True, exist_ok=True)
        rows = [{"checkpoint": name} | asdict(check) for name, check in zip(config.checkpoints, checks, strict=False)]
        write_atomically(Path(config.out) / "certificates.json", json.dumps(rows, indent=1) + "\n")
    return checks


def _of_set(config: CertifyStageConfig) -> Iterator[Certificate]:
    """Checks of models on the certification set of a presample run."""
    held = CertificationSet.open(replace(config.certify, set=config.base))
    function = held.made.reward.function  # code is never run because a run's files name it
    if function and comparable(function) != comparable(config.reward.function):
        code = f"the settings of {held.run.path} name code to run (reward.function), which only a flag can allow"
        raise RunError(f"{code}; if you trust it, add --reward {shlex.quote(function)}")
    with make_verifiers(held.made.verifier, held.made.reward) as verifiers:
        for model in (_model(config, name) for name in config.checkpoints):
            yield held.certify(Policy.load(model), model, config.sampler, verifiers)


def of_samples(config: CertifyStageConfig, resume: bool) -> Iterator[Certificate]:
    """Checks of judged samples; models are sampled first."""
    every, allowed, n = _samples(config, 0, 1, resume), config.certify, config.choose
    base = {id: (sum(e[n:]), len(e[n:])) for id, e in every.items() if sum(e[:n]) >= config.mastered * n}
    if n:
        say(f"the base model's first {n} samples choose {len(base)} of {len(every)} problems; the others measure it")
    for place in range(1, 1 + len(config.checkpoints)):
        # with equal seeds a checkpoint's first samples resemble those that chose the problems
        samples = {id: (sum(e[n:]), len(e[n:])) for id, e in _samples(config, place, 0, resume).items()}
        chosen = {id: each for id, each in samples.items() if id in base or id not in every}
        yield certificate(base, chosen, allowed.epsilon, allowed.alpha, allowed.k)


def _model(config: CertifyStageConfig, name: str) -> ModelConfig:
    return replace(config.model, path=find_model(name).model)


def _samples(config: CertifyStageConfig, place: int, unjudged: int, resume: bool) -> Samples:
    name = (config.base, *config.checkpoints)[place]
    path = Path(name)
    if path.is_file() or any((path / file).exists() for file in ("completions.parquet", "verdicts.jsonl")):
        return judged_samples(path, unjudged)
    if not config.out:
        raise SettingsError(f"{name} is taken for a model, whose samples need a folder; name one with --out")
    evaluation = replace(narrowed(EvalConfig, config), model=_model(config, name), greedy=False)
    return judged_samples(evaluate(replace(evaluation, out=f"{config.out}/eval-{place}"), resume=resume), unjudged)


def judged_samples(path: Path, unjudged: int) -> Samples:
    """By problem, 1 for each correct, 0 for each wrong and `unjudged` for each other sample: of a run of `dph eval` or
    `dph verify`, of JSONL rows {problem_id, sample, correct}, or of a log that `dph passk` reads without options."""
    samples: dict[str, list[int]] = {}
    try:
        for id, correct in _verdicts(path):
            if not isinstance(id, str | int) or isinstance(id, bool):
                raise ValueError(f"id: {id!r:.100} names no problem")
            samples.setdefault(str(id), []).append({None: unjudged, False: 0, True: 1}[correct])
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} does not hold judged samples: a row lacks or has a wrong {error}") from error
    return samples


def _verdicts(path: Path) -> Iterable[tuple[Any, Any]]:
    """The problem of each sample and whether it is correct, None if it could not be judged."""
    completions, verdicts = path / "completions.parquet", path / "verdicts.jsonl"
    if completions.exists():
        rows = rows_of(read_parquet(completions, ["split", "id", "sample", "outcome"]))
        if len({row["split"] for row in rows}) > 1:
            rows = [row | {"id": f"{row['split']}: {row['id']}"} for row in rows]
        return [(row["id"], _correct(row["outcome"])) for row in rows if row["sample"] >= 0]
    if verdicts.exists():
        return [(row["id"], _correct(row["outcome"])) for row in read_rows(verdicts)]
    rows = read_rows(path) if path.suffix == ".jsonl" else []
    if rows and rows[0].keys() >= {"problem_id", "correct"}:
        return [(row["problem_id"], row["correct"]) for row in rows]
    log = read_samples(path)
    return [(log.problems[i], bool(right)) for i, right in zip(log.problem, log.right, strict=True)]


def _correct(outcome: str) -> bool | None:
    return None if Outcome(outcome) in UNSCORED else outcome == Outcome.CORRECT
