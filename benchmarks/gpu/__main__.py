"""Check and measure this package on a machine with a GPU and no network, in at most 34 minutes.

    scripts/gpu --wheels FOLDER --out FOLDER                     # parts first, a, b and c
    scripts/gpu --wheels FOLDER --out FOLDER --part b            # one part, at most 9 minutes
    scripts/gpu --part c --model FILE.gguf                       # a real model; also a folder with pieces of the file
    scripts/gpu --part trainers                                  # TRL with vLLM, and verl: half an hour
    scripts/gpu --list-wheels                                    # on a machine with a network: how to fill the folder
    scripts/gpu --dry-run                                        # all of it on a CPU, at toy size

(first) What decides the next steps: kernels, decoding, both kinds of bf16, compiled layers, TRL and vLLM if they are
here, at realistic lengths. (a) Is it right: architectures, sampler, a run against the CPU's, kill and resume. (b) How
fast is it: updates and steps of two models against the plain path and TRL. (c) A real model, for two methods. Each
result is on disk at once (PART.jsonl), what the commands print is in PART.log, and table.md is written after each part:
at most twelve files. Part trainers wants an environment for TRL and one for verl, and says which is missing
(benchmarks/gpu/trainers.py).
"""

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.limits import run_part
from benchmarks.gpu.packages import Missing, check, download_commands, install
from benchmarks.gpu.plan import LIMITS, USUAL, Settings, planned
from benchmarks.gpu.table import page
from dph.process.memory import grow_segments


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=tuple(LIMITS), help="default: a b c, and all in a dry run")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="results; default: runs/gpu")
    parser.add_argument("--work", type=Path, help="runs, which a later call goes on with; default: a temporary folder")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels that are missing here")
    parser.add_argument("--model", type=Path, help="for part c: a GGUF file, or a folder with its pieces")
    parser.add_argument("--base", type=Path, help="folder with base/ and presample/ of dph demo; default: made here")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most so many for each part")
    parser.add_argument("--together", action="store_true", help="run the commands of part a side by side: 8 cores")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, at toy size; its numbers mean nothing")
    parser.add_argument("--list-wheels", action="store_true", help="print the commands that fill a folder of wheels")
    parser.add_argument("--extra", nargs="*", default=[], help="for --list-wheels: extras besides llm, such as trl")
    given = parser.parse_args()
    given.part = given.part or (list(LIMITS) if given.dry_run else list(USUAL))
    return given


def prepare(given: argparse.Namespace, work: Path) -> dict[str, str]:
    """Install what is missing into a folder of its own; returns the environment for commands.

    Raises Missing if packages are missing, or if there is no such device.
    """
    path, target = list(sys.path), work / "packages"
    grow_segments()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    if given.dry_run:
        environment["OMP_NUM_THREADS"] = "1"
    if given.wheels:
        done = install(given.wheels, target, path)
        print(f"installed from {given.wheels}: {', '.join(done) or 'nothing, all of it is here'}")
    sys.path.insert(0, str(target))
    check(sys.path, *(["llm", "report"] if "c" in given.part and (given.model or given.dry_run) else []))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), str(target)]))
    if not given.dry_run:
        import torch

        if not torch.cuda.is_available():
            raise Missing("torch finds no GPU here (torch.cuda.is_available() is false); --dry-run runs on a CPU")
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {os.cpu_count()} cores")
    return environment


def main() -> int:
    given = arguments()
    try:
        if given.list_wheels:
            print("\n".join(download_commands(str(given.wheels or "WHEELS"), "llm", "report", *given.extra)))
            return 0
        with tempfile.TemporaryDirectory(prefix="dph-gpu-") as temporary:
            work = (given.work or Path(temporary)).resolve()
            return run_parts(given, work, prepare(given, work))
    except Missing as error:
        print(error, file=sys.stderr)
        return 2


def run_parts(given: argparse.Namespace, work: Path, environment: dict[str, str]) -> int:
    """Run the chosen parts; returns 0 only if every command ended well."""
    out = given.out.resolve()
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    device = "cpu" if given.dry_run else given.device
    base, model = (one.resolve() if one else None for one in (given.base, given.model))
    settings, ends = Settings(out, work, device, given.dry_run, base, model, given.seconds), []
    for part in given.part:
        for name in (f"{part}.jsonl", f"{part}.log"):
            (out / name).unlink(missing_ok=True)
        commands, limit = planned(part, settings)
        if not commands:
            print(f"part {part}: not run, because it needs --model FILE.gguf")
        together = given.together and part == "a"  # times mean something in the other parts
        ends += run_part(part, commands, limit, out, environment, together=together).values()
        (out / "table.md").write_text(page(out), encoding="utf-8")
    print("\n" + page(out) + f"\nresults: {out}")
    return 0 if all(end == "ok" for end in ends) else 1


if __name__ == "__main__":
    sys.exit(main())
