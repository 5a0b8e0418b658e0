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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from dph.config import DoctorConfig, EvalConfig, PresampleConfig, SftConfig, TrainConfig, from_dict
from dph.errors import UserError
from dph.process.memory import free_memory
from dph.runs.directory import read_metrics
from dph.runs.files import cache_folder
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers

__all__ = ["Finding", "doctor"]

_GIB = 1 << 30
_ENGINES = ("peft", "vllm", "trl", "verl")  # extras, listed if they are installed
_MODULES = {"pyyaml": "yaml"}  # packages whose module has a different name
_DTYPES, _HEADS = ("bfloat16", "float32"), (8, 2, 64)
"""Types, query heads, key heads and head width with which a GPU's attention is tried."""
_ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the machine or the installation."""

    name: str
    status: Literal["ok", "note", "broken"]
    """ok: works; note: works with limitations; broken: something that is needed does not work."""
    detail: str
    advice: str = ""
    """What the user should do; may be empty."""


def doctor(config: DoctorConfig) -> list[Finding]:
    """Run all checks and print each result as it arrives, or all results as JSON at the end.

    Raises UserError, after all results have been printed, if anything that is needed does not work.
    """
    checks: dict[str, Callable[[], list[Finding]]] = {
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
            results = check()
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
    return findings


def check_installation() -> list[Finding]:
    """Check the versions of Python and of all required packages, and import each package."""
    findings = [Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")]
    if version := _version("dph-rl"):
        findings.append(Finding("dph-rl", "ok", version))
        requirements = metadata.requires("dph-rl") or []
    else:
        detail = "runs from its source: the versions of other packages are not checked"
        findings.append(Finding("dph-rl", "note", detail, "pip install . in the repository"))
        requirements = []
    findings += [_check_package(Requirement(text)) for text in requirements if "extra ==" not in text]
    engines = [f"{name} {version}" for name in _ENGINES if (version := _version(name))]
    findings.append(Finding("optional packages", "ok", ", ".join(engines) or "none of " + ", ".join(_ENGINES)))
    if _version("verl"):  # which would not say itself that it does not find our plug-in
        from dph.integrations.verl.settings import check_registered

        try:
            check_registered()
            findings.append(Finding("plug-in for verl", "ok", "verl knows the trainer of DPH-RL"))
        except UserError as error:
            detail, _, advice = str(error).rpartition("; ")
            findings.append(Finding("plug-in for verl", "note", detail, f"to train through verl, {advice}"))
    return findings


def _version(name: str) -> str:
    """The version of an installed package; "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _check_package(wanted: Requirement) -> Finding:
    """Whether a required package is installed in a suitable version and can be imported."""
    name, version = wanted.name, _version(wanted.name)
    install = f"pip install '{wanted}', or pip install -c constraints.txt . in the repository for the tested versions"
    if not version:
        return Finding(name, "broken", "is not installed", install)
    if not wanted.specifier.contains(version, prereleases=True):
        return Finding(name, "broken", f"{version}, but {wanted.specifier} is needed", install)
    try:
        importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    except Exception as error:  # a damaged package may raise anything
        return Finding(name, "broken", f"{version} cannot be imported ({type(error).__name__}: {error})", install)
    return Finding(name, "ok", version)


