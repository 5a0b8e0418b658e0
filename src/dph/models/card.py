"""The card of a model: how it was made, from what, and what it scores, in the form that hubs read (README.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dph.config import flatten
from dph.config.text import read_json
from dph.errors import UserError
from dph.models.gguf import model_folder
from dph.runs.directory import RunDir, read_metrics

CARD = "README.md"
_PAPER = "https://arxiv.org/abs/2509.07430"
_SUMMARY = {
    "steps": "steps",
    "batch": "rows per step",
    "rollout.prompts": "prompts per step",
    "rollout.n": "responses per prompt",
    "rollout.temperature": "temperature",
    "prompt_set": "prompts",
    "loss.policy": "policy loss",
    "advantage.name": "advantage",
    "loss.divergence": "divergence of rehearsal",
    "loss.eta": "weight of rehearsal (η)",
    "rehearsal.rows": "stored responses per step",
    "optim.lr": "learning rate",
    "optim.schedule": "schedule",
    "model.precision": "precision",
    "model.lora_rank": "rank of adapters",
    "trained_share": "share of the trained weights",
    "seed": "seed",
}
"""Settings that a reader wants to know first; all others follow at the end."""


@dataclass(frozen=True, slots=True)
class Base:
    """What is known of the model that a run began with."""

    name: str
    hub: str = ""
    """Its name on a hub, or that of the model that it comes from."""
    licence: str = ""


def base_of(path: str) -> Base:
    """What the card in a model's folder says. Names without a folder are taken for a hub's, which is not asked; "" is a
    model made from scratch."""
    if not path:
        return Base("a model made from scratch")
    if path.endswith(".gguf"):
        return Base(Path(path).name)
    folder = Path(model_folder(path))
    if not folder.is_dir():
        return Base(path, path)
    facts = _front_matter(folder / CARD)
    hub = facts.get("base_model", "")
    named = folder.resolve().parent.name if folder.name == "model" else folder.name
    return Base(named, hub if isinstance(hub, str) else "", str(facts.get("license", "")))


def write_card(folder: Path, run: RunDir) -> None:
    """Write the card of the model of a run of `dph sft` or `dph train` beside its weights."""
    (folder / CARD).write_text(model_card(run), encoding="utf-8")


def model_card(run: RunDir, evals: Sequence[Path] = (), licence: str = "", note: str = "") -> str:
    """The card of a run's model: metadata as YAML, then text.

    evals: evaluations of the model, for its scores; licence: overrides that of the base model; note: a sentence after
    the first. Raises UserError for an evaluation that cannot be read.
    """
    settings = run.settings()
    base = base_of(settings.get("model", {}).get("path", ""))
    scores = [_read_scores(path) for path in evals]
    name = run.path.resolve().name
    parts = [
        f"---\n{yaml.safe_dump(_metadata(name, settings, base, licence, scores), sort_keys=False)}---",
        f"# {name}\n\n{_opening(run, settings, base)}{note and ' ' + note}",
        _training(run, settings, base),
        _scores(run, scores),
        _use(),
        "## Versions\n\n" + _table(("package", "version"), run.manifest.get("versions", {}).items()),
        f"<details><summary>All settings</summary>\n\n```toml\n{_settings_text(run)}```\n\n</details>\n",
    ]
    return "\n\n".join(part for part in parts if part)


def _metadata(
    name: str, settings: Mapping[str, Any], base: Base, licence: str, scores: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    task = settings.get("task", {})
    found: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if licence or base.licence:
        found["license"] = licence or base.licence
    if base.hub:
        found["base_model"] = base.hub
    data = task.get("options", {}).get("name", "") if task.get("name") == "hub" else ""
    if data and not Path(data).exists():
        found["datasets"] = [data]
    found["tags"] = ["dph-rl", "rlvr", *([str(settings["method"])] if "method" in settings else ["sft"])]
    results = [
        {
            "task": {"type": "text-generation"},
            "dataset": {"type": one["task"], "name": f"{one['task']} ({split})", "split": split},
            "metrics": [{"type": key, "value": round(value["mean"], 4)} for key, value in metrics.items()],
        }
        for one in scores
        for split, metrics in one["splits"].items()
    ]
    return found | ({"model-index": [{"name": name, "results": results}]} if results else {})


def _opening(run: RunDir, settings: Mapping[str, Any], base: Base) -> str:
    if run.manifest.get("stage") == "sft":
        return f"Supervised training of {base.name} with DPH-RL."
    return (
        f"{base.name}, trained by reinforcement learning with verifiable rewards, method `{settings.get('method')}` of "
        f"DPH-RL ([The Choice of Divergence]({_PAPER}))."
    )


def _training(run: RunDir, settings: Mapping[str, Any], base: Base) -> str:
    flat, task = flatten(settings), settings.get("task", {})
    options = ", ".join(f"{key} {value}" for key, value in task.get("options", {}).items())
    data = settings.get("data") or f"task {task.get('name')}" + (f" ({options})" if options else "")
    split = f", split {task['split']}" if "split" in task else ""
    rows = [
        ("base", f"{base.name}{f' ({base.hub})' if base.hub not in ('', base.name) else ''}"),
        ("data", data + split),
    ]
    skipped = {"loss.divergence", "loss.eta", "rehearsal.rows"} if not flat.get("rehearsal.rows") else set()
    skipped |= {"trained_share"} if flat.get("trained_share") == 1 else set()
    rows += [(label, flat[key]) for key, label in _SUMMARY.items() if key in flat and key not in skipped]
    command = run.manifest.get("command")
    told = f"\n\n```sh\n{command}\n```" if command else ""
    return f"## Training\n\n{_table(('', ''), rows)}{told}"


def _scores(run: RunDir, scores: Sequence[Mapping[str, Any]]) -> str:
    """Scores of evaluations; without any, the monitor's last measurement, where there is one."""
    if scores:
        rows = [
            (split, value.get("problems", one["problems"][split]), key, f"{100 * value['mean']:.1f}", _interval(value))
            for one in scores
            for split, metrics in one["splits"].items()
            for key, value in metrics.items()
        ]
        head = ("split", "problems", "metric", "%", "95 % interval")
        return f"## Scores\n\n{_table(head, rows)}\n\nMeasured by `dph eval`; intervals by bootstrap over problems."
    measured = [row for row in read_metrics(run.path) if "eval/greedy" in row]
    if not measured:
        return ""
    last = measured[-1]
    shown = [
        (key[5:], f"{100 * value:.1f}") for key, value in last.items() if key == "eval/greedy" or "eval/pass@" in key
    ]
    when = f"After step {last['step']}, on the problems that were monitored:"
    return f"## Scores\n\n{when}\n\n{_table(('metric', '%'), shown)}"


