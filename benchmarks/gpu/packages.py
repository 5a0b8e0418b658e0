"""Which packages are missing on a machine without a network, and how to bring them: a folder of wheels.

A machine with torch and transformers has most of what this package needs. Nothing here is imported from `dph`, torch or
transformers, which may be what is missing.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
THERE = ("torch", "transformers", "numpy", "safetensors")
"""What the other machine has, with all that these need."""
SOURCE_ONLY = frozenset({"word2number"})
"""Packages without a published wheel, in the versions used here; pure Python, so a wheel made anywhere serves."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""pip takes exactly the platforms that are named."""


class Missing(Exception):
    """Packages are missing; the message says which, and what to do."""


def needed(*extras: str) -> list[Requirement]:
    """Direct requirements in pyproject.toml: of the core, and of the named extras with the extras that these name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, waiting = [*map(Requirement, project["dependencies"])], [*extras]
    while waiting:
        for need in map(Requirement, project["optional-dependencies"][waiting.pop()]):
            own = canonicalize_name(need.name) == "dph-rl"
            waiting += need.extras if own else ()
            found += [] if own else [need]
    return found


def installed(path: Sequence[str]) -> dict[str, Distribution]:
    """Distributions on an import path, by name; the first of each counts."""
    found: dict[str, Distribution] = {}
    for one in distributions(path=list(path)):
        found.setdefault(canonicalize_name(one.metadata["Name"]), one)
    return found


def closure(
    wanted: Iterable[Requirement], there: Mapping[str, Distribution], trusted: Sequence[str] = ()
) -> tuple[set[str], dict[str, str]]:
    """Names of the packages that are needed directly or by others; by name, what is missing or of a wrong version.

    trusted: packages that run as they are, so that it does not matter what they need.
    """
    names: set[str] = set()
    lacking: dict[str, str] = {}
    waiting = [(need, "") for need in wanted]
    while waiting:
        need, whose = waiting.pop()
        name = canonicalize_name(need.name)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        found = there.get(name)
        if found is None or not need.specifier.contains(found.version, prereleases=True):
            lacking[name] = f"{need.name}{need.specifier}" + (f" (for {whose})" if whose else "")
        if name not in names:
            names.add(name)
            needs = found.requires if found and name not in trusted else None
            waiting += [(Requirement(line), need.name) for line in needs or ()]
    return names, {name: lacking[name] for name in sorted(lacking)}


def check(path: Sequence[str], *extras: str) -> None:
    """Raise Missing with one sentence if the package cannot run with what is on an import path."""
    _, lacking = closure(needed(*extras), installed(path), THERE)
    if lacking:
        raise Missing(
            f"missing here: {', '.join(lacking.values())}; bring them in a folder with --wheels FOLDER (on a machine "
            "with a network, scripts/gpu --list-wheels prints the commands that fill it)"
        )


def install(folder: Path, target: Path, path: Sequence[str]) -> list[str]:
    """Install the wheels whose packages are not on the import path, or too old, into `target`; returns their names.

    Raises Missing if there is no such folder, or if pip fails.
    """
    if not folder.is_dir():
        raise Missing(f"there is no folder {folder} with wheels; name another with --wheels")
    there = installed([str(target), *path])
    wheels = {parse_wheel_filename(file.name)[0]: file for file in sorted(folder.glob("*.whl"))}
    _, lacking = closure(needed(), there, THERE)
    wanted = {name: file for name, file in wheels.items() if name not in there or name in lacking}
    if wanted:
        words = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(target)]
        command = [sys.executable, "-m", "pip", *words, *map(str, wanted.values())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Missing(f"pip could not install the wheels in {folder}: {said}")
    return sorted(wanted)


def download_commands(folder: str, *extras: str) -> list[str]:
    """Shell commands that fill a folder with the wheels that a bare machine may lack, in the versions of this one.

    Raises Missing if this machine lacks one of them, so that its version and needs are unknown.
    """
    there = installed(sys.path)
    names, lacking = closure(needed(*extras), there)
    if lacking:
        raise Missing(f"not installed here, so what it needs is unknown: {', '.join(lacking.values())}")
    bare, _ = closure([Requirement(name) for name in THERE], there)
    pins = {name: f"{name}=={there[name].version}" for name in sorted(names - bare)}
    wheels = [pin for name, pin in pins.items() if name not in SOURCE_ONLY]
    sources = [pin for name, pin in pins.items() if name in SOURCE_ONLY]
    platforms = " ".join(f"--platform {platform}" for platform in PLATFORMS)
    python = f"--python-version 3.12 --implementation cp {platforms}"
    commands = [f"python3 -m pip download --no-deps --only-binary=:all: {python} --dest {folder} {' '.join(wheels)}"]
    if sources:
        commands.append(f"python3 -m pip wheel --no-deps --wheel-dir {folder} {' '.join(sources)}")
    return commands