def check_processors() -> list[Finding]:
    """Cores, and what each GPU can do; attention is tried on it, against a reference."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    findings = [Finding("CPU", "ok", f"{cores} cores, {torch.get_num_threads()} threads ({platform.machine()})")]
    if torch.cuda.is_available():
        return findings + [finding for index in range(torch.cuda.device_count()) for finding in _check_gpu(index)]
    if torch.backends.mps.is_available():
        return [*findings, Finding("GPU", "ok", "Apple silicon; to use it, set --model.device mps")]
    if shutil.which("nvidia-smi"):
        detail = f"the driver is installed, but torch {torch.__version__} cannot use it"
        advice = "install the build of torch for this driver's CUDA version (pytorch.org/get-started)"
        return [*findings, Finding("GPU", "note", detail, advice)]
    return [*findings, Finding("GPU", "note", "none; only small models are practical, such as those of `dph demo`")]


def _check_gpu(index: int) -> list[Finding]:
    import torch

    from dph.models.attention import choose

    name = f"GPU {index}"
    try:
        free, total = torch.cuda.mem_get_info(index)
        facts, bf16 = torch.cuda.get_device_properties(index), torch.cuda.is_bf16_supported(including_emulation=False)
        choices = {kind: choose(torch.device("cuda", index), getattr(torch, kind), *_HEADS) for kind in _DTYPES}
    except RuntimeError as error:
        advice = "check the driver, or exclude this GPU with CUDA_VISIBLE_DEVICES"
        return [Finding(name, "broken", f"cannot compute: {str(error).partition(chr(10))[0]}", advice)]
    detail = f"{facts.name}, {free / _GIB:.0f} of {total / _GIB:.0f} GiB free, compute capability {facts.major}."
    detail += f"{facts.minor}, bf16: {'yes' if bf16 else 'no'}"
    advice = "" if bf16 else "use --model.precision fp32"
    if free < total / 2:
        advice = "another process uses this GPU; nvidia-smi shows which one"
    findings = [Finding(name, "note" if advice else "ok", detail, advice)]
    for kind, choice in choices.items():
        copied = choice.name == "gather"
        advice = "it works, with a copy of the prompt's keys for each response; see the reasons" if copied else ""
        title = f"{name}: attention over shared prompts in {kind}"
        findings.append(Finding(title, "note" if copied else "ok", str(choice), advice))
    return findings


def check_room(out: Path) -> list[Finding]:
    """Check free memory, and write access and free space of each directory that DPH-RL writes to."""
    out_of_memory = "close other programs, or use fewer processes (--jobs, --verifier.workers)"
    free = free_memory()
    findings = [Finding("memory", "note", "this system does not report how much memory is free")]
    if free is not None:  # loading torch and transformers takes 0.4 GiB per process
        findings = [_check_amount("memory", "", free, _GIB, 4 * _GIB, out_of_memory)]
    places = {
        "run directories": (out, "use a different --out"),
        "cache": (cache_folder(), "set DPH_CACHE to a directory that you can write to"),
        "temporary files": (Path(tempfile.gettempdir()), "set TMPDIR to a directory that you can write to"),
    }
    for name, (path, change) in places.items():
        path = path.absolute()
        existing = next(folder for folder in [path, *path.parents] if folder.exists())
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"dph")
                file.flush()
            free = shutil.disk_usage(existing).free
        except OSError as error:
            findings.append(Finding(name, "broken", f"{path} cannot be written ({error.strerror})", change))
        else:
            advice = f"free some disk space, or {change}"
            findings.append(_check_amount(name, f"{path}, ", free, _GIB // 4, 5 * _GIB, advice))
    return findings


def _check_amount(name: str, place: str, free: int, needed: int, wanted: int, advice: str) -> Finding:
    """Rates free bytes: broken below `needed`, a note below `wanted`."""
    detail = f"{place}{free / _GIB:.1f} GiB free"
    if free >= wanted:
        return Finding(name, "ok", detail)
    return Finding(name, "broken" if free < needed else "note", detail, advice)


def check_sandbox() -> list[Finding]:
    """Whether both verifiers accept a correct answer, a query that hangs and one that opens another file are stopped,
    and the system enforces the limits of worker processes. Worse attacks are tests (tests/verifiers)."""
    options = {"sql": {"workers": 1, "timeout": 1.0, "memory_mb": 512}, "math": {"workers": 1, "timeout": 20.0}}
    findings: list[Finding] = []
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
        cases = [
            ("mathematics", half, r"\boxed{\frac{2}{4}}", Outcome.CORRECT),
            ("SQL verifier", query, "```sql\nSELECT count(*) FROM t WHERE n > 0\n```", Outcome.CORRECT),
            ("a query that hangs", query, f"```sql\n{_ENDLESS}\n```", Outcome.TIMEOUT),
            ("a query that reads outside", query, f"```sql\nATTACH '{folder}/other' AS o\n```", Outcome.ERROR),
            ("the next query", query, "```sql\nSELECT count(*) FROM t WHERE n > -1\n```", Outcome.CORRECT),
        ]
        for name, problem, response, expected in cases:
            [verdict] = verifiers.verify([(problem, response)])
            detail, advice = f"{verdict.outcome} {verdict.detail}".rstrip(), ""
            if verdict.outcome is not expected:
                detail = f"{detail}, expected {expected}"
                advice = "do not judge untrusted responses on this machine; if it is not just busy, please report this"
            findings.append(Finding(name, "broken" if advice else "ok", detail, advice))
    unlimited = "; ".join(str(warning.message) for warning in caught if warning.category is RuntimeWarning)
    return [*findings, Finding("limits", "note" if unlimited else "ok", unlimited or "the system enforces all")]


def check_training(device: str) -> list[Finding]:
    """Run supervised training, pre-sampling, two steps of DPH-JS and an evaluation of a model with a few thousand
    weights, quietly, in a temporary directory."""
    output = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(action="ignore"),
        ):
            greedy = _run_stages(Path(folder), device)
    except UserError as error:
        last = (output.getvalue().strip().splitlines() or ["nothing"])[-1]
        return [Finding("training", "broken", str(error), f"fix this error; the last line of output: {last}")]
    return [Finding("training", "ok", f"every stage ran; greedy accuracy {greedy:.2f}")]


def _run_stages(folder: Path, device: str) -> float:
    """Returns the greedy accuracy after training. Raises UserError if a result is wrong.

    The supervised rows answer "easy" prompts with yes and "hard" ones with yes or no. The correct answer is yes to the
    easy problems; to the hard ones it is no or a word that never occurs, so that some always remain to explore.
    """
    from dph.stages.evaluate import evaluate
    from dph.stages.presample import presample
    from dph.stages.sft import sft
    from dph.stages.train import train

    def run(stage: Callable[[Any], Path], config: type, name: str, **settings: Any) -> Path:
        return stage(from_dict(config, {"out": str(folder / name), **settings}, f"the smoke run's {name}"))

    easy, hard = ([f"{kind} {number}" for number in range(6)] for kind in ("easy", "hard"))
    rows = [(prompt, " yes") for prompt in easy] * 2 + [(prompt, word) for prompt in hard for word in (" yes", " no")]
    answers = dict.fromkeys(easy, "yes") | {prompt: ("maybe", "no")[i % 2] for i, prompt in enumerate(hard)}
    problems = [{"id": p, "prompt": p, "answer": answer, "verifier": "exact"} for p, answer in answers.items()]
    files = {"rows": [{"prompt": prompt, "response": word} for prompt, word in rows], "problems": problems}
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    new = {"tokenizer": "word", "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 48, "context": 64}
    optim = {"lr": 1e-2, "schedule": "cosine", "warmup_steps": 5}
    model = {"device": device}
    data = str(folder / "rows.jsonl")
    base = run(sft, SftConfig, "base", data=data, steps=60, batch=40, model=model, new=new, optim=optim)
    model |= {"path": str(base / "model")}
    task = {"name": "records", "options": {"path": str(folder / "problems.jsonl")}}
    sampling = {"n": 4, "max_tokens": 4, "max_prompt_tokens": 16}
    partition = {"threshold": 3, "refine": "keep"}
    presampled = run(presample, PresampleConfig, "set", model=model, task=task, rollout=sampling, **partition)
    method = {"method": "dph_js", "loss": {"divergence": "js", "eta": 0.2}, "prompt_set": "explore"}
    method |= {"rehearsal": {"path": str(presampled), "rows": 2}, "optim": {"lr": 1e-3, "minibatches": 1}}
    rollout = sampling | {"prompts": 2}
    trained = run(train, TrainConfig, "train", steps=2, model=model, task=task, rollout=rollout, **method)
    losses = [row.get("loss", math.nan) for row in read_metrics(trained)]
    if len(losses) != 2 or not all(map(math.isfinite, losses)):
        raise UserError(f"two steps of training gave the losses {losses}")
    model |= {"path": str(trained / "model")}
    scored = run(evaluate, EvalConfig, "eval", model=model, task=task, rollout=sampling)
    [split] = json.loads((scored / "scores.json").read_text(encoding="utf-8"))["splits"].values()
    greedy = split["metrics"]["greedy"]["mean"]
    if not greedy >= 0.5:  # the model memorizes the easy half
        raise UserError(f"the model learned too little: greedy accuracy {greedy:.2f}, expected at least 0.5")
    return greedy
