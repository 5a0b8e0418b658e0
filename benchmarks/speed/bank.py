"""What the bank costs: a part of a step, memory, and the time to save and resume, in processor time of one thread.

    python -m benchmarks.speed.bank                    # a short supervised start on Countdown, then both parts
    python -m benchmarks.speed.bank --only size        # a bank of 100,000 responses
    python -m benchmarks.speed.bank --smoke

step: `dph train` with the preset `grpo_sft` and with `bank`, from one presample run and with equal rows (64), 8 prompts
of 16 responses. Within a step of the second, the processor time of all that the bank does: keys, admission, files,
drawing rows. size: a bank of responses of 100 tokens after prompts of 100, five ways to solve each problem, admitted
over 500 steps.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dph.config import STAGES, from_dict, merge_settings
from dph.process.memory import keep_few_kernels, resident
from dph.rehearsal.bank import Bank
from dph.rehearsal.bank_files import BankFiles
from dph.rehearsal.modes import BankKey, Forms, Solution
from dph.stages.presample import presample
from dph.stages.sft import sft
from dph.stages.train import train
from dph.training.banking import Banking
from dph.training.loop import Training
from dph.types import Problem

MIB = 1 << 20
RANDOM = np.random.default_rng(0)


def settings_of(stage: str, presets: list[str], changes: dict[str, Any]) -> Any:
    """The settings of a stage on Countdown."""
    merged = merge_settings(stage, ["countdown", *presets], [])
    return from_dict(STAGES[stage], changes, default=from_dict(STAGES[stage], merged))


class Timed:
    """Adds up the processor time of a method."""

    def __init__(self, owner: type[Any], name: str) -> None:
        self.seconds: list[float] = []
        self._owner, self._name, self._real = owner, name, getattr(owner, name)

    def __enter__(self) -> "Timed":
        def timed(*args: Any, **more: Any) -> Any:
            begun = time.process_time()
            try:
                return self._real(*args, **more)
            finally:
                self.seconds.append(time.process_time() - begun)

        setattr(self._owner, self._name, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._real)


def measure_step(folder: Path, start: int, steps: int, problems: int) -> None:
    """Print the processor time of a step with and without the bank, and the bank's part of it."""
    base = sft(settings_of("sft", [], {"out": str(folder / "base"), "steps": start}))
    common = {"model": {"path": str(base / "model"), "device": "cpu"}, "task": {"limit": problems}}
    made = presample(settings_of("presample", ["bank"], {**common, "out": str(folder / "presample")}))
    common |= {"steps": steps, "checkpoint_every": steps, "rehearsal": {"path": str(made)}}
    medians: dict[str, float] = {}
    for method in ("grpo_sft", "bank"):
        parts = (Timed(Banking, "admission"), Timed(Banking, "commit"), Timed(Bank, "draw"))
        with Timed(Training, "step") as step, parts[0], parts[1], parts[2]:
            train(settings_of("train", [method], {**common, "out": str(folder / method)}))
        medians[method] = statistics.median(step.seconds[1:])
        print(f"{method}: {medians[method]:.3f} s a step (median of {steps - 1})")
        if method == "bank":
            own = sum(sum(part.seconds[1:]) for part in parts)
            print(f"the bank's own part: {100 * own / sum(step.seconds[1:]):.2f} % of all steps")
    print(f"a step with the bank / without: {medians['bank'] / medians['grpo_sft']:.3f}")


def taken(action: Callable[[], Any]) -> float:
    begun = time.process_time()
    action()
    return time.process_time() - begun


def drawn(problem_id: str, tokens: int) -> Solution:
    """A random correct response after a prompt of as many tokens."""
    ids, values = RANDOM.integers(0, 50_000, tokens).tolist(), (-RANDOM.random(tokens)).tolist()
    return Solution(problem_id, range(tokens), ids, values, " ".join(map(str, ids)), True, True)


def measure_size(folder: Path, responses: int) -> None:
    """Print memory and times of a large bank."""
    ways, tokens, steps = 5, 100, min(500, responses // 5)
    problems = {f"problem/{i}": Problem(f"problem/{i}", "?", "1", "exact") for i in range(responses // ways)}
    key = BankKey("tokens", Forms(problems, lambda *_: None, lambda *_: None))
    bank, files, ids = Bank(key, ways, 0, list(problems)), BankFiles(folder), list(problems)
    before, times = resident(), list[float]()
    each = len(ids) // steps
    for step in range(1, steps + 1):
        some = ids[(step - 1) * each : step * each if step < steps else None]
        groups = [[drawn(id, tokens) for _ in range(ways)] for id in some]

        def admit(step: int = step, groups: list[list[Solution]] = groups) -> None:
            admission = bank.admission(step, [bank.sight(group[0].problem_id, group) for group in groups])
            files.write(step, admission.admitted)
            bank.commit(admission)
            files.commit()

        times.append(taken(admit))
    print(f"{len(bank)} responses of {tokens} tokens: {(resident() - before) / MIB:.0f} MiB of memory")
    print(f"admitting {each * ways} at once: {1000 * statistics.median(times):.0f} ms")
    rows = [taken(lambda cursor=cursor: bank.draw(cursor, 64)) for cursor in range(0, 6400, 64)]
    print(f"drawing 64 rows: {1000 * statistics.median(rows):.2f} ms")
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    print(f"saving with a checkpoint: {taken(lambda: files.save(bank, checkpoint)):.2f} s", end=", ")
    print(f"{sum(file.stat().st_size for file in checkpoint.iterdir()) / MIB:.1f} MiB", end="; ")
    print(f"the files of the bank: {sum(file.stat().st_size for file in (folder / 'bank').iterdir()) / MIB:.0f} MiB")
    other = Bank(key, ways, 0, ids)
    print(f"resuming: {taken(lambda: BankFiles(folder).restore(other, checkpoint)):.1f} s")
    assert len(other) == len(bank)


def main() -> None:
    keep_few_kernels()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=["step", "size"])
    parser.add_argument("--start", type=int, default=300, help="steps of the supervised start")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.start, args.steps, args.problems, args.responses = 20, 3, 16, 1000
    with tempfile.TemporaryDirectory() as name:
        if args.only != "size":
            measure_step(Path(name), args.start, args.steps, args.problems)
        if args.only != "step":
            (Path(name) / "size").mkdir()
            measure_size(Path(name) / "size", args.responses)


if __name__ == "__main__":
    main()
