"""The arms of the experiments B, E and F, as their protocols (experiments/results/anchor.md) have them, and their
commands. Experiment D1 (`experiments.factorial`) uses the same commands with other arms."""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dph.process.jobs import Job

STARTS = tuple(range(21, 33))
"""Seeds of the worlds: each has its own problems, base model and pre-sampling. None was used in a pilot."""
WORLD = "countdown"
CLIP = ("--loss.clip-high", "0.28")
"""Every arm has it, so that an arm differs from GRPO in one thing."""
NEAR, SOLVED, DISTINCT, SEEN, RARE = "near", "solved", "distinct", "seen", "rare"
"""Pre-samplings: rows of near-perfect problems (6 of 8), of every problem that is solved at least once in 32, of these
each different response once, of every problem that is solved at least once in the 8 draws that `NEAR` takes too, and
`NEAR` with rows of the problems that are solved one to three times (`experiments.factorial.rare`)."""
PRESAMPLES = {
    NEAR: (),
    SEEN: ("--threshold", "1", "--refine", "keep"),
    SOLVED: ("--threshold", "1", "--rollout.n", "32", "--refine", "keep", "--stored", "8"),
    DISTINCT: ("--preset", "grpo_sft"),
}
FAST = "1e-4"
"""The learning rate of every arm with an anchor."""
STEPS = 125
TRAINED = 16_000
"""Responses that a training run draws: 125 steps of 8 × 16."""
PRESAMPLED = {"": 0, NEAR: 8_000, SEEN: 8_000, RARE: 8_000, SOLVED: 32_000, DISTINCT: 32_000}
"""Responses that pre-sampling draws for 1,000 problems, without its refinement."""

Flags = Mapping[str, tuple[str, ...]]
"""Further flags of a `dph` command by stage."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A training run of a start, and the weights that are made of it."""

    name: str
    family: str
    """Arms of one family differ in strength only; they are listed from weak to strong."""
    flags: tuple[str, ...]
    """Flags of `dph train` besides the world."""
    rows: str | None = ""
    """The pre-sampling whose rows it needs; without one it reads a partition for its problems, or with None nothing."""
    seed: int = 1
    stops: tuple[int, ...] = ()
    """Steps at which the model is evaluated too."""
    shares: tuple[float, ...] = ()
    """Shares of the trained weights at which it is evaluated too."""
    trained: int = TRAINED
    """Responses that its training draws."""
    steps: int = STEPS
    """Steps of its training; the flags must say so where they are not the world's."""

    @property
    def rollouts(self) -> int:
        """Responses drawn in training and for the arm's rows."""
        return self.trained + PRESAMPLED[self.rows or ""]


@dataclass(frozen=True, slots=True)
class Made:
    """Weights that are made of trained models, without a training of their own."""

    name: str
    family: str
    models: tuple[tuple[str, int], ...]
    """Arms of experiment B and steps of their training, whose weights are averaged."""
    share: float
    """Share of that mean; the rest is the base model's. Above 1 it goes beyond the mean."""
    rollouts: int
    """Responses that were drawn to train the models."""


def arms() -> tuple[Arm, ...]:
    """All arms, in the order in which they run."""
    found = [Arm(f"grpo-{lr}", "grpo", _grpo(lr)) for lr in ("2.5e-5", "5e-5")]
    found.append(Arm(f"grpo-{FAST}", "grpo", _grpo(FAST), stops=(50, 75, 100), shares=(0.5, 0.75)))
    found.append(Arm("grpo-2e-4", "grpo", _grpo("2e-4"), shares=(0.5, 0.75)))
    for rows, divergence in ((SOLVED, "js"), (NEAR, "js"), (SOLVED, "forward_kl"), (SOLVED, "reverse_kl")):
        for eta in ("0.3", "1", "2"):
            flags = ("--loss.divergence", divergence, "--loss.eta", eta, "--rehearsal.rows", "64")
            found.append(Arm(f"{rows}-{divergence}-{eta}", f"{rows}-{divergence}", _grpo(FAST, *flags), rows))
    for kl in ("k3", "k2", "k3_is"):
        for beta in ("0.1", "0.3", "1"):
            flags = ("--loss.kl", kl, "--loss.kl-coef", beta)
            found.append(Arm(f"{kl}-{beta}", kl, _grpo(FAST, *flags)))
    found.append(Arm("exp_only", "exp_only", ("--preset", "exp_only", "--optim.lr", FAST), NEAR))
    found.append(Arm("dph_js", "dph_js", ("--preset", "dph_js", "--optim.lr", FAST), NEAR))
    found += [Arm(f"grpo-{lr}-again", "grpo-again", _grpo(lr), seed=2) for lr in ("2.5e-5", "5e-5", FAST, "2e-4")]
    return tuple(found)


