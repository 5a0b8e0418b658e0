"""The card of a model: how it was made, from what, and what it scores, in the form that hubs read (README.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.config import flatten
from dph.config.text import read_json
from dph.errors import UserError
from dph.models.gguf import model_folder
from dph.runs.directory import RunDir, read_metrics

CARD = "README.md"
_PAPER = "https://arxiv.org/abs/2509.07430"
_USE = """## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("FOLDER_OR_NAME")
tokenizer = AutoTokenizer.from_pretrained("FOLDER_OR_NAME")
```"""
_MAIN = (
    *("method", "steps", "batch", "rollout.prompts", "rollout.n", "rollout.temperature", "prompt_set", "loss.policy"),
    *("advantage.name", "rehearsal.rows", "loss.divergence", "loss.eta", "optim.lr", "model.precision", "seed"),
)
"""Settings that a reader wants to know first; all others follow at the end."""


@dataclass(frozen=True, slots=True)
class Base:
    """The model that a run began with, as far as its own card tells."""

    name: str
    hub: str = ""
    """Its name on a hub, or the name there of the model that it comes from."""
    licence: str = ""


def base_of(path: str) -> Base:
    """What the card in a model's folder says. Names without a folder are taken for a hub's, which is not asked; "" is a
    model made from scratch."""
    from huggingface_hub import metadata_load

    if not path:
        return Base("a model made from scratch")
    if path.endswith(".gguf"):
        return Base(Path(path).name)
    folder = Path(model_folder(path))
    if not folder.is_dir():
        return Base(path, path)
    try:
        facts = metadata_load(folder / CARD) or {}
    except Exception:  # errors of many types: no card, of a damaged tag, a value, or deep nesting
        facts = {}
    hub, name = facts.get("base_model", ""), folder.resolve().parent.name if folder.name == "model" else folder.name
    return Base(name, hub if isinstance(hub, str) else "", str(facts.get("license", "")))


def model_card(run: RunDir, evals: Sequence[Path] = (), licence: str = "", note: str = "") -> str:
    """The card of a run's model: metadata as YAML, then text.

    evals: evaluations of the model, for its scores; licence: overrides that of the base model; note: a sentence after
    the first. Raises UserError for an evaluation that cannot be read.
    """
    from huggingface_hub import EvalResult, ModelCardData

    settings, name = run.settings(), run.path.resolve().name
    base = base_of(settings.get("model", {}).get("path", ""))
    flat, task, method = flatten(settings), settings.get("task", {}), settings.get("method", "sft")
    scores = [score for path in evals for score in _read_scores(path)]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        license=licence or base.licence or None,
        base_model=base.hub or None,
        tags=["dph-rl", "rlvr", method],
        model_name=name if scores else None,
        eval_results=[
            EvalResult("text-generation", of, f"{of} ({split})", metric, round(value["mean"], 4), dataset_split=split)
            for of, split, _, metric, value in scores
        ]
        or None,
    )
    how = "Supervised training" if method == "sft" else "Reinforcement learning with verifiable rewards"
    source = settings.get("data") or " ".join(map(str, (task.get("name"), task.get("split", ""), task.get("options"))))
    shown = [("base", base.name), ("data", source), *((key, flat[key]) for key in _MAIN if key in flat)]
    results, caption = [], "Measured by `dph eval`; 95 % intervals by bootstrap over problems."
    for _, split, problems, metric, value in scores:
        results.append((split, problems, metric, *(f"{100 * value[key]:.1f}" for key in ("mean", "low", "high"))))
    measured = [] if scores else [row for row in read_metrics(run.path) if "eval/greedy" in row][-1:]
    for row in measured:
        caption = f"After step {row['step']}, on the problems that were monitored."
        metrics = {key: value for key, value in row.items() if key == "eval/greedy" or key.startswith("eval/pass@")}
        results += [("", "", key[5:], f"{100 * value:.1f}", "", "") for key, value in metrics.items()]
    head = ("split", "problems", "metric", "%", "low", "high")
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name}\n\n{how} of {base.name} with DPH-RL ([The Choice of Divergence]({_PAPER})). {note}",
        f"## Training\n\n{_table(('setting', 'value'), shown)}",
        f"```sh\n{run.manifest.get('command')}\n```" if run.manifest.get("command") else "",
        f"## Scores\n\n{_table(head, results)}\n\n{caption}" if results else "",
        _USE,
        "## Versions\n\n" + _table(("package", "version"), run.manifest.get("versions", {}).items()),
        "<details><summary>All settings</summary>\n\n```toml",
        (run.path / "config.toml").read_text(encoding="utf-8") + "```\n\n</details>\n",
    ]
    return "\n\n".join(part.rstrip(" ") for part in parts if part)


def write_card(folder: Path, run: RunDir) -> None:
    """Write the card of the model of a run beside its weights."""
    (folder / CARD).write_text(model_card(run), encoding="utf-8")


def _read_scores(path: Path) -> list[tuple[str, str, int, str, dict[str, float]]]:
    """Task, split, number of problems, metric and value of the main metrics of an evaluation: greedy accuracy, the mean
    of one sample, and pass@k of the largest k."""
    task = RunDir.open(path, "eval").settings().get("task", {}).get("name", "")
    scores = read_json(path / "scores.json", "run `dph eval` again")
    try:
        return [
            (task, split, summary["problems"], metric, summary["metrics"][metric])
            for split, summary in scores["splits"].items()
            for metric in dict.fromkeys(["greedy", "pass@1", f"pass@{max(summary['pass_curve'], key=int, default='')}"])
            if metric in summary["metrics"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / 'scores.json'} cannot be read ({error}); run `dph eval` again") from error


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
