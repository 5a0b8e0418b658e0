"""The parts, each a list of commands with their limits: on a GPU at full size, elsewhere at toy size."""

import math
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.limits import Command

HERE = Path(__file__).parent
LIMITS = {"first": 540.0, "a": 540.0, "b": 540.0, "c": 420.0, "trainers": 1800.0}
"""Seconds of each part on a GPU."""
USUAL = ("first", "a", "b", "c")
"""The parts that run unless others are asked for; a dry run has all."""
TOY_LIMIT = 600.0
"""Seconds of a part, and of each of its commands, at toy size, on a machine that may be busy."""
_TO_END = 70.0
"""Seconds for part c to save its state and write its report."""
KILL_SIZES = ("--rollout.prompts", "2", "--rollout.n", "4", "--task.limit", "48")


@dataclass(frozen=True, slots=True)
class Settings:
    """What all parts need."""

    out: Path
    """Results."""
    work: Path
    """Runs, which a later call goes on with."""
    device: str
    toy: bool
    base: Path | None
    """Folder with an existing base/ and presample/ of the embedded world."""
    model: Path | None
    """A GGUF file, or a folder with its pieces."""
    most: float = math.inf
    """Seconds that a part may take, if they are fewer than its limit."""

    def limit(self, part: str) -> float:
        """Seconds for a part."""
        return min(TOY_LIMIT if self.toy else LIMITS[part], self.most)

    def lines(self, part: str) -> tuple[str, str]:
        return ("--lines", str(self.out / f"{part}.jsonl"))


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def part_first(given: Settings) -> list[Command]:
    """What decides the next steps: kernels, decoding, both kinds of bf16, compiled layers, the rivals."""
    lines, device = given.lines("first"), ("--device", given.device)
    update = (*_module("benchmarks.speed.methods"), "--only", "table", "--methods", "GRPO", *device, *lines)
    decode = (*_module("benchmarks.gpu.decode"), *device, *lines)
    generate = (*_module("benchmarks.speed.generate"), "--engines", "ours", *lines)
    if given.toy:
        small, few = ("--smoke", "--threads", "1", "--precision"), ("--responses", "3")
        sizes = ("--models", "3.4M", "--rows", "6", *few, "--prompt", "8", "--tokens", "6", "--threads", "1")
        drawn = ("--model", "0.8M", "--prompts", "2", *few, "--steps", "1", "--sizes", "16+8", "--mean", "4")
        return [
            Command("kernels", (*_module("benchmarks.gpu.exactness"), "--kernels", *device, *lines)),
            Command("decode", (*decode, *sizes, "--precision", "bf16_master", "--draws")),
            Command("update, bf16", (*update, *small, "bf16")),
            Command("update, layers compiled", (*update, *small, "bf16_master", "--compile", "eager")),
            Command("generate", (*generate, *drawn)),
        ]
    master, usual = ("--precision", "bf16_master"), ("--sizes", "512+512", "--responses", "16")
    long = ("--sizes", "1024+4096", "--responses", "8")
    update = (*update, "--rounds", "2", "--budget", "32768")
    many = (*update, *usual, "--prompts", "8", "--models")
    step = (*_module("benchmarks.engines.step"), *device, "--pairs", "1", "--tokens", "32768", *lines)
    trl = ("trl",) if find_spec("trl") and find_spec("datasets") else ()
    rivals = ("--engines", "ours", *trl, "--model", "0.5B", "--precision", "bf16", "--prompts", "8", "--trl-batch", "8")
    generate = (*generate, "--model", "0.5B", "--precision", "bf16", "--prompts", "32", "--steps", "1")
    vllm = ("--vllm", sys.executable) if find_spec("vllm") else ()
    one = (*update, *usual, "--prompts", "1", "--models", "0.5B", "--precision")
    return [
        Command("doctor", (*_module("dph"), "doctor", "--out", str(given.work)), 60),
        Command("kernels", (*_module("benchmarks.gpu.exactness"), "--kernels", *device, *lines), 40),
        Command("decode", (*decode, "--models", "0.5B", *master, "--draws"), 90),
        Command("update 0.5B, 8 groups, bf16", (*many, "0.5B", "--precision", "bf16"), 45),
        Command("update 0.5B, 8 groups", (*many, "0.5B", *master), 45),
        Command("update 0.5B, layers compiled", (*many, "0.5B", *master, "--compile", "inductor"), 120),
        Command("step 0.5B", (*step, *rivals, *usual), 90),
        Command("generate 512", (*generate, *usual, "--mean", "256", *vllm), 90),
        Command("generate 4096", (*generate, *long, "--mean", "2048", *vllm), 120),
        Command("update 0.5B, long", (*update, *long, "--prompts", "2", "--models", "0.5B", *master), 60),
        Command("update 1.5B", (*many, "1.5B", *master), 60),
        Command("update 1.5B, layers compiled", (*many, "1.5B", *master, "--compile", "inductor"), 120),
        Command("update 0.5B, 1 group, bf16", (*one, "bf16"), 30),
        Command("update 0.5B, 1 group", (*one, "bf16_master"), 30),
    ]


