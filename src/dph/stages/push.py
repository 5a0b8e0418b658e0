"""Publish the model of a run on a hub, with its card."""

import shutil
from pathlib import Path

from dph.config import PushConfig, comparable
from dph.errors import UserError, one_line
from dph.models.card import CARD, model_card
from dph.process.progress import say
from dph.runs.directory import RunDir
from dph.runs.files import directory_written_atomically
from dph.runs.models import find_model

_SEARCHED = ("*/manifest.json", "eval/*/manifest.json", "*/eval/manifest.json")
"""Where evaluations are looked for, from the folder that the run is in."""


def push(config: PushConfig) -> None:
    """Upload the model of a run, or write what would be uploaded into a folder.

    Raises UserError for what is no run with a model, for an evaluation of another model, without a token, and when the
    hub refuses or cannot be reached.
    """
    if not config.run or not (config.repo or config.out):
        raise UserError(
            "dph push needs a run and a repository: dph push RUN OWNER/NAME (or --out FOLDER to look at it)"
        )
    found = find_model(config.run)
    folder = Path(found.model)
    if found.run is None or not folder.is_relative_to(found.run):
        raise UserError(f"{config.run} is not a run of `dph sft` or `dph train`, nor a checkpoint of one")
    run = RunDir.open(found.run)
    evals = [Path(path) for path in config.evals] or _evaluations(found.run, folder)
    for path in config.evals:
        if not _evaluates(Path(path), folder):
            raise UserError(f"{path} evaluates another model than {folder}")
    card = model_card(run, evals, config.licence)
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != CARD]
    for file in files:
        if not file.resolve().is_relative_to(found.run.resolve()):  # it would publish any file of this machine
            raise UserError(f"{file} is a link out of {found.run}; replace it by a copy of the file that it means")
    if config.out:
        return _write(Path(config.out), files, card)
    _upload(config, files, card)


def _evaluations(run: Path, model: Path) -> list[Path]:
    """Finished evaluations of the model near its run."""
    found = {path.parent for pattern in _SEARCHED for path in run.parent.glob(pattern)}
    return [path for path in sorted(found) if (path / "scores.json").is_file() and _evaluates(path, model)]


def _evaluates(path: Path, model: Path) -> bool:
    """Whether a run evaluates a model. Raises UserError if it is no evaluation."""
    if not (path / "scores.json").is_file():
        raise UserError(f"{path} is not a finished run of `dph eval`")
    if RunDir.open(path).manifest.get("stage") != "eval":
        return False
    return comparable(RunDir.open(path, "eval").settings()["model"]["path"]) == comparable(str(model))


def _write(out: Path, files: list[Path], card: str) -> None:
    if out.exists():
        raise UserError(f"{out} exists already; name a new folder with --out")
    with directory_written_atomically(out) as path:
        for file in files:
            shutil.copy2(file, path / file.name)
        (path / CARD).write_text(card, encoding="utf-8")
    say(f"{out} has what would be published")


def _upload(config: PushConfig, files: list[Path], card: str) -> None:
    from huggingface_hub import CommitOperationAdd, HfApi, get_token

    if not get_token():
        raise UserError("publishing needs a token of the hub: run `hf auth login`, or set HF_TOKEN")
    operations = [CommitOperationAdd(file.name, str(file)) for file in files]
    operations.append(CommitOperationAdd(CARD, card.encode()))
    api = HfApi()
    try:
        repo = api.create_repo(config.repo, private=config.private, exist_ok=True).repo_id
        api.create_commit(repo, operations, commit_message="Model trained with DPH-RL")
    except Exception as error:  # of the network, the hub, or its library
        reason = one_line(str(error), 300) or type(error).__name__
        raise UserError(
            f"cannot publish {config.repo!r} ({reason}); check the name, the token's rights and the network"
        ) from error
    say(f"published {len(operations)} files as {repo}")
