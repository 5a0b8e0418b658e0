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

from dph.config import DoctorConfig, load_settings
from dph.errors import UserError
from dph.process.memory import free_memory
from dph.runs.directory import read_metrics
from dph.runs.files import cache_folder
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers

__all__ = ["Finding", "doctor"]

_GIB = 1 << 30
_ENGINES = ("peft", "vllm", "trl", "verl")  # extras, listed if they are installed


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
    """Run all checks and print each result as it arrives, or all results as JSON at the end.

    Raises UserError, after all results have been printed, if anything that is needed does not work.
    """
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "installation": check_installation,
        "processors": check_processors,
        "memory and disk": lambda: check_room(Path(config.out)),
        "sandbox": check_sandbox,
    }
    if config.smoke:
        checks["smoke run"] = lambda: check_training(config.device)
    findings: list[Finding] = []
    for title, check in checks.items():
        try:
            results = list(check())
        except Exception as error:  # a failed check is a finding; the other checks still run
            results = [Finding(title, "broken", f"{type(error).__name__}: {error}", "please report the full output")]
        findings += results
        if not config.json:
            print(title.capitalize())
            for finding in results:
                print(f"  {finding.status:<7}{finding.name}: {finding.detail}")
                if finding.advice:
                    print(f"           → {finding.advice}", flush=True)
    wrong = [finding.name for finding in findings if finding.status == "broken"]
    if config.json:
        report = {"ok": not wrong, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(report, indent=1, ensure_ascii=False))
    if wrong:
        raise UserError(f"needed, but broken: {', '.join(wrong)}; the output above says how to fix it")


def check_installation() -> Iterator[Finding]:
    """The versions of Python and of all required packages; each package is imported."""
    yield Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")
    if version := _version("dph-rl"):
        yield Finding("dph-rl", "ok", version)
        required = [text for text in metadata.requires("dph-rl") or () if "extra ==" not in text]
    else:
        detail, required = "runs from its source: the versions of other packages are not checked", []
        yield Finding("dph-rl", "note", detail, "pip install . in the repository")
    for wanted in map(Requirement, required):
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
    engines = [f"{name} {version}" for name in _ENGINES if (version := _version(name))]
    yield Finding("optional packages", "ok", ", ".join(engines) or "none of " + ", ".join(_ENGINES))
    if _version("verl"):  # which would not say itself that it does not find our plug-in
        from dph.integrations.verl.settings import check_registered

        try:
            check_registered()
            yield Finding("plug-in for verl", "ok", "verl knows the trainer of DPH-RL")
        except UserError as error:
            yield Finding("plug-in for verl", "note", str(error), "needed only to train through verl")


def _version(name: str) -> str:
    """The version of an installed package; "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def check_processors() -> Iterator[Finding]:
    """Cores, and what each GPU can do; attention is tried on it, against a reference."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()  # macOS has none
    yield Finding("CPU", "ok", f"{cores} cores, {torch.get_num_threads()} threads ({platform.machine()})")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            yield from _check_gpu(index)
    elif torch.backends.mps.is_available():
        yield Finding("GPU", "ok", "Apple silicon; to use it, set --model.device mps")
    elif shutil.which("nvidia-smi"):
        detail = f"the driver is installed, but torch {torch.__version__} cannot use it"
        advice = "install the build of torch for this driver's CUDA version (pytorch.org/get-started)"
        yield Finding("GPU", "note", detail, advice)
    else:
        yield Finding("GPU", "note", "none; only small models are practical, such as those of `dph demo`")


