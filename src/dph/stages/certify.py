"""Certificates after the fact: of models, or of samples that any program judged. Loads torch only for models."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dph.config import CertifyStageConfig, EvalConfig, ModelConfig, Reading, code_of, named_by, narrowed
from dph.errors import DataError, SettingsError, counted, one_line
from dph.evaluation.certificate import Certificate, Choice, Judged, certificate, fixed_sequence
from dph.evaluation.samples import read_samples
from dph.process.places import check_links
from dph.process.progress import say
from dph.runs.directory import find_model, is_model_folder
from dph.runs.files import write_atomically
from dph.runs.parquet import read_parquet, rows_of
from dph.tasks.tables import read_rows
from dph.types import UNSCORED, Outcome

_TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
"""Endings of names that are no models."""


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
    from dph.build import make_verifiers
    from dph.evaluation.certification import CertificationSet
    from dph.models.policy import Policy

    held = CertificationSet.open(replace(config.certify, set=config.base))
    judges = [code for code in code_of(held.made) if code.setting == "reward.function"]
    named_by(config).check(judges, f"{held.run.path / 'config.toml'}")
    with make_verifiers(held.made.verifier, held.made.reward) as verifiers:
        for model in (_model(config, name) for name in config.checkpoints):
            yield held.certify(Policy.load(model), model, config.sampler, verifiers)


def of_samples(config: CertifyStageConfig, resume: bool) -> Iterator[Certificate]:
    """Checks of judged samples; models are sampled first.

    With `choose`, some of the base model's samples choose the problems (`Choice`). Samples are told apart by their
    numbers, if every side has them.
    """
    allowed, n = config.certify, config.choose
    names = (config.base, *config.checkpoints)
    files = [
        judged_samples(Path(name), int(place == 0), config) if _holds_samples(name) else None
        for place, name in enumerate(names)
    ]
    numbered = all(side.numbered for side in files if side)

    def side(place: int) -> Judged:
        judged = files[place] or judged_samples(_evaluated(config, names[place], place, resume), int(place == 0))
        return judged if numbered else judged.without_numbers()

    choice = Choice(side(0), n, config.mastered, config.base)
    if n:
        of = counted(choice.problems, "problem")
        say(f"{n} of the base model's samples choose {len(choice.base)} of {of}; the others measure it")
        if not numbered:
            say("some samples have no number, so that only counts are used, which certifies somewhat less")
    for place in range(1, len(names)):
        yield certificate(choice.base, choice.counts(side(place)), allowed.epsilon, allowed.alpha, allowed.k)


def _model(config: CertifyStageConfig, name: str) -> ModelConfig:
    return replace(config.model, path=find_model(name).model)


def _holds_samples(name: str) -> bool:
    """Whether a word names judged samples: a file, a run that holds some, or a folder that is neither a run nor a
    model, which then holds logs. Raises DataError for a file that is not there."""
    path = Path(name)
    if not path.exists() and path.suffix in _TABLES:
        raise DataError(f"there is no file {name}; correct its path")
    if path.is_file() or any((path / file).exists() for file in ("completions.parquet", "verdicts.jsonl")):
        return True
    parts = (path / "config.toml", path / "config.json", path / "adapter_config.json")
    return path.is_dir() and not any(map(Path.exists, parts)) and not is_model_folder(path / "model")


def _evaluated(config: CertifyStageConfig, name: str, place: int, resume: bool) -> Path:
    """The run of `dph eval` that samples a model."""
    from dph.stages.evaluate import evaluate

    if not config.out:
        raise SettingsError(f"{name} is taken for a model, whose samples need a folder; name one with --out")
    evaluation = replace(narrowed(EvalConfig, config), model=_model(config, name), greedy=False)
    return evaluate(replace(evaluation, out=f"{config.out}/eval-{place}"), resume=resume)


def judged_samples(path: Path, unjudged: int, reading: Reading | None = None) -> Judged:
    """Judged samples of a run of `dph eval` or `dph verify`, of JSONL rows {problem_id, sample, correct}, or of a log
    that `dph passk` reads, as `reading` says. unjudged: the value of a sample that could not be judged.

    Raises DataError for rows that are no samples, and for two rows of one sample.
    """
    samples: dict[str, dict[int, int]] = {}
    check_links(path)
    rows, numbered = _verdicts(path, reading), True
    try:
        lowest = min((number for _, number, _ in rows if number is not None), default=0)
        numbered = all(number is not None for _, number, _ in rows)
        for id, number, correct in rows:
            if not isinstance(id, str | int) or isinstance(id, bool):
                raise ValueError(f"id: {id!r:.100} names no problem")
            each = samples.setdefault(str(id), {})
            place = len(each) if not numbered or number is None else number - lowest
            if place in each:
                twice = f"{path}: two rows have sample {number} of problem {one_line(str(id), 60)!r}"
                raise DataError(f"{twice}, and a sample counts once; remove one of them")
            each[place] = {None: unjudged, False: 0, True: 1}[correct]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} does not hold judged samples: a row lacks or has a wrong {error}") from error
    judged = Judged(samples, numbered)
    return judged if numbered else judged.without_numbers()


def _verdicts(path: Path, reading: Reading | None) -> list[tuple[Any, int | None, Any]]:
    """The problem and the number of each sample, None without one, and whether it is correct, None if it could not be
    judged. Raises DataError for what is damaged."""
    completions, verdicts = path / "completions.parquet", path / "verdicts.jsonl"
    if completions.exists():
        rows: list[dict[str, Any]] = rows_of(read_parquet(completions, ["split", "id", "sample", "outcome"]))
        if len({row["split"] for row in rows}) > 1:
            rows = [row | {"id": f"{row['split']}: {row['id']}"} for row in rows]
        return [(row["id"], row["sample"], _correct(row["outcome"])) for row in rows if row["sample"] >= 0]
    rows = read_rows(verdicts) if verdicts.exists() else read_rows(path) if path.suffix == ".jsonl" else []
    try:
        if verdicts.exists():
            return [(row["id"], _number(row.get("sample")), _correct(row["outcome"])) for row in rows]
        if rows and rows[0].keys() >= {"problem_id", "correct"}:
            return [(row["problem_id"], _number(row.get("sample")), row["correct"]) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} does not hold judged samples: a row lacks or has a wrong {error}") from error
    log = read_samples(path, reading)
    numbers = [None] * len(log.right) if log.number is None else log.number.tolist()
    ids = [log.problems[i] for i in log.problem]
    return list(zip(ids, numbers, log.right.tolist(), strict=True))


def _number(value: Any) -> int | None:
    """The number of a sample; None without one."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(f"'sample' ({one_line(str(value), 40)}), which is no whole number")


def _correct(outcome: str) -> bool | None:
    return None if Outcome(outcome) in UNSCORED else outcome == Outcome.CORRECT
