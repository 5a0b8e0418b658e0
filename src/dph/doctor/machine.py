"""Checks of the installation and of the machine: versions, processors, memory, disk and write access."""

import importlib
import os
import platform
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from dph.doctor.finding import Finding, broken, note, ok
from dph.errors import UserError
from dph.process.memory import free_memory
from dph.runs.cache import cache_folder

_GIB = 1 << 30
_ENGINES = ("peft", "vllm", "trl", "verl")  # extras, listed if they are installed
_MODULES = {"pyyaml": "yaml"}  # packages whose module has a different name
_MEMORY_NEEDED, _MEMORY_WANTED = 1 * _GIB, 4 * _GIB  # loading torch and transformers takes 0.4 GiB per process
_DISK_NEEDED, _DISK_WANTED = _GIB // 4, 5 * _GIB
_SOURCE = Path(__file__).resolve().parents[3]
"""The repository, if the package runs from there."""


def check_installation() -> list[Finding]:
    """Check the versions of Python and of all required packages, and import each package."""
    found = [ok("Python", f"{platform.python_version()} at {sys.executable}")]
    try:
        version, requires = metadata.version("dph-rl"), metadata.requires("dph-rl") or []
        found.append(ok("dph-rl", version))
    except metadata.PackageNotFoundError:
        project = _SOURCE / "pyproject.toml"
        if not project.is_file():
            return [*found, broken("dph-rl", "is not installed in this environment", "pip install . in the repository")]
        requires = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
        found.append(note("dph-rl", f"runs from {_SOURCE}, and is not installed", f"pip install {_SOURCE}"))
    found += [_package(Requirement(text)) for text in requires if "extra ==" not in text]
    engines = [f"{name} {version}" for name in _ENGINES if (version := _version(name))]
    found.append(ok("optional packages", ", ".join(engines) or "none of " + ", ".join(_ENGINES)))
    return [*found, *([_verl_plugin()] if _version("verl") else [])]


def _verl_plugin() -> Finding:
    """Whether verl finds our plug-in; it would not say so itself."""
    from dph.integrations.verl.settings import check_registered

    try:
        check_registered()
    except UserError as error:
        detail, _, advice = str(error).rpartition("; ")
        return note("plug-in for verl", detail, f"to train through verl, {advice}")
    return ok("plug-in for verl", "verl knows the trainer of DPH-RL")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _package(wanted: Requirement) -> Finding:
    """Whether a required package is installed in a suitable version and can be imported."""
    name, there = wanted.name, _version(wanted.name)
    install = f"pip install '{wanted}', or pip install -c constraints.txt . in the repository for the tested versions"
    if not there:
        return broken(name, "is not installed", install)
    if not wanted.specifier.contains(there, prereleases=True):
        return broken(name, f"{there}, but {wanted.specifier} is needed", install)
    try:
        importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    except Exception as error:  # a damaged package may raise anything
        return broken(name, f"{there} cannot be imported ({type(error).__name__}: {error})", f"reinstall it: {install}")
    return ok(name, there)


def check_processors() -> list[Finding]:
    """Check the processors that torch can use; each GPU must compute a correct result."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = [ok("CPU", f"{cores} cores, {torch.get_num_threads()} threads for one process ({platform.machine()})")]
    if torch.cuda.is_available():
        return found + [_gpu(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        return [*found, ok("GPU", "Apple silicon; to use it, set --model.device mps")]
    if shutil.which("nvidia-smi"):
        advice = "install the build of torch for this driver's CUDA version (pytorch.org/get-started)"
        return [*found, note("GPU", f"the driver is installed, but torch {torch.__version__} cannot use it", advice)]
    return [*found, note("GPU", "none; only small models are practical, such as those of `dph demo`")]


def _gpu(index: int) -> Finding:
    import torch

    name = f"GPU {index}"
    try:
        values = torch.ones(64, 64, device=f"cuda:{index}")
        right = float((values @ values).sum()) == 64.0**3
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError as error:
        remedy = "check the driver, or exclude this GPU with CUDA_VISIBLE_DEVICES"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return broken(name, f"cannot compute: {reason}", remedy)
    if not right:
        return broken(name, "computes wrong results", "exclude this GPU with CUDA_VISIBLE_DEVICES")
    facts = f"{torch.cuda.get_device_name(index)}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free"
    if free < total / 2:
        return note(name, facts, "another process uses this GPU; nvidia-smi shows which one")
    return ok(name, facts)


def check_room(out: Path) -> list[Finding]:
    """Check free memory, and write access and free space of each directory that DPH-RL writes to."""
    return [_memory(), *_places(out)]


def _memory() -> Finding:
    free = free_memory()
    if free is None:
        return note("memory", "this system does not report how much memory is free")
    text, advice = (
        f"{free / _GIB:.1f} GiB free",
        "close other programs, or use fewer processes (--jobs, --verifier.workers)",
    )
    if free < _MEMORY_NEEDED:
        return broken("memory", text, advice)
    return note("memory", text, advice) if free < _MEMORY_WANTED else ok("memory", text)


def _places(out: Path) -> Iterator[Finding]:
    places = {"run directories": out, "cache": cache_folder(), "temporary files": Path(tempfile.gettempdir())}
    changes = {
        "run directories": "use a different --out",
        "cache": "set DPH_CACHE to a directory that you can write to",
        "temporary files": "set TMPDIR to a directory that you can write to",
    }
    for name, path in places.items():
        yield _place(name, path.absolute(), changes[name])


def _place(name: str, path: Path, change: str) -> Finding:
    """Check write access to a directory, or to its nearest existing parent, and its free space."""
    there = next(folder for folder in [path, *path.parents] if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"dph")
            file.flush()
        free = shutil.disk_usage(there).free
    except OSError as error:
        return broken(name, f"{path} cannot be written ({error.strerror})", change)
    text, advice = f"{path}, {free / _GIB:.1f} GiB free", f"free some disk space, or {change}"
    if free < _DISK_NEEDED:
        return broken(name, text, advice)
    return note(name, text, advice) if free < _DISK_WANTED else ok(name, text)
