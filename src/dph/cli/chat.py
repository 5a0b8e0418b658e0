"""What `dph chat RUN_OR_MODEL` takes from the run that a model belongs to."""

from dataclasses import replace

from dph.config import ChatConfig, from_dict, merge_settings, read_toml
from dph.runs.models import find_model


def settings_for(path: str) -> ChatConfig:
    """The settings of a conversation with the model that a path means (see `find_model`): precision, task, verifier and
    sampling are those of its run, if it has one. Raises UserError for a run without a model, or a damaged one."""
    found = find_model(path)
    settings = {}
    if found.run:
        file = found.run / "config.toml"
        settings = merge_settings("chat", [], [file])
        if read_toml(file).get("data"):  # supervised on rows of a file, so that its task was not used
            settings.pop("task", None)
    config = from_dict(ChatConfig, settings)
    return replace(config, model=replace(config.model, path=found.model))
