"""`dph audit`: what training changed, from two models and problems."""

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
"""The run directories in `out`."""
MADE_BY = {"made_by": "dph audit"}
"""In audit.json, so that a file of somebody else is not replaced."""


def audit(config: AuditConfig, *, resume: bool = False) -> Path:
    """Sample every model in a separate run of `dph eval`, with the same problems and random numbers, write audit.json
    and index.html next to the runs; returns the directory. With `average`, the averaged weights are the last model."""
    from dph.report.passk import as_page

    out = Path(config.out)
    check_replaced([out / "index.html"], MARK, "dph audit")
    check_replaced([out / "audit.json"], json.dumps(MADE_BY)[1:-1], "dph audit")
    models = {BEFORE: find_model(config.model.path).model, AFTER: find_model(config.after).model}
    for model in models.values():
        read_config(replace(config.model, path=model))  # before one is sampled and the other is missing
    if config.average:
        models[AVERAGE] = str(out / f"{AVERAGE}-{config.average:g}-model")  # another share has another model
        if not Path(models[AVERAGE]).exists():
            between = InterpolateConfig(models[AFTER], config.average, models[BEFORE], models[AVERAGE])
            interpolate(replace(between, trust_remote_code=config.model.trust_remote_code))
    for name, model in models.items():
        of_model = replace(config, out=str(out / name), model=replace(config.model, path=model), label=name)
        evaluate(narrowed(EvalConfig, of_model), resume=resume)
    # Problems whose samples could not all be judged count with those that could.
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
    """A bound of what was lost of the problems that the model before masters, by the first half of its samples."""
    sides = CertifyStageConfig(base=str(out / BEFORE), checkpoints=(str(out / AFTER),), choose=config.rollout.n // 2)
    try:
        [checked] = of_samples(replace(sides, certify=config.certify), resume=False)
    except UserError as error:
        say(f"there is no certificate: {error}")
        return None
    put(checked.sentence())
    return checked
