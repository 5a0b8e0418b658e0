"""`dph certify`: certificates of finished models, or of samples that any program has judged. torch is loaded only for
models."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from filecmp import cmp
from pathlib import Path

import numpy as np

from dph.config import (
    CertifySetConfig,
    CertifyStageConfig,
    EvalConfig,
    EvaluatedModelConfig,
    Reading,
    code_of,
    flatten,
    named_by,
    narrowed,
    to_dict,
)
from dph.config.checks import is_local
from dph.errors import DataError, SettingsError, counted
from dph.extras import require_training
from dph.measure.certificate import Certificate, Choice, Judged, certificate, fixed_sequence, untested
from dph.measure.changes import check_prompts
from dph.measure.samples import NONE, Samples
from dph.measure.sides import read_sides
from dph.process.progress import say
from dph.runs.directory import find_model, is_model_folder
from dph.runs.files import check_replaced, write_atomically

MADE_BY = {"made_by": "dph certify"}
"""A mark in every row of certificates.json, so that a file of somebody else is not replaced."""
_FILES = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".eval", ".zip", ".gz", ".zst", ".bz2", ".txt")
"""The endings of names that are files and no models."""
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.gguf")
_OF_READING = tuple(field.name for field in fields(Reading))
_OF_CHOICE = ("choose", "mastered", "for_k")
_ALWAYS = ("base", "checkpoints", "out", "certify", "plugins")
_OF_SET = ("model", "sampler")
"""The settings of the sampling of models that are checked on the set of a presample run. All other settings are those
of the set."""


def certify(config: CertifyStageConfig, *, resume: bool = False) -> list[Certificate]:
    """Check checkpoints in their order until one fails. Returns the checks and, if a folder is named, writes them
    there.

    Raises UserError for samples of different problems, and for a presample run that kept too few problems aside.
    """
    if not config.base or not config.checkpoints:
        raise SettingsError("dph certify needs a base and checkpoints: dph certify BASE CHECKPOINT …")
    if config.out and Path(config.out).is_file():
        raise SettingsError(f"--out {config.out} is a file; name a folder for the results")
    is_set = (Path(config.base) / "partition.parquet").exists()
    file = Path(config.out) / "certificates.json" if config.out else None
    if file:
        check_replaced([file], json.dumps(MADE_BY)[1:-1], "dph certify")
    if is_set and resume:
        say("--resume changes nothing: the models are sampled anew")
    sequence = fixed_sequence(_of_set(config) if is_set else of_samples(config, resume))
    checks = []
    for name, check in zip(config.checkpoints, sequence, strict=False):
        say(f"{name}: {check.sentence()}")
        checks.append(check)
    if left := untested(config.checkpoints, checks):
        say(left)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        named = zip(config.checkpoints, checks, strict=False)
        rows = [MADE_BY | {"checkpoint": name} | asdict(check) for name, check in named]
        rows += [MADE_BY | {"checkpoint": name, "tested": False} for name in config.checkpoints[len(checks) :]]
        write_atomically(file, json.dumps(rows, indent=1) + "\n")
    return checks


def _of_set(config: CertifyStageConfig) -> Iterator[Certificate]:
    """The checks of models on the certification set of a presample run."""
    require_training("dph certify of a model")
    from dph.build import make_verifiers
    from dph.evaluation.certification import CertificationSet
    from dph.models.policy import Policy

    _check_unread(config, (*_ALWAYS, *_OF_SET), f"the problems of {config.base} are chosen and sampled as it says")
    held = CertificationSet.open(CertifySetConfig(**to_dict(config.certify), set=config.base))
    judges = [code for code in code_of(held.settings) if code.setting == "reward.function"]
    named_by(config).check(judges, f"{held.run.path / 'config.toml'}")
    with make_verifiers(held.settings.verifier, held.settings.reward) as verifiers:
        for model in (_model(config, name) for name in config.checkpoints):
            yield held.certify(Policy.load(model), model, config.sampler, verifiers)


def of_samples(config: CertifyStageConfig, resume: bool) -> Iterator[Certificate]:
    """The checks of judged samples. Models are sampled first.

    With `choose`, some samples of the base model choose the problems (`Choice`). Samples are told apart by their
    numbers if every side has numbers.
    """
    allowed, n = config.certify, config.choose
    names = (config.base, *config.checkpoints)
    there = [place for place, name in enumerate(names) if _holds_samples(name, config)]
    if len(there) < len(names):
        require_training("dph certify of a model")
    _check_part(config, len(there), len(names))
    if resume and len(there) == len(names):
        say("--resume changes nothing: files are read, and no model is sampled")
    files = dict(zip(there, read_sides([names[place] for place in there], config, each=True), strict=True))
    _say_copies(names, there)
    for note in (note for side in files.values() for note in side.notes):
        say(note)
    if any("partial" in side.used for side in files.values()):
        say("--partial: the certificate is right only if no sample is missing because of its answer")
    numbered = all(side.number is not None for side in files.values())

    def samples(place: int) -> Samples:
        if place not in files:
            [files[place]] = read_sides([_evaluated(config, names[place], place, resume)], Reading(), each=True)
        if place and config.prompt != NONE:
            check_prompts(files[0], files[place])
        return files[place]

    def side(place: int) -> Judged:
        judged = judged_of(samples(place), int(place == 0))
        return judged if numbered else judged.without_numbers()

    base = side(0)
    choice = Choice(base, n, config.mastered, config.base, config.for_k)
    if n:
        _say_choice(config, choice, numbered)
    remedy = f", or let fewer than {n} samples choose" if n > 1 else ""
    k = config.for_k or allowed.k
    for place in range(1, len(names)):
        checkpoint = side(place)
        ways = [
            certificate(choice.base, counts, allowed.epsilon, allowed.alpha, k, remedy)
            for counts in choice.ways(checkpoint)
        ]
        others, lost = choice.others(base, checkpoint) if n else (0, 0)
        yield replace(max(ways, key=lambda check: check.bound), others=others, others_lost=lost)


def _say_choice(config: CertifyStageConfig, choice: Choice, numbered: bool) -> None:
    """Say which problems are chosen. Raises DataError if there are none."""
    n, k, of = config.choose, config.for_k, counted(choice.problems, "problem")
    share = f"at least 1/{k} and less than 4/{k}" if k else f"at least {100 * config.mastered:g} %"
    share += f" of {counted(n, 'sample')} of the base model"
    say(f"{len(choice.base)} of {of} are chosen: {share} are correct; its other samples measure it")
    if not numbered:
        say("some samples have no number, so that only counts are used, which certifies somewhat less")
    if not choice.base:
        remedy = "name another --for-k" if k else "lower --mastered"
        raise DataError(
            f"{config.base}: in none of {of} are {share} correct, so that there is nothing to certify; {remedy}"
        )


def _say_copies(names: Sequence[str], files: Sequence[int]) -> None:
    """Say which checkpoints are the samples of the base model itself, or a copy of them. Such a certificate is about no
    training, and its two sides agree even where only chance decided."""
    for place in files[1:] if 0 in files else ():
        base, other = Path(names[0]), Path(names[place])
        if other.samefile(base):
            say(f"{names[place]} holds the base model's own samples, so that its certificate is about no training")
        elif base.is_file() and other.is_file() and cmp(base, other, shallow=False):
            say(f"{names[place]} has the content of {names[0]}, byte by byte: perhaps it is a copy")


def judged_of(side: Samples, unjudged: int) -> Judged:
    """The samples of a file, by problem and number. unjudged: the value that stands for a sample that could not be
    judged, 0 or 1."""
    right = side.right.astype(np.int64)
    if side.judged is not None:
        right[~side.judged] = unjudged
    ids = list(side.problems)
    samples: dict[str, dict[int, int]] = {id: {} for id in ids}
    numbers = [None] * len(right) if side.number is None else (side.number - side.number.min()).tolist()
    for problem, number, value in zip(side.problem.tolist(), numbers, right.tolist(), strict=True):
        counts = samples[ids[problem]]
        counts[len(counts) if number is None else number] = value
    judged = Judged(samples, side.number is not None)
    return judged if judged.numbered else judged.without_numbers()


def _check_part(config: CertifyStageConfig, files: int, sides: int) -> None:
    """Refuse options of columns if no side is a file, and options that a certificate does not need. If no model is
    sampled, say which settings of sampling have no effect."""
    if config.answer:
        raise SettingsError("a certificate counts no answers: leave --answer out")
    if not config.choose and config.mastered != CertifyStageConfig.mastered:
        raise SettingsError("--mastered says which share of the samples of --choose must be correct; name --choose too")
    if not files:
        read = (*_ALWAYS, *_OF_CHOICE, *(field.name for field in fields(EvalConfig)))
        _check_unread(config, read, "models are sampled, and no file is read")
    elif files == sides:
        _check_unread(config, (*_ALWAYS, *_OF_CHOICE, *_OF_READING), "files are read, and no model is sampled")


def _check_unread(config: CertifyStageConfig, read: Sequence[str], why: str) -> None:
    """Refuse options that have no part in the certificate, if they are options of columns or of the choice, which only
    a command line can have set. Say which other settings have no part, because a preset may have set them."""
    now, usual = flatten(to_dict(config)), flatten(to_dict(CertifyStageConfig()))
    names = [name for name in now if now[name] != usual.get(name) and name.partition(".")[0] not in read]
    if refused := [name for name in names if name in (*_OF_READING, *_OF_CHOICE)]:
        raise SettingsError(f"--{refused[0]} has no part in this certificate: {why}; leave it out")
    if names:
        say(f"without effect here, because {why}: {', '.join(names)}")


def _model(config: CertifyStageConfig, name: str) -> EvaluatedModelConfig:
    return replace(config.model, path=find_model(name).model)


def _holds_samples(name: str, config: CertifyStageConfig) -> bool:
    """Whether a word on the command line names judged samples: a file, a run that holds some, or a folder that is
    neither a run nor a model, which then holds logs. Raises UserError if there is no such file or folder, unless the
    word may be the name of a model."""
    path = Path(name)
    if not path.exists():
        if is_local(name) or path.suffix.lower() in _FILES:
            raise DataError(f"there is no file or folder {name}; correct its path")
        if not config.out:
            either = f"there is no file or folder {name}; correct its path"
            raise SettingsError(f"{either}, or, if it is the name of a model, add a folder for its samples with --out")
        return False
    if not path.is_dir() or any((path / file).exists() for file in ("completions.parquet", "verdicts.jsonl")):
        return True
    parts = (path / "config.toml", path / "config.json", path / "adapter_config.json")
    if any(map(Path.exists, parts)) or is_model_folder(path / "model"):
        return False
    return not any(next(path.glob(weights), None) for weights in _WEIGHTS)


def _evaluated(config: CertifyStageConfig, name: str, place: int, resume: bool) -> Path:
    """The run directory of a `dph eval` that samples a model. place: the number of the model among the sides."""
    from dph.stages.evaluate import evaluate

    if not config.out:
        raise SettingsError(f"{name} is a model, whose samples need a folder; name one with --out")
    evaluation = replace(narrowed(EvalConfig, config), model=_model(config, name), greedy=False)
    return evaluate(replace(evaluation, out=f"{config.out}/eval-{place}"), resume=resume)
