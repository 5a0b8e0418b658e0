"""The arms of experiment B, as its protocol (experiments/results/anchor.md) has them, and their commands."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dph.process.jobs import Job

STARTS = tuple(range(21, 33))
"""Seeds of the worlds: each has its own problems, base model and pre-sampling. None was used in a pilot."""
WORLD = "countdown"
CLIP = ("--loss.clip-high", "0.28")
"""Every arm has it, so that an arm differs from GRPO in one thing."""
NEAR, SOLVED = "near", "solved"
"""Pre-samplings: rows of near-perfect problems (6 of 8), and of every problem that is solved at least once in 32."""
PRESAMPLES = {
    NEAR: (),
    SOLVED: ("--threshold", "1", "--rollout.n", "32", "--refine", "keep", "--stored", "8"),
}
FAST = "1e-4"
"""The learning rate of every arm with an anchor."""
TRAINED = 16_000
"""Responses that a training run draws: 125 steps of 8 × 16."""
PRESAMPLED = {"": 0, NEAR: 8_000, SOLVED: 32_000}
"""Responses that pre-sampling draws for 1,000 problems, without its refinement."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A training run of a start, and the weights that are made of it."""

    name: str
    family: str
    """Arms of one family differ in strength only; they are listed from weak to strong."""
    flags: tuple[str, ...]
    """Flags of `dph train` besides the world."""
    rows: str = ""
    """The pre-sampling that it needs; every arm reads one for its problems."""
    seed: int = 1
    stops: tuple[int, ...] = ()
    """Steps at which the model is evaluated too."""
    shares: tuple[float, ...] = ()
    """Shares of the trained weights at which it is evaluated too."""

    @property
    def rollouts(self) -> int:
        """Responses drawn in training and for the arm's rows."""
        return TRAINED + PRESAMPLED[self.rows]


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


def world(start: int) -> tuple[str, ...]:
    """Flags that select the world of a start."""
    return ("--preset", WORLD, "--task.options", "seed", str(start))


def base_jobs(start: int, out: Path, extra: dict[str, tuple[str, ...]]) -> list[Job]:
    """The base model of a start, its two evaluations and pre-samplings. extra: further flags by stage."""
    base = str(out / "base")
    given = (*world(start), "--seed", str(start))
    jobs = [_job("base", "sft", (*given, "--out", base), out / "base", extra)]
    jobs += [evaluation(start, out, name, f"{base}/model", extra) for name in ("base", "base-again")]
    for rows, flags in PRESAMPLES.items():
        words = (*given, *flags, "--model.path", f"{base}/model", "--out", str(out / rows))
        jobs.append(_job(rows, "presample", words, out / rows, extra))
    return jobs


def arm_jobs(start: int, out: Path, arm: Arm, extra: dict[str, tuple[str, ...]]) -> Iterator[Job]:
    """Training of an arm, the weights made of it, and their evaluations."""
    run = out / "train" / arm.name
    every = ("--checkpoint-every", "25", "--keep-checkpoints", "9") if arm.stops else ("--checkpoint-every", "125")
    words = (*world(start), *arm.flags, *CLIP, *every, "--seed", str(100 * start + arm.seed))
    words += ("--model.path", str(out / "base/model"), "--rehearsal.path", str(out / (arm.rows or NEAR)))
    yield _job(arm.name, "train", (*words, "--out", str(run)), run, extra)
    yield evaluation(start, out, arm.name, str(run / "model"), extra)
    for step in arm.stops:
        model = run / "checkpoints" / f"step-{step:08d}" / "model"
        yield evaluation(start, out, f"{arm.name}-step{step}", str(model), extra)
    for share in arm.shares:
        name = f"{arm.name}-share{share}"
        made = out / "shares" / name
        words = ("interpolate", "--run", str(run), "--weight", str(share), "--out", str(made))
        yield Job(f"make-{name}", words, out=made, at_once=True)
        yield evaluation(start, out, name, str(made), extra)


def evaluation(start: int, out: Path, name: str, model: str, extra: dict[str, tuple[str, ...]]) -> Job:
    """An evaluation on the test problems of the start, with random numbers of its own: with the base model's, a
    model would look more like it than it is, and a mix of both would not be unbiased."""
    seed = str(zlib.crc32(name.encode()))
    words = (*world(start), "--label", name, "--seed", seed, "--model.path", model, "--out", str(out / "eval" / name))
    return _job(f"eval-{name}", "eval", words, out / "eval" / name, extra)


def _job(name: str, stage: str, words: tuple[str, ...], out: Path, extra: dict[str, tuple[str, ...]]) -> Job:
    return Job(name, (stage, *words, *extra.get(stage, ()), "--resume"), out=out)
