"""`dph audit`: the changes that training made, from two models and problems."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from dph.config import AuditConfig, CertifyStageConfig, EvalConfig, InterpolateConfig, Reading, narrowed
from dph.errors import UserError
from dph.measure.certificate import Certificate
from dph.measure.changes import compare
from dph.measure.samples import read_samples
from dph.measure.wording import comparison_as_json, comparison_as_text
from dph.models.loading import read_config
from dph.process.progress import put, say
from dph.runs.directory import find_model
from dph.runs.files import check_replaced, write_atomically
from dph.stages.certify import of_samples
from dph.stages.evaluate import evaluate
from dph.stages.interpolate import interpolate
from dph.stages.passk import MARK

BEFORE, AFTER, AVERAGE = "before", "after", "average"
"""The names of the run directories in `out`."""
MADE_BY = {"made_by": "dph audit"}
"""A mark in audit.json, so that a file of somebody else is not replaced."""


def audit(config: AuditConfig, *, resume: bool = False) -> Path:
    """Sample every model in a separate run of `dph eval`, with the same problems and random numbers, and compare the
    samples. Writes audit.json and index.html next to the runs, and returns the folder.

    With `average`, the average of the weights of the two models is sampled as a third model. Raises UserError if a
    model cannot be read, or if a file of somebody else would be replaced.
    """
    from dph.report.passk import as_page

    out = Path(config.out)
    check_replaced([out / "index.html"], MARK, "dph audit")
    check_replaced([out / "audit.json"], json.dumps(MADE_BY)[1:-1], "dph audit")
    models = {BEFORE: find_model(config.model.path).model, AFTER: find_model(config.after).model}
    for model in models.values():
        read_config(replace(config.model, path=model))  # before one model is sampled although the other is missing
    if config.average:
        models[AVERAGE] = str(out / f"{AVERAGE}-{config.average:g}-model")  # each share has a model of its own
        if not Path(models[AVERAGE]).exists():
            between = InterpolateConfig(models[AFTER], config.average, models[BEFORE], models[AVERAGE])
            interpolate(replace(between, trust_remote_code=config.model.trust_remote_code))
    for name, model in models.items():
        of_model = replace(config, out=str(out / name), model=replace(config.model, path=model), label=name)
        evaluate(narrowed(EvalConfig, of_model), resume=resume)
    # A problem whose samples could not all be judged counts with the samples that could.
    sides = [replace(read_samples(out / name, Reading(partial=True)), name=name) for name in models]
    comparison = compare(*sides, partial=True)
    for note in comparison.notes:
        say(note)
    put(comparison_as_text(comparison))
    checked = _certificate(config, out)
    facts = MADE_BY | comparison_as_json(comparison) | {"certificate": asdict(checked) if checked else None}
    write_atomically(out / "audit.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    page = as_page(comparison, [side.read_as for side in sides], f"{models[BEFORE]} → {models[AFTER]}")
    write_atomically(out / "index.html", page)
    return out


def _certificate(config: AuditConfig, out: Path) -> Certificate | None:
    """A certificate: a bound of the share that was lost of the problems that the model before masters, by the first
    half of its samples. None, with a line that says why, if there cannot be one."""
    sides = CertifyStageConfig(base=str(out / BEFORE), checkpoints=(str(out / AFTER),), choose=config.rollout.n // 2)
    try:
        [checked] = of_samples(replace(sides, certify=config.certify), resume=False)
    except UserError as error:
        say(f"there is no certificate: {error}")
        return None
    put(checked.sentence())
    return checked
