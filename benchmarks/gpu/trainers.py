"""TRL or verl with shared prompts and without, in the environment that has it: for `scripts/gpu --part trainers`.

    python -m benchmarks.gpu.trainers trl --lines FILE      # TRL with vLLM in its process
    python -m benchmarks.gpu.trainers verl --lines FILE     # verl's trainer as it is launched
    python -m benchmarks.gpu.trainers trl --toy             # on a CPU; its numbers mean nothing

Each wants another environment: DPH_VENV_TRL, DPH_VENV_VLLM and DPH_VENV_VERL name their folders, as for
scripts/test-trl and the others, whose own are found too; otherwise this Python is asked. One sentence says what is not
installed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks._support.lines import Lines

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"trl": ("trl", "datasets", "vllm"), "verl": ("verl", "vllm")}
"""Modules of each trainer; the last one is wanted, and what a run on a CPU does without."""
PLACES = {"trl": ("vllm", "trl"), "verl": ("verl",)}
"""Environments that may have them, the best first."""
INSTALL = {
    "trl": "pip install '.[trl]' 'trl[vllm]'",
    "verl": "pip install -c constraints-verl.txt 'verl[vllm]==0.9.1' dph-rl",
}
_ASK = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"


def pythons(trainer: str) -> list[str]:
    """Interpreters that may have a trainer, the most likely first."""
    folders = [
        Path(os.environ.get(f"DPH_VENV_{name.upper()}", ROOT / f".venv-{name}")) / "bin" / "python"
        for name in PLACES[trainer]
    ]
    return [*(str(path) for path in folders if path.exists()), sys.executable]


def lacking(python: str, modules: tuple[str, ...]) -> list[str]:
    """Those of the modules that an interpreter does not have."""
    done = subprocess.run([python, "-c", _ASK, *modules], capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else list(modules)


def chosen(trainer: str) -> tuple[str, list[str]]:
    """The interpreter that lacks the fewest modules, and these."""
    every = [(python, lacking(python, PACKAGES[trainer])) for python in pythons(trainer)]
    return min(every, key=lambda pair: len(pair[1]))


def missing(trainer: str, lacks: list[str], toy: bool) -> tuple[str, bool]:
    """What is said about modules that are lacking, and whether anything can be measured without them."""
    names = " and ".join({"trl": "TRL", "vllm": "vLLM"}.get(name, name) for name in lacks)
    said = (
        f"{names} {'is' if len(lacks) == 1 else 'are'} not installed with this package; for a GPU: {INSTALL[trainer]}"
    )
    if lacks == ["vllm"] and (toy or trainer == "trl"):
        instead = {"trl": "random tokens take the place of its responses", "verl": "the tests' server takes its place"}
        return f"{said}; {instead[trainer]}", True
    return f"{trainer}: not run, because {said}", False


def words(trainer: str, toy: bool, vllm: bool, device: str) -> list[str]:
    """The command of a benchmark, without the Python."""
    module = {"trl": "benchmarks.engines.trl_prefix", "verl": "benchmarks.engines.verl_step"}[trainer]
    if toy:
        size = ["--sizes", "32+8", "--prompts", "2", "--responses", "4"]
        own = {"trl": ["--pairs", "1"], "verl": ["--steps", "2", "--tokens", "200"]}
        return [
            "-m",
            module,
            *size,
            *own[trainer],
            "--device",
            "cpu",
            *["--vllm"] * vllm,
            *["--precision", "bf16"] * (trainer == "trl"),
        ]
    size = ["--sizes", "512+256", "2048+256", "--model", "0.5B", "--device", device]
    own = {
        "trl": ["--precision", "bf16", "--responses", "16", "8", "--prompts", "4", "--pairs", "4"],
        "verl": ["--responses", "16", "--prompts", "8", "--steps", "5"],
    }
    return ["-m", module, *size, *own[trainer], *["--vllm"] * (vllm and trainer == "trl")]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trainer", choices=tuple(PACKAGES))
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy size")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lines", type=Path, help="file that gets each result as a line of JSON")
    args = parser.parse_args()
    python, lacks = chosen(args.trainer)
    if lacks:
        said, possible = missing(args.trainer, lacks, args.toy)
        print(said, flush=True)
        Lines(args.lines).add("missing", trainer=args.trainer, says=said)
        if not possible:
            return 0 if args.toy else 1
    # On newer processors vLLM's build for them packs weights in a form that TRL cannot write anew
    vllm = "vllm" not in lacks and not (args.toy and args.trainer == "trl")
    command = [python, *words(args.trainer, args.toy, vllm, args.device)]
    return subprocess.run([*command, *(["--lines", str(args.lines)] if args.lines else [])], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
