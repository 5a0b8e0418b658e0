"""Checks before a stage loads torch: required settings that are missing, and paths that do not exist."""

import os
from pathlib import Path
from typing import Any

from dph.config.checks import check_model, check_out, check_presample, check_train
from dph.errors import UserError
from dph.runs.directory import RunDir
from dph.runs.tracking import load_tracker


def check_before_loading(stage: str, config: Any) -> None:
    """Raises UserError for a mistake in the settings of a stage that shows without loading anything."""
    if stage == "report":
        for run in config.runs:
            if not Path(run).is_dir():
                raise UserError(f"there is no run directory {run}")
    if stage == "presample" and config.check:
        return
    if stage in ("sft", "presample", "train", "eval"):
        check_out(config.out)
    if stage == "train":
        check_train(config)
        if config.tracker != "none" and os.environ.get("RANK", "0") == "0":
            load_tracker(config.tracker)
        if config.rehearsal.path:
            RunDir.open(Path(config.rehearsal.path), "presample")
    if stage == "presample":
        check_presample(config)
    if stage in ("presample", "train", "eval", "verl") or (stage == "sft" and config.model.path):
        check_model(config.model.path)
    if stage == "sft" and config.data and not Path(config.data).exists():
        raise UserError(f"there is no file {config.data}")
