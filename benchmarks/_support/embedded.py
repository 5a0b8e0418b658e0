"""The base model and rehearsal set of the embedded world, made as by `dph demo`, for the reliability and GPU runs.

python -m benchmarks._support.embedded FOLDER [STEPS]    # at smoke size; STEPS of the supervised start
"""

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def dph(*words: str) -> None:
    """Run a `dph` command until it ends."""
    subprocess.run([sys.executable, "-m", "dph", *words], env=ENVIRONMENT, check=True)


def prepare(folder: Path, *, smoke: bool = False, steps: int = 120) -> tuple[Path, Path]:
    """Base model and presample run in a folder with the layout of `dph demo --smoke`; makes what is missing.

    smoke: train the base model, of the same size, for a few steps only: `steps`.
    """
    base, sampled = folder / "base", folder / "presample"
    preset = ("--preset", "countdown", "--resume")
    short = ("--steps", str(steps), "--batch", "24", "--demonstrations", "3000") if smoke else ()
    few = ("--task.limit", "48", "--threshold", "1", "--refine", "keep") if smoke else ()
    dph("sft", *preset, *short, "--out", str(base))
    dph("presample", *preset, *few, "--model.path", str(base / "model"), "--out", str(sampled))
    return base / "model", sampled


def given(folder: Path) -> tuple[Path, Path]:
    """An existing base model and presample run in a folder."""
    return folder / "base" / "model", folder / "presample"


def training(model: Path, sampled: Path, out: Path, steps: int, every: int, *more: str) -> list[str]:
    """Command-line words of `dph train` for DPH-JS, with an evaluation and a checkpoint every `every` steps."""
    return [
        *("train", "--preset", "countdown", "--preset", "dph_js", "--resume", "--out", str(out)),
        *("--model.path", str(model), "--rehearsal.path", str(sampled)),
        *("--steps", str(steps), "--checkpoint-every", str(every), "--monitor.every", str(every)),
        *more,
    ]


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), smoke=True, **({"steps": int(sys.argv[2])} if sys.argv[2:] else {}))