def part_a(given: Settings) -> list[Command]:
    """Is it right? Architectures, sampler, a run against the CPU's, kills."""
    lines, device = given.lines("a"), ("--device", given.device)
    base = given.base or given.work / "world"
    names = ("--names", "llama", "gemma2") if given.toy else ("--seconds", "170")
    steps, kills = ("2", "1") if given.toy else ("6", "2")
    learned = () if given.toy else ("400",)  # steps after which the base model earns rewards
    plugin = ("--plugin", str(HERE / "deterministic.py"), "--model.device", given.device)
    commands = [
        Command("doctor", (*_module("dph"), "doctor", "--out", str(given.work)), 60),
        Command("exactness", (*_module("benchmarks.gpu.exactness"), *device, *names, *lines), 190),
    ]
    if given.base is None:
        commands.append(Command("world", (*_module("benchmarks._support.embedded"), str(base), *learned), 120))
    where = ("--base", str(base), "--steps", steps)
    training = (*device, *where, "--out", str(given.work / "devices"), *lines)
    kill = (*where, "--kills", kills, "--every", "2", "--out", str(given.work / "kill"), *KILL_SIZES, *plugin, *lines)
    after = "world" if given.base is None else ""
    commands.append(Command("devices", (*_module("benchmarks.gpu.devices"), *training), 150, after))
    commands.append(Command("kill", (*_module("benchmarks.reliability.kill"), *kill), 200, after))
    return commands


