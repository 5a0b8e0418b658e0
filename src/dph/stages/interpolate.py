"""A model between the one that a run began with and the one that it trained (WiSE-FT, arXiv 2504.10478)."""

from pathlib import Path

from dph.config import InterpolateConfig, ModelConfig
from dph.errors import RunError, SettingsError
from dph.models.card import CARD, model_card
from dph.models.interpolation import interpolated
from dph.process.progress import say
from dph.runs.directory import RunDir
from dph.runs.files import directory_written_atomically, remove_leftovers
from dph.runs.models import find_model


def interpolate(config: InterpolateConfig) -> Path:
    """Write the model (1 − weight)·initial + weight·trained, of a run with its card; returns its folder.

    Raises UserError for a folder that exists, without an initial model, and for models that do not fit together.
    """
    if not config.run or not config.out:
        raise SettingsError("dph interpolate needs a run and a folder: dph interpolate RUN --weight 0.5 --out FOLDER")
    out, trained = Path(config.out), find_model(config.run)
    if out.exists():
        raise SettingsError(f"{out} exists already; name a new folder with --out")
    remove_leftovers(out.parent)  # before the models need memory and disk
    run = None if trained.run is None else RunDir.open(trained.run)
    settings = {} if run is None else run.settings().get("model", {})
    initial = config.initial or settings.get("path", "")
    if not initial or initial == trained.model:
        raise RunError(f"{config.run} does not tell which model it began with; name that model with --initial")
    model = ModelConfig(initial, trust_remote_code=config.trust_remote_code)
    policy = interpolated(model, trained.model, config.weight)
    what = f"{1 - config.weight:g}·initial + {config.weight:g}·trained"
    with directory_written_atomically(out) as path:
        policy.save(path)
        if run is not None:
            note = f"These are not the weights of the run itself but {what} (`dph interpolate`)."
            (path / CARD).write_text(model_card(run, note=note), encoding="utf-8")
    say(f"{out} has {what}: {initial} and {trained.model}")
    return out