def _use() -> str:
    return (
        "## Use\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("FOLDER_OR_NAME")\n'
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER_OR_NAME")\n```'
    )


def _settings_text(run: RunDir) -> str:
    return (run.path / "config.toml").read_text(encoding="utf-8")


def _read_scores(path: Path) -> dict[str, Any]:
    """Task, problems and main metrics of an evaluation, by split."""
    run = RunDir.open(path, "eval")
    scores = read_json(path / "scores.json", "run `dph eval` again")
    try:
        found = scores["splits"]
        splits = {split: {key: summary["metrics"][key] for key in _main(summary)} for split, summary in found.items()}
        problems = {split: summary["problems"] for split, summary in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / 'scores.json'} cannot be read ({error}); run `dph eval` again") from error
    return {"task": run.settings().get("task", {}).get("name", ""), "splits": splits, "problems": problems}


def _main(summary: Mapping[str, Any]) -> list[str]:
    """Metrics that a card shows: greedy accuracy, the mean of one sample, and pass@k of the largest k."""
    largest = max(summary["pass_curve"], key=int, default="")
    wanted = ["greedy", "pass@1", f"pass@{largest}"]
    return [key for key in dict.fromkeys(wanted) if key in summary["metrics"]]


def _interval(value: Mapping[str, float]) -> str:
    return f"{100 * value['low']:.1f} to {100 * value['high']:.1f}"


def _front_matter(card: Path) -> dict[str, Any]:
    """The metadata of a card; {} where there is none that can be read."""
    try:
        _, found, _ = card.read_text(encoding="utf-8").split("---\n", 2)
        facts = yaml.safe_load(found)
    except Exception:  # safe_load lets errors of many types through: of a damaged tag, a value, or deep nesting
        return {}
    return facts if isinstance(facts, dict) else {}


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