def part_b(given: Settings) -> list[Command]:
    """How fast is it? Updates by method, steps, and how updates scale."""
    lines = given.lines("b")
    if given.toy:
        sizes = ("--prompts", "2", "--responses", "3", "--threads", "1", "--sizes", "16+4")
        return [
            Command(
                "methods",
                (*_module("benchmarks.speed.methods"), "--only", "table", "--smoke", "--threads", "1", *lines),
            ),
            Command("step", (*_module("benchmarks.engines.step"), "--engines", "ours", "--pairs", "1", *sizes, *lines)),
            Command(
                "scaling", (*_module("benchmarks.speed.scaling"), "--sweeps", "n", "--smoke", "--threads", "1", *lines)
            ),
        ]
    on = ("--device", given.device, "--precision", "bf16")
    many, two = ("--prompts", "8"), ("--prompts", "2")  # the plain path takes long for long prompts
    usual = ("--budget", "32768", "--responses", "8", *lines)
    update = (*_module("benchmarks.speed.methods"), "--only", "table", *on, "--rounds", "2", *usual, "--methods")
    both, half, few, long = ("GRPO", "DPH-JS"), ("--models", "0.5B"), ("512+64", "2048+256"), "8192+512"
    step = (*_module("benchmarks.engines.step"), *on, "--pairs", "2", "--tokens", "32768", "--responses", "8", *lines)
    ours, against = ("--engines", "ours", "--model"), ("--engines", "ours", "trl", "--model")
    scaling = (
        *_module("benchmarks.speed.scaling"),
        *on,
        "--rounds",
        "2",
        "--budget",
        "32768",
        "--base",
        "2048+256",
        *lines,
    )
    trl = [Command("step 0.5B against TRL", (*step, *against, "0.5B", *many, "--sizes", *few), 120)]
    master = ("--precision", "bf16_master")
    profiled = (*_module("benchmarks.gpu.profile"), *on, "--budget", "32768", "--prompts", "8", *lines)
    return [
        Command("update 0.5B", (*update, *both, *half, *many, "--sizes", *few), 75),
        Command("update 1.5B", (*update, *both, "--models", "1.5B", *many, "--sizes", *few), 90),
        *(trl if find_spec("trl") and find_spec("datasets") else []),
        Command("profile", (*profiled, "--models", "0.5B", "1.5B", "--sizes", few[1]), 60),
        Command("update 0.5B, long", (*update, *both, *half, *two, "--sizes", long), 60),
        Command("update 1.5B, long", (*update, *both, "--models", "1.5B", *two, "--sizes", long), 75),
        Command("step 0.5B without graphs", (*step, *ours, "0.5B", *many, "--sizes", *few, "--no-graphs"), 60),
        Command("step 0.5B, long", (*step, *ours, "0.5B", *two, "--sizes", long), 60),
        Command(
            "update 1.5B, bf16 weights", (*update, "GRPO", "--models", "1.5B", *many, "--sizes", few[1], *master), 45
        ),
        *(
            Command(
                f"update 0.5B, {name}",
                (*update, "GRPO", *half, *many, "--sizes", few[1], *master, "--attention", name),
                40,
            )
            for name in ("varlen", "flex", "gather")
        ),
        Command("methods 0.5B", (*update, "GRPO", "RKL", "DPH-F", "DPH-JS", *half, *many, "--sizes", few[0]), 60),
        Command("step 1.5B", (*step, *ours, "1.5B", *many, "--sizes", few[1]), 60),
        Command("scaling", (*scaling, *half, "--sweeps", "n"), 60),
    ]


def part_c(given: Settings) -> list[Command]:
    """Does it work with a real model? `dph demo` for two methods."""
    common = ("--out", str(given.work / "real"), "--page", str(given.out / "report.html"), *given.lines("c"))
    if given.toy:  # which masters nothing, so that there is nothing to rehearse
        return [Command("real", (*_module("benchmarks.gpu.real"), "--toy", "--methods", "grpo", "exp_only", *common))]
    if given.model is None:
        return []
    seconds = max(1.0, given.limit("c") - _TO_END)
    model = ("--model", str(given.model), "--seconds", f"{seconds:.0f}", "--jobs", "3")
    return [Command("real", (*_module("benchmarks.gpu.real"), *model, *common))]


def part_trainers(given: Settings) -> list[Command]:
    """What do shared prompts save inside TRL with vLLM, and inside verl? Each in its environment, if there is one."""
    how = ("--toy",) if given.toy else ("--device", given.device)
    own = (*how, *given.lines("trainers"))
    return [
        Command("TRL", (*_module("benchmarks.gpu.trainers"), "trl", *own), 900),
        Command("verl", (*_module("benchmarks.gpu.trainers"), "verl", *own), 900),
    ]


_PARTS = {"first": part_first, "a": part_a, "b": part_b, "c": part_c, "trainers": part_trainers}


def planned(part: str, given: Settings) -> tuple[list[Command], float]:
    """The commands of a part, and the seconds for all of them."""
    commands = _PARTS[part](given)
    limit = given.limit(part)
    return [
        replace(command, seconds=limit if given.toy else min(command.seconds, limit)) for command in commands
    ], limit
