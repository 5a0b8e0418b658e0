"""Models by their paths: those of runs and checkpoints, folders, and names on a hub."""

from pathlib import Path
from typing import Literal, NamedTuple

from dph.config.checks import is_model_folder
from dph.errors import RunError
from dph.runs.directory import RunDir


class FoundModel(NamedTuple):
    model: str
    """Folder, file or name, as `model.path` takes it."""
    run: Path | None = None
    """Run directory that made the model, or that used it; None if there is none."""


def find_model(path: str) -> FoundModel:
    """The model of a run directory (the final one, else that of the newest checkpoint, else the one that the run
    sampled from), of a checkpoint, or of a model's folder; any other text is taken for a model's name.

    Raises UserError for a run that has no model.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return FoundModel(path)
    if _is_run(folder):
        return FoundModel(_model_of(folder), folder)
    if is_model_folder(folder / "model"):
        folder = folder / "model"
    if not is_model_folder(folder):
        return FoundModel(path)
    inside = folder.resolve()
    above = [inside.parent, *inside.parents[2:3]]  # RUN/model or certified, RUN/checkpoints/step-…/model
    run = next((one for one in above if inside.name in ("model", "certified") and _is_run(one)), None)
    return FoundModel(str(folder), run)


def _model_of(run: Path) -> str:
    for folder in (run / "model", *sorted(run.glob("checkpoints/step-*/model"), reverse=True)):
        if is_model_folder(folder):
            return str(folder)
    opened = RunDir.open(run)
    stage, settings = opened.manifest.get("stage"), opened.settings().get("model")
    path = opened.manifest.get("model") or (settings.get("path") if isinstance(settings, dict) else None)
    if stage in ("presample", "eval") and path:  # the manifest of a finished run has it as an absolute path
        return str(path)
    raise RunError(f"the run {run} of `dph {stage}` has no model; name a run of sft or train, or a model's folder")


def _is_run(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and (folder / "config.toml").is_file()


def ask_hub(name: str, file: str, kind: Literal["model", "dataset"] = "model") -> None:
    """Return if a repository is on the hub, with this file, which nearly every one has, or without it. Raises whatever
    the network, its library or the hub answers otherwise, within seconds; the types are many."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, file, repo_type=kind), timeout=5.0)
    except EntryNotFoundError:
        return
