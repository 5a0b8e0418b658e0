"""The card of a model: how the model was made, from which model, and its scores, in the form that hubs read
(README.md)."""

from collections.abc import Callable
from pathlib import Path

import safetensors

from dph.config import flatten
from dph.errors import RunError, refused
from dph.models.loading import model_folder
from dph.runs.directory import RunDir, read_metrics
from dph.runs.files import directory_written_atomically

CARD = "README.md"


def base_of(path: str) -> tuple[str, str, str]:
    """The name, the hub name and the licence of the model at a path, as far as the card in its folder tells them.

    The hub name of a model in a folder is that of its base model. "" stands for an unknown hub name or licence. A path
    that is no folder is taken for a name on a hub, and the hub is not asked.
    """
    from huggingface_hub import metadata_load

    if not path:
        return "a model made from scratch", "", ""
    folder = Path(model_folder(path))
    if not folder.is_dir():
        return path, path, ""
    try:
        facts = metadata_load(folder / CARD) or {}
    except Exception:  # of many types, for a missing card, a damaged tag, a wrong value or deep nesting
        facts = {}
    hub, name = facts.get("base_model", ""), folder.resolve().parent.name if folder.name == "model" else folder.name
    return name, hub if isinstance(hub, str) else "", str(facts.get("license", ""))


def model_card(run: RunDir, note: str = "") -> str:
    """The card of the model of a run: metadata as YAML, and then text with the last scores of monitoring and a note."""
    import jinja2
    from huggingface_hub import ModelCardData

    settings, name = run.settings(), run.path.resolve().name
    base, hub, licence = base_of(settings.get("model", {}).get("path", ""))
    method = settings.get("method", "sft")
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation",
        license=licence or None,
        base_model=hub or None,
        tags=["dph-rl", "rlvr", method],
    )
    monitored = [row for row in read_metrics(run.path) if "eval/greedy" in row]
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
        **{"data": data.to_yaml(), "name": name, "method": method, "base": base, "note": note},
        settings=flatten(settings),
        task=settings.get("task", {}),
        command=run.manifest.get("command"),
        monitored=monitored[-1] if monitored else {},
        versions=run.manifest.get("versions", {}),
        config=(run.path / "config.toml").read_text(encoding="utf-8"),
        cell=lambda value: str(value).replace("|", "\\|"),
    )


def save_with_card(run: RunDir | None, save: Callable[[Path], None], folder: Path, note: str = "") -> None:
    """Write a model into a folder by the function `save`, together with the card of its run, if there is a run.

    The folder appears only when it is complete. Raises UserError if the model cannot be written.
    """
    with directory_written_atomically(folder) as path:
        try:
            save(path)
        except safetensors.SafetensorError as error:  # a full disk causes this error
            raise RunError(refused(f"cannot write the model {folder}", error, "free disk space")) from error
        if run is not None:
            (path / CARD).write_text(model_card(run, note=note), encoding="utf-8")