def _check_gpu(index: int) -> Iterator[Finding]:
    import torch

    from dph.models.attention import choose

    name, device, heads = f"GPU {index}", torch.device("cuda", index), (8, 2, 64)  # query and key heads; their width
    try:
        free, total = torch.cuda.mem_get_info(index)
        facts, bf16 = torch.cuda.get_device_properties(index), torch.cuda.is_bf16_supported(including_emulation=False)
        choices = {dtype: choose(device, getattr(torch, dtype), *heads) for dtype in ("bfloat16", "float32")}
    except RuntimeError as error:
        advice = "check the driver, or exclude this GPU with CUDA_VISIBLE_DEVICES"
        yield Finding(name, "broken", f"cannot compute: {str(error).partition(chr(10))[0]}", advice)
        return
    room, kind = f"{free / _GIB:.0f} of {total / _GIB:.0f} GiB free", f"{facts.major}.{facts.minor}"
    detail = f"{facts.name}, {room}, compute capability {kind}, bf16: {'yes' if bf16 else 'no'}"
    advice = "" if bf16 else "use --model.precision fp32"
    if free < total / 2:
        advice = "another process uses this GPU; nvidia-smi shows which one"
    yield Finding(name, "note" if advice else "ok", detail, advice)
    for dtype, choice in choices.items():
        advice = "it works, with a copy of the prompt's keys for each response" if choice.name == "gather" else ""
        title = f"{name}: attention over shared prompts in {dtype}"
        yield Finding(title, "note" if advice else "ok", str(choice), advice)


def check_room(out: Path) -> Iterator[Finding]:
    """Free memory, and write access and free space of each directory that DPH-RL writes to."""
    places = {  # loading torch and transformers takes 0.4 GiB of memory per process
        "memory": (None, 1.0, 4.0, "close other programs, or use fewer processes (--jobs, --verifier.workers)"),
        "run directories": (out, 0.25, 5.0, "free some disk space, or use a different --out"),
        "cache": (cache_folder(), 0.25, 5.0, "free some disk space, or set DPH_CACHE to another directory"),
        "temporary files": (Path(tempfile.gettempdir()), 0.25, 5.0, "free some disk space, or set TMPDIR"),
    }
    for name, (path, needed, wanted, advice) in places.items():
        try:
            free = free_memory() if path is None else _free_disk(path)
        except OSError as error:
            yield Finding(name, "broken", f"{path} cannot be written ({error.strerror})", advice)
            continue
        if free is None:
            yield Finding(name, "note", "this system does not report how much memory is free")
            continue
        status = "ok" if free >= wanted * _GIB else "note" if free >= needed * _GIB else "broken"
        detail = f"{free / _GIB:.1f} GiB free" + (f" in {path}" if path else "")
        yield Finding(name, status, detail, "" if status == "ok" else advice)


def _free_disk(path: Path) -> int:
    """Free bytes where a folder is or would be. Raises OSError if nothing can be written there."""
    existing = next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())
    with tempfile.TemporaryFile(dir=existing) as file:
        file.write(b"dph")
        file.flush()
    return shutil.disk_usage(existing).free


def check_sandbox() -> Iterator[Finding]:
    """Whether both verifiers accept a correct answer, a query that hangs and one that opens another file are stopped,
    and the system enforces the limits of worker processes. Worse attacks are tests (tests/verifiers)."""
    options = {"sql": {"workers": 1, "timeout": 1.0, "memory_mb": 512}, "math": {"workers": 1, "timeout": 20.0}}
    with (
        tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
        Verifiers(options) as verifiers,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for name in ("data", "other"):
            with contextlib.closing(sqlite3.connect(Path(folder, name))) as connection:
                connection.executescript("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), (3);")
        half = Problem("doctor", "Half?", "1/2", "math")
        query = Problem("doctor", "How many?", "SELECT count(*) FROM t", "sql", {"db": str(Path(folder, "data"))})
        endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
        cases = [
            ("mathematics", half, r"\boxed{\frac{2}{4}}", Outcome.CORRECT),
            ("SQL verifier", query, "```sql\nSELECT count(*) FROM t WHERE n > 0\n```", Outcome.CORRECT),
            ("a query that hangs", query, f"```sql\n{endless}\n```", Outcome.TIMEOUT),
            ("a query that reads outside", query, f"```sql\nATTACH '{folder}/other' AS o\n```", Outcome.ERROR),
            ("the next query", query, "```sql\nSELECT count(*) FROM t WHERE n > -1\n```", Outcome.CORRECT),
        ]
        for name, problem, response, expected in cases:
            [verdict] = verifiers.verify([(problem, response)])
            detail = f"{verdict.outcome} {verdict.detail}".rstrip()
            if verdict.outcome is expected:
                yield Finding(name, "ok", detail)
            else:
                advice = "do not judge untrusted responses on this machine; if it is not just busy, please report this"
                yield Finding(name, "broken", f"{detail}, expected {expected}", advice)
    unlimited = "; ".join(str(warning.message) for warning in caught if warning.category is RuntimeWarning)
    yield Finding("limits", "note" if unlimited else "ok", unlimited or "the system enforces all")


def check_training(device: str) -> Iterator[Finding]:
    """Supervised training, pre-sampling, two steps of DPH-JS and an evaluation of a model with a few thousand weights
    run quietly, in a temporary directory."""
    output = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(action="ignore"),
        ):
            greedy = _run_stages(Path(folder), device)
        yield Finding("training", "ok", f"every stage ran; greedy accuracy {greedy:.2f}")
    except UserError as error:
        last = (output.getvalue().strip().splitlines() or ["nothing"])[-1]
        yield Finding("training", "broken", str(error), f"fix this error; the last line of output: {last}")


