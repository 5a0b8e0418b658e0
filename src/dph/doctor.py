"""`dph doctor`: checks whether this machine can run DPH-RL, and says how to fix what does not work."""

import contextlib
import importlib
import io
import json
import math
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

import dph
from dph.config import DoctorConfig, load_settings
from dph.errors import UserError, how_to_install, json_for_terminal, one_line
from dph.extras import missing_of
from dph.process.memory import free_memory
from dph.process.progress import put
from dph.runs.directory import read_metrics
from dph.runs.files import cache_folder
from dph.types import Problem
from dph.verifiers import Verifiers

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine or the installation."""

    name: str
    status: Literal["ok", "note", "broken"]
    """ok: works; note: works with limitations; broken: something that is needed does not work."""
    detail: str
    advice: str = ""
    """What the user should do; may be empty."""


def doctor(config: DoctorConfig) -> None:
    """Run all checks and print each result as it arrives, or all results as JSON at the end; of a run, which failures
    it shows.

    Raises UserError, after all results have been printed, if anything that is needed does not work, and for a run
    whose log cannot be read.
    """
    if config.run:
        from dph.measure.curves import read_trainer_log
        from dph.measure.failures import as_json, as_text, diagnose

        log = read_trainer_log(Path(config.run))
        told = (config.run, log, diagnose(log))
        put(json_for_terminal(as_json(*told)) if config.json else as_text(*told))
        return
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "installation": check_installation,
        "processors": check_processors,
        "memory and disk": lambda: check_room(Path(config.out)),
        "sandbox": check_sandbox,
    }
    if config.smoke and not _lacks_training():
        checks["smoke run"] = lambda: check_training(config.device)
    findings: list[Finding] = []
    for title, check in checks.items():
        try:
            results = list(check())
        except Exception as error:  # a failed check is a finding; the other checks still run
            results = [Finding(title, "broken", f"{type(error).__name__}: {error}", "please report the full output")]
        findings += results
        if not config.json:
            put(title.capitalize())
            for finding in results:
                put(f"  {finding.status:<7}{one_line(f'{finding.name}: {finding.detail}')}")
                if finding.advice:
                    put(f"           → {finding.advice}")
    wrong = [finding.name for finding in findings if finding.status == "broken"]
    if config.json:
        report = {"ok": not wrong, "findings": [asdict(finding) for finding in findings]}
        put(json_for_terminal(report))
    if wrong:
        raise UserError(f"needed, but broken: {', '.join(wrong)}; the output above says how to fix it")


def check_installation() -> Iterator[Finding]:
    """The versions of Python and of all required packages; each package is imported."""
    yield Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")
    version = _version("dph-rl")
    yield Finding("dph-rl", "ok", version or "runs from its source: the versions of other packages are not checked")
    for wanted in _requirements("" if _lacks_training() else "train") if version else ():
        name, version = wanted.name, _version(wanted.name)
        fault = "" if wanted.specifier.contains(version or "0", prereleases=True) else f"{wanted.specifier} is needed"
        try:
            importlib.import_module("yaml" if name == "pyyaml" else name.replace("-", "_"))
        except Exception as error:  # a damaged package may raise anything
            fault = f"it cannot be imported ({type(error).__name__}: {error})"
        if fault:
            advice = f"pip install '{wanted}', or pip install -c constraints.txt . in the repository (tested versions)"
            yield Finding(name, "broken", f"{version or 'not installed'}, but {fault}", advice)
        else:
            yield Finding(name, "ok", version)
    if lacking := _lacks_training():
        detail = f"{', '.join(lacking)} not installed: this installation judges and measures, and trains nothing"
        yield Finding("training", "note", detail, f"to train: {how_to_install('train')}")
    extras = [f"{name} {version}" for name in ("peft", "vllm", "trl", "verl") if (version := _version(name))]
    yield Finding("optional packages", "ok", ", ".join(extras) or "neither peft nor an engine")


def _lacks_training() -> list[str]:
    """The libraries of the extra `train` that are not installed."""
    return missing_of(("torch", "transformers"))


def _requirements(extra: str) -> list[Requirement]:
    """What the package needs always, and what it needs for an extra."""
    found = [Requirement(text) for text in metadata.requires("dph-rl") or ()]
    needed = [each for each in found if each.marker is None or each.marker.evaluate({"extra": extra})]
    return [each for each in needed if each.name != "dph-rl"]


def _version(name: str) -> str:
    """The version of an installed package; "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def check_processors() -> Iterator[Finding]:
    """Cores, and the memory of each GPU that torch sees."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # macOS has none
    if _lacks_training():
        yield Finding("CPU", "ok", f"{cores} cores ({platform.machine()})")
        return
    import torch

    yield Finding("CPU", "ok", f"{cores} cores, {torch.get_num_threads()} threads ({platform.machine()})")
    if torch.cuda.is_available():
        yield from map(_check_gpu, range(torch.cuda.device_count()))
    elif torch.backends.mps.is_available():
        yield Finding("GPU", "ok", "Apple silicon; to use it, set --model.device mps")
    elif shutil.which("nvidia-smi"):
        detail = f"the driver is installed, but torch {torch.__version__} cannot use it"
        advice = "install the build of torch for this driver's CUDA version (pytorch.org/get-started)"
        yield Finding("GPU", "note", detail, advice)
    else:
        yield Finding("GPU", "note", "none; only small models are practical, such as `dph demo` makes")


def _check_gpu(index: int) -> Finding:
    import torch

    try:
        free, total = (size / _GIB for size in torch.cuda.mem_get_info(index))
        facts, bf16 = torch.cuda.get_device_properties(index), torch.cuda.is_bf16_supported(including_emulation=False)
    except RuntimeError as error:
        advice = "check the driver, or exclude this GPU with CUDA_VISIBLE_DEVICES"
        return Finding(f"GPU {index}", "broken", f"cannot compute: {str(error).partition(chr(10))[0]}", advice)
    abilities = f"compute capability {facts.major}.{facts.minor}, bf16: {'yes' if bf16 else 'no'}"
    advice = "another process uses this GPU; nvidia-smi shows which one" if free < total / 2 else ""
    status = "note" if advice else "ok"
    return Finding(f"GPU {index}", status, f"{facts.name}, {free:.0f} of {total:.0f} GiB free, {abilities}", advice)


def check_room(out: Path) -> Iterator[Finding]:
    """Free memory, and write access and free space of each directory that DPH-RL writes to."""
    advice = "close other programs, or use fewer processes (--jobs, --verifier.workers)"
    if (free := free_memory()) is not None:  # a process takes 0.4 GiB for torch and transformers alone
        yield _room("memory", free / _GIB, 1.0, "", advice)
    places = {
        "run directories": (out, "use a different --out"),
        "cache": (cache_folder(), "set DPH_CACHE to another directory"),
        "temporary files": (Path(tempfile.gettempdir()), "set TMPDIR"),
    }
    for name, (path, other) in places.items():
        existing = next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"dph")
                file.flush()
            yield _room(name, shutil.disk_usage(existing).free / _GIB, 0.25, f" in {path}", f"free some, or {other}")
        except OSError as error:
            yield Finding(name, "broken", f"{path} cannot be written ({error.strerror})", other)


def _room(name: str, free: float, needed: float, where: str, advice: str) -> Finding:
    enough = free >= needed
    return Finding(name, "ok" if enough else "broken", f"{free:.1f} GiB free{where}", "" if enough else advice)


def check_sandbox() -> Iterator[Finding]:
    """Whether both verifiers accept a correct answer, and the system enforces the limits of worker processes. Attacks
    are tests (tests/verifiers)."""
    options = {name: {"workers": 1, "timeout": 20.0} for name in ("sql", "math")}
    with (
        tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
        Verifiers(options) as verifiers,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        data = {"db": str(Path(folder, "data"))}
        sqlite3.connect(data["db"]).close()  # an empty database
        cases = {
            "mathematics": (Problem("doctor", "Half?", "1/2", "math"), r"\boxed{\frac{2}{4}}"),
            "SQL verifier": (Problem("doctor", "One?", "SELECT 1", "sql", data), "```sql\nSELECT 2 - 1\n```"),
        }
        for name, case in cases.items():
            [verdict] = verifiers.verify([case])
            detail, advice = f"{verdict.outcome} {verdict.detail}".rstrip(), ""
            if not verdict.correct:
                detail, advice = f"{detail}, expected correct", "if the machine is not just busy, please report this"
            yield Finding(name, "broken" if advice else "ok", detail, advice)
    unlimited = "; ".join(str(warning.message) for warning in caught if warning.category is RuntimeWarning)
    yield Finding("limits", "note" if unlimited else "ok", unlimited or "the system enforces all")


def check_training(device: str) -> Iterator[Finding]:
    """Supervised training, pre-sampling, two steps of DPH-JS and an evaluation of a small model run quietly, in a
    temporary directory."""
    output = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(action="ignore"),
        ):
            losses = _run_stages(Path(folder), device)
        if len(losses) != 2 or not all(map(math.isfinite, losses)):
            raise UserError(f"two steps of training gave the losses {losses}")
        yield Finding("training", "ok", "every stage ran")
    except UserError as error:
        last = (output.getvalue().strip().splitlines() or ["nothing"])[-1]
        yield Finding("training", "broken", str(error), f"fix this error; the last line of output: {last}")


def _run_stages(folder: Path, device: str) -> list[float]:
    """The losses of training. The model learns to answer yes to easy prompts, which it then rehearses, and yes or no to
    hard ones, whose answer is no and which it explores."""
    data = folder / "rows.jsonl"  # to learn from, and then problems
    rows = [
        {"prompt": f"{level} {number}", "response": word, "answer": answer, "verifier": "exact"}
        for level, answer in (("easy", "yes"), ("hard", "no"))
        for number in range(6)
        for word in (" yes", f" {answer}")
    ]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = {"name": "records", "options": {"path": str(data)}}
    drawn = {"task": task, "rollout": {"n": 4, "max_tokens": 4, "max_prompt_tokens": 16}}
    rehearsal = {"path": str(folder / "presample"), "rows": 2}
    stages: list[tuple[str, Callable[[Any], Path], dict[str, Any]]] = [
        ("sft", dph.sft, {"data": str(data), "steps": 60, "batch": 40, "new": {"tokenizer": "word"}}),
        ("presample", dph.presample, drawn | {"threshold": 3, "refine": "keep"}),
        ("train", dph.train, drawn | {"steps": 2, "rehearsal": rehearsal}),
        ("eval", dph.evaluate, drawn),
    ]
    model = ""
    for name, run, settings in stages:
        where = {"out": str(folder / name), "model": {"device": device, "path": model}}
        out = run(load_settings(name, ["dph_js"], overrides=settings | where))
        model = f"{out}/model" if name in ("sft", "train") else model
    return [row.get("loss", math.nan) for row in read_metrics(folder / "train")]
