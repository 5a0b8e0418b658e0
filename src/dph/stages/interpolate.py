"""`dph interpolate`: a model between the model that a run began with and the model that it trained (WiSE-FT, arXiv
2109.01903; for reasoning models, arXiv 2504.10478)."""

from pathlib import Path

from dph.build import make_verifiers
from dph.config import EvaluatedModelConfig, InterpolateConfig, absolute
from dph.config.checks import check_model
from dph.errors import RunError, SettingsError
from dph.evaluation.certification import CertificationSet
from dph.measure.certificate import fixed_sequence, untested
from dph.models.card import save_with_card
from dph.models.interpolation import interpolated
from dph.process.progress import say
from dph.runs.directory import RunDir, find_model
from dph.runs.files import remove_leftovers


def interpolate(config: InterpolateConfig) -> Path:
    """Write the model (1 − weight)·initial + weight·trained, with the card of its run if there is one. Returns the
    folder of the model.

    Raises UserError if the folder exists, no initial model is known, or the two models do not fit together.
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
    check_model(trained.model)
    if not initial or absolute(initial) == absolute(trained.model):
        wrong = f"{config.run} does not tell which model it began with"
        raise RunError(f"{wrong}; name a run of sft or train, or that model with --initial")
    model = EvaluatedModelConfig(initial, trust_remote_code=config.trust_remote_code)
    certified = _furthest(config, model, trained.model) if config.certify.set else None
    weight = config.weight if certified is None else certified[0]
    policy = interpolated(model, trained.model, weight)
    what = f"{1 - weight:g}·initial + {weight:g}·trained"
    note = f"These are not the weights of the run itself but {what} (`dph interpolate`)."
    save_with_card(run, policy.save, out, f"{note} {certified[1]}." if certified else note)
    say(f"{out} has {what}: {initial} and {trained.model}")
    return out


def _furthest(config: InterpolateConfig, initial: EvaluatedModelConfig, trained: str) -> tuple[float, str]:
    """The largest share of the trained model that is certified, and the sentence of its certificate. Shares are tested
    from the smallest on, until one fails. Raises UserError if the smallest share fails."""
    held = CertificationSet.open(config.certify)
    if held.settings.reward.function:
        raise SettingsError(f"{held.run.path} names code; make shares with --weight, and check them by `dph certify`")
    shares = [place / config.shares for place in range(1, config.shares + 1)]
    passed, tested = [], []
    with make_verifiers(held.settings.verifier, held.settings.reward) as verifiers:
        policies = (interpolated(initial, trained, share) for share in shares)
        checks = fixed_sequence(held.certify(policy, initial, held.settings.sampler, verifiers) for policy in policies)
        for share, check in zip(shares, checks, strict=False):
            say(f"share {share:g}: {check.sentence()}")
            tested.append(check)
            passed += [(share, check.sentence())] if check.certified else []
    if left := untested([f"share {share:g}" for share in shares], tested):
        say(left)
    if not passed:
        raise RunError(f"no share is certified, not even {shares[0]:g}; allow a larger certify.epsilon")
    return passed[-1]