def _run_stages(folder: Path, device: str) -> float:
    """Returns the greedy accuracy after training. Raises UserError if a result is wrong.

    The model learns to answer "easy" prompts with yes and "hard" ones with yes or no. The correct answer is yes to the
    easy problems; to the hard ones it is no or a word that never occurs, so that some always remain to explore.
    """
    from dph.stages.evaluate import evaluate
    from dph.stages.presample import presample
    from dph.stages.sft import sft
    from dph.stages.train import train

    answers = {f"easy {i}": "yes" for i in range(6)} | {f"hard {i}": ("maybe", "no")[i % 2] for i in range(6)}
    rows = [
        {"prompt": prompt, "response": word, "answer": answer, "verifier": "exact"}
        for prompt, answer in answers.items()
        for word in (" yes", " yes" if answer == "yes" else " no")
    ]
    data = folder / "rows.jsonl"  # to learn from, and then problems; each occurs twice
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    new = {"tokenizer": "word", "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 48, "context": 64}
    optim = {"lr": 1e-2, "schedule": "cosine", "warmup_steps": 5}
    start: dict[str, Any] = {"data": str(data), "steps": 60, "batch": 40, "new": new, "optim": optim}
    rollout = {"n": 4, "max_tokens": 4, "max_prompt_tokens": 16}
    drawn = {"task": {"name": "records", "options": {"path": str(data)}}, "rollout": rollout}
    rehearsal = {"path": str(folder / "presample"), "rows": 2}
    steps = {"steps": 2, "rehearsal": rehearsal, "optim": {"lr": 1e-3, "minibatches": 1}}

    def run(stage: Callable[[Any], Path], name: str, model: str, settings: dict[str, Any]) -> Path:
        settings = {**settings, "out": str(folder / name), "model": {"device": device, "path": model}}
        return stage(load_settings(name, ["dph_js"], overrides=settings))

    model = str(run(sft, "sft", "", start) / "model")
    run(presample, "presample", model, drawn | {"threshold": 3, "refine": "keep"})
    trained = run(train, "train", model, drawn | steps | {"rollout": rollout | {"prompts": 2}})
    losses = [row.get("loss", math.nan) for row in read_metrics(trained)]
    if len(losses) != 2 or not all(map(math.isfinite, losses)):
        raise UserError(f"two steps of training gave the losses {losses}")
    scored = run(evaluate, "eval", str(trained / "model"), drawn)
    [split] = json.loads((scored / "scores.json").read_text(encoding="utf-8"))["splits"].values()
    greedy = split["metrics"]["greedy"]["mean"]
    if not greedy >= 0.5:  # the model memorizes the easy half
        raise UserError(f"the model learned too little: greedy accuracy {greedy:.2f}, expected at least 0.5")
    return greedy
