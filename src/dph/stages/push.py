"""Publish the model of a run on a hub, with its card."""

import shutil
from pathlib import Path

from dph.config import PushConfig, absolute
from dph.errors import RunError, SettingsError, UserError, one_line
from dph.models.card import CARD, model_card
from dph.process.progress import say
from dph.report.data import read_eval
from dph.runs.directory import RunDir, find_model
from dph.runs.files import directory_written_atomically


def push(config: PushConfig) -> None:
    """Upload the model of a run, or write the same files into a folder. Raises UserError for a path that is not a run
    with a model, for an evaluation of another model, without a token, and when the hub refuses or is not reached."""
    if not config.run or not (config.repo or config.out):
        raise SettingsError("dph push needs a run and a repository: dph push RUN OWNER/NAME (or --out FOLDER)")
    model = find_model(config.run)
    run, folder = model.run, Path(model.model)
    if run is None or not folder.is_relative_to(run):
        raise RunError(f"{config.run} is not a run of `dph sft` or `dph train`, nor a checkpoint of one")
    nearby = {path.parent for place in ("*", "eval/*", "*/eval") for path in run.parent.glob(f"{place}/scores.json")}
    named = [RunDir.open(path) for path in map(Path, config.evals or sorted(nearby))]
    finished = [(one, read_eval(one.path)) for one in named if one.complete and one.manifest.get("stage") == "eval"]
    evals = [(one, scores) for one, scores in finished if absolute(str(scores.model)) == absolute(str(folder))]
    if len(evals) < len(config.evals):
        what = " or ".join(config.evals)
        raise RunError(f"{what} is not a finished run of `dph eval`, or evaluates another model than {folder}")
    scores = [
        (one.settings()["task"]["name"], name, split.problems, metric, value.mean, value.low, value.high)
        for one, evaluation in evals
        for name, split in evaluation.splits.items()
        for metric in dict.fromkeys(["greedy", "pass@1", f"pass@{max(split.pass_curve, default='')}"])
        if (value := split.metrics.get(metric))
    ]
    card = model_card(RunDir.open(run), scores, config.licence)
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != CARD]
    for file in files:
        if not file.resolve().is_relative_to(run.resolve()):  # it would publish any file of this machine
            raise RunError(f"{file} is a link out of {run}; replace it by a copy of the file that it means")
    if not config.out:
        return _upload(config, files, card)
    if Path(config.out).exists():
        raise SettingsError(f"{config.out} exists already; name a new folder with --out")
    with directory_written_atomically(Path(config.out)) as out:
        for file in files:
            shutil.copy2(file, out / file.name)
        (out / CARD).write_text(card, encoding="utf-8")
    say(f"{config.out} has what would be published")


def _upload(config: PushConfig, files: list[Path], card: str) -> None:
    from huggingface_hub import CommitOperationAdd, HfApi, get_token

    if not get_token():
        raise UserError("publishing needs a token of the hub: run `hf auth login`, or set HF_TOKEN")
    operations = [
        *(CommitOperationAdd(file.name, str(file)) for file in files),
        CommitOperationAdd(CARD, card.encode()),
    ]
    api = HfApi()
    try:
        repo = api.create_repo(config.repo, private=config.private, exist_ok=True).repo_id
        api.create_commit(repo, operations, commit_message="Model trained with DPH-RL")
    except Exception as error:  # of the network, the hub, or its library
        reason = one_line(str(error), 300) or type(error).__name__
        raise UserError(f"cannot publish {config.repo!r} ({reason}); check name, token and network") from error
    say(f"published {len(operations)} files as {repo}")