def _grpo(lr: str, *flags: str) -> tuple[str, ...]:
    return ("--preset", "grpo", "--optim.lr", lr, *flags)


def world(start: int, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Flags that select the world of a start; options: further names and values of the task's options."""
    return ("--preset", WORLD, "--task.options", "seed", str(start), *options)


def base_jobs(
    start: int,
    out: Path,
    extra: Flags,
    presamples: Sequence[str] = (NEAR, SOLVED),
    options: Sequence[str] = (),
) -> list[Job]:
    """The base model of a start, its two evaluations and pre-samplings. extra: further flags by stage; options: further
    options of the task."""
    base = str(out / "base")
    given = (*world(start, options), "--seed", str(start))
    jobs = [_job("base", "sft", (*given, "--out", base), out / "base", extra)]
    jobs += [evaluation(start, out, name, f"{base}/model", extra, options) for name in ("base", "base-again")]
    for rows in presamples:
        words = (*given, *PRESAMPLES[rows], "--model.path", f"{base}/model", "--out", str(out / rows))
        jobs.append(_job(rows, "presample", words, out / rows, extra))
    return jobs


def arm_jobs(
    start: int,
    out: Path,
    arm: Arm,
    extra: Flags,
    below: str = "",
    options: Sequence[str] = (),
) -> Iterator[Job]:
    """Training of an arm, the weights made of it, and their evaluations. out: folder of the start; below: the folder in
    it for what is made here; options: further options of the task."""
    run = out / below / "train" / arm.name
    interval = str(math.gcd(STEPS, *arm.stops))
    every = ("--checkpoint-every", interval, *(("--keep-checkpoints", "9") if arm.stops else ()))
    words = (*world(start, options), *arm.flags, *CLIP, *every, "--seed", str(100 * start + arm.seed))
    words += ("--model.path", str(out / "base/model"))
    words += () if arm.rows is None else ("--rehearsal.path", str(out / (arm.rows or NEAR)))
    yield _job(arm.name, "train", (*words, "--out", str(run)), run, extra)
    yield evaluation(start, out / below, arm.name, str(run / "model"), extra, options)
    for step in arm.stops:
        model = str(out / below / checkpoint(arm.name, step, extra, arm.steps))
        yield evaluation(start, out / below, f"{arm.name}-step{step}", model, extra, options)
    for share in arm.shares:
        name = f"{arm.name}-share{share}"
        made = out / below / "shares" / name
        words = ("interpolate", "--run", str(run), "--weight", str(share), "--out", str(made))
        yield Job(f"make-{name}", words, out=made, at_once=True)
        yield evaluation(start, out / below, name, str(made), extra, options)


SMOKE_STEPS = {125: 5, 375: 3, 500: 4}
"""Steps of a smoke run by those of the whole training: each stands for equally many, so that the stops exist."""


def checkpoint(arm: str, step: int, extra: Flags, steps: int = STEPS) -> str:
    """The model of an arm after a step of its training, below the folder of its runs. steps: those of the training;
    extra: flags of a smoke run, if it is one."""
    return f"train/{arm}/checkpoints/step-{step * SMOKE_STEPS[steps] // steps if extra else step:08d}/model"


def evaluation(start: int, out: Path, name: str, model: str, extra: Flags, options: Sequence[str] = ()) -> Job:
    """An evaluation on the test problems of the start, with random numbers of its own: with the base model's, a
    model would look more like it than it is, and a mix of both would not be unbiased."""
    seed = str(zlib.crc32(name.encode()))
    words = (*world(start, options), "--label", name, "--seed", seed)
    words += ("--model.path", model, "--out", str(out / "eval" / name))
    return _job(f"eval-{name}", "eval", words, out / "eval" / name, extra)


def _job(name: str, stage: str, words: tuple[str, ...], out: Path, extra: Flags) -> Job:
    return Job(name, (stage, *words, *extra.get(stage, ()), "--resume"), out=out)


# Experiment E: what follows from B ----------------------------------------------------------------------------------

FOLLOW = "e"
"""Folder of experiment E in the folder of a start."""
DELETED = {
    "recent-js": ("recent-js-3", "recent-js-10", "recent-js-30"),
    "recent-solved-js": ("recent-solved-js-0.3", "recent-solved-js-1", "recent-solved-js-2"),
    "distinct-raw": ("distinct-raw-0.1", "distinct-raw-0.3", "distinct-raw-1"),
}
"""Families that experiment E has tried and not kept, with their arms. The counts have them; the code that trained them
was deleted, as the protocol says."""
NEEDED = ("grpo", "grpo-again", f"{SOLVED}-js", "k3")
"""Families of experiment B that experiment E compares with."""


def needed() -> tuple[Arm, ...]:
    """The arms of experiment B that experiment E reads."""
    return tuple(arm for arm in arms() if arm.family in NEEDED)


def follow_arms() -> tuple[Arm, ...]:
    """The training runs of experiment E that can still be made, in their order."""
    found = []
    for eta in ("0.3", "1", "3"):
        flags = ("--loss.divergence", "forward_kl_raw", "--rehearsal.rows", "64", "--loss.eta", eta)
        found.append(Arm(f"solved-raw-{eta}", "solved-raw", _grpo(FAST, *flags), SOLVED))
    for beta, eta in (("0.03", "0.1"), ("0.1", "0.3"), ("0.3", "1")):
        flags = ("--loss.divergence", "js", "--rehearsal.rows", "64", "--loss.eta", eta)
        flags += ("--loss.kl", "k3", "--loss.kl-coef", beta)
        found.append(Arm(f"k3-solved-js-{beta}", "k3-solved-js", _grpo(FAST, *flags), SOLVED))
    for lr in ("2.5e-5", "5e-5", FAST):
        flags = _grpo(lr, "--rollout.prompts", "24")
        found.append(Arm(f"grpo-24-{lr}", "grpo-24", flags, trained=3 * TRAINED))
    return tuple(found)


# Experiment F: the lead of E, on new starts ---------------------------------------------------------------------------

CONFIRM_STARTS = tuple(range(41, 49))


def confirm_arms() -> tuple[Arm, ...]:
    """The training runs of experiment F, in their order: each draws 48,000 responses. The first one was run as
    `distinct-raw` of experiment E, before it became a preset."""
    found = [Arm("distinct-raw-1", "distinct-raw", ("--preset", "grpo_sft", "--optim.lr", FAST), DISTINCT)]
    wide = ("--rollout.prompts", "24")
    for lr in ("1.25e-5", "2.5e-5", "5e-5"):
        found.append(Arm(f"grpo-24-{lr}", "grpo-24", _grpo(lr, *wide), None, trained=3 * TRAINED))
    for beta in ("1", "0.3"):
        flags = _grpo(FAST, *wide, "--loss.kl", "k3", "--loss.kl-coef", beta)
        found.append(Arm(f"k3-24-{beta}", "k3-24", flags, None, trained=3 * TRAINED))
    return tuple(found)


def made() -> tuple[Made, ...]:
    """The weights that experiment E makes of what experiment B trained."""
    found = [Made(f"beyond-{w}", "beyond", (("grpo-2.5e-5", 125),), w, TRAINED) for w in (1.5, 2.0, 3.0)]
    for steps in ((25, 50, 75), (50, 75, 100), (75, 100, 125)):
        models = tuple((f"grpo-{FAST}", step) for step in steps)
        found.append(Made(f"averaged-{steps[1]}", "averaged", models, 1.0, TRAINED))
    for lr in ("2.5e-5", "5e-5", FAST, "2e-4"):
        pair = ((f"grpo-{lr}", 125), (f"grpo-{lr}-again", 125))
        found.append(Made(f"soup-{lr}", "soup", pair, 1.0, 2 * TRAINED))
    return tuple(found)


def made_jobs(start: int, out: Path, one: Made, extra: Flags) -> Iterator[Job]:
    """The commands that make weights, and their evaluation. A mean of n models takes n − 1 commands, then one moves it
    along the line from the base model."""
    model, *others = (str(out / checkpoint(arm, step, extra)) for arm, step in one.models)
    for number, other in enumerate(others, 2):
        model, job = _between(out, f"{one.name}-of-{number}", model, other, 1 / number)
        yield job
    if one.share != 1:
        model, job = _between(out, f"{one.name}-share", str(out / "base/model"), model, one.share)
        yield job
    yield evaluation(start, out / FOLLOW, one.name, model, extra)


def _between(out: Path, name: str, initial: str, trained: str, weight: float) -> tuple[str, Job]:
    path = out / FOLLOW / "made" / name
    words = ("interpolate", "--run", trained, "--initial", initial, "--weight", repr(weight), "--out", str(path))
    return str(path), Job(f"make-{name}", words, out=path, at_once=True)
