"""A run of every stage at the smallest scale: a model with a few thousand weights learns to answer with two words."""

import contextlib
import io
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dph.config import (
    EvalConfig,
    LossConfig,
    ModelConfig,
    NewModelConfig,
    OptimConfig,
    PresampleConfig,
    RehearsalConfig,
    RolloutConfig,
    SftConfig,
    TaskConfig,
    TrainConfig,
)
from dph.doctor.finding import Finding, broken, ok
from dph.errors import UserError
from dph.runs.directory import read_metrics

_MODEL = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=64)
_OPTIM = OptimConfig(lr=1e-2, schedule="cosine", warmup_steps=5)


def check_smoke(device: str) -> list[Finding]:
    """Run supervised fine-tuning, pre-sampling, two steps of DPH-JS and an evaluation in a temporary directory."""
    started = time.perf_counter()
    said = io.StringIO()
    try:
        with tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder, _kept_quiet(said):
            facts = _run(Path(folder), device)
    except UserError as error:
        return [broken("training", str(error), f"fix this error; the last line of output before it: {_last(said)}")]
    except Exception as error:  # a bug or a broken installation must not hide the other findings
        advice = "run `dph demo --smoke` for the full message, and please report it"
        return [broken("training", f"{type(error).__name__}: {error}", advice)]
    return [ok("training", f"{facts}, in {time.perf_counter() - started:.0f} s")]


def _run(folder: Path, device: str) -> str:
    """Run the stages in order and return a summary. Raises UserError if a result is wrong."""
    from dph.stages.evaluate import evaluate
    from dph.stages.presample import presample
    from dph.stages.sft import sft
    from dph.stages.train import train

    _write_rows(folder)
    data, task = folder / "rows.jsonl", TaskConfig(name="records", options={"path": str(folder / "problems.jsonl")})
    base = sft(
        SftConfig(
            str(folder / "base"),
            str(data),
            steps=60,
            batch=40,
            model=ModelConfig(device=device),
            new=_MODEL,
            optim=_OPTIM,
        )
    )
    start = ModelConfig(str(base / "model"), device=device)
    sampling = RolloutConfig(n=4, max_tokens=4, max_prompt_tokens=16)
    sampled = presample(
        PresampleConfig(
            out=str(folder / "set"),
            model=start,
            task=task,
            rollout=sampling,
            threshold=3,
            refine="keep",
        )
    )
    trained = train(
        TrainConfig(
            out=str(folder / "train"),
            method="dph_js",
            steps=2,
            model=start,
            task=task,
            prompt_set="explore",
            rollout=replace(sampling, prompts=2),
            loss=LossConfig(divergence="js", eta=0.2),
            rehearsal=RehearsalConfig(str(sampled), rows=2),
            optim=OptimConfig(lr=1e-3, minibatches=1),
        )
    )
    steps = read_metrics(trained)
    if len(steps) != 2 or not all(math.isfinite(row["loss"]) for row in steps):
        raise UserError(f"two steps of training gave the losses {[row.get('loss') for row in steps]}")
    end = ModelConfig(str(trained / "model"), device=device)
    scores = evaluate(EvalConfig(str(folder / "eval"), model=end, task=task, rollout=sampling))
    accuracy = json.loads((scores / "scores.json").read_text(encoding="utf-8"))["splits"][task.split]["metrics"][
        "greedy"
    ]
    if not accuracy["mean"] >= 0.5:  # the model memorizes the easy half
        raise UserError(f"the model learned too little: greedy accuracy {accuracy['mean']:.2f}, expected at least 0.5")
    return f"every stage ran; greedy accuracy {accuracy['mean']:.2f}"


def _write_rows(folder: Path) -> None:
    """Write the training rows and the problems.

    The rows answer "easy" prompts with yes and "hard" prompts with yes or no. The correct answer is yes to the easy
    problems; to the hard ones it is no or a word that never occurs, so that some always remain to explore.
    """
    easy, hard = ([f"{kind} {number}" for number in range(6)] for kind in ("easy", "hard"))
    rows = [(prompt, " yes") for prompt in easy] * 2 + [(p, f" {word}") for p in hard for word in ("yes", "no")]
    problems = [(prompt, "yes") for prompt in easy] + [(p, "no" if i % 2 else "maybe") for i, p in enumerate(hard)]
    lines = [json.dumps({"prompt": prompt, "response": response}) for prompt, response in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    lines = [json.dumps({"id": p, "prompt": p, "answer": answer, "verifier": "exact"}) for p, answer in problems]
    (folder / "problems.jsonl").write_text("\n".join(lines), encoding="utf-8")


@contextlib.contextmanager
def _kept_quiet(said: io.StringIO) -> Iterator[None]:
    """Redirect the output of the stages to `said`, and suppress warnings."""
    # The console of dph.process.progress writes to whatever sys.stderr is at that moment.
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _last(said: io.StringIO) -> str:
    lines = said.getvalue().strip().splitlines()
    return lines[-1] if lines else "nothing"
