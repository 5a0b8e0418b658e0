"""The checks of a presample run before training uses it.

The manifest of the run holds hashes of the weights, the tokenizer and the files, the sampling temperature and top-p,
the threshold, the seed, and the versions of packages. A set that was made with another model, tokenizer, temperature or
top-p than the training has is refused. So is a set whose files have changed since they were written. Changed versions
are only reported, because the recomputed log-probabilities measure their effect.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dph.config import RewardConfig, SamplingConfig, VerifierConfig, flatten, to_dict
from dph.config.sampling import DEFAULTS, SamplingParams, plain, sampling_facts
from dph.errors import ModelError, RunError, counted
from dph.models.chat import Rendering, tokenizer_hash
from dph.models.policy import Policy
from dph.process.progress import say, warn
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import Rehearsal
from dph.runs.directory import RunDir, package_versions
from dph.types import of_policy
from dph.verifiers import other_rules

_SAME_NUMBERS = 0.1
"""Nats by which a stored log-probability may differ from the recomputed one when both were computed in fp32: kernels of
another device or version stay well below it; other weights do not."""
_LOW_PRECISION = 1.0
"""The same if either was computed in bf16."""


def check_fit(run: RunDir, policy: Policy, params: SamplingParams, *, same_weights: bool) -> None:
    """Compare a presample run with the policy and the sampling parameters of a training.

    Raises UserError if the run had another tokenizer, another sampling parameter, or another date or other variables of
    the chat template. With `same_weights`, the run must also have had the weights of the policy.
    """
    facts = {**policy_facts(policy, weights=same_weights), **sampling_facts(params)}
    check_facts(run, facts, model_of(policy))


def policy_facts(policy: Policy, *, weights: bool) -> dict[str, Any]:
    """What the manifest of a presample run must say for a policy: the hash of the tokenizer, the date and the variables
    of the chat template and, with `weights`, the hash of the weights."""
    facts = rendering_facts(policy.rendering, policy.tokenizer)
    return facts | ({"weight_hash": policy.weight_hash()} if weights else {})


def rendering_facts(rendering: Rendering, tokenizer: Any) -> dict[str, Any]:
    """What the manifest of a presample run must say for a tokenizer, and for a date and variables of its chat
    template."""
    facts = {"tokenizer_hash": tokenizer_hash(tokenizer), "chat_template_kwargs": None, "chat_template_date": None}
    return facts | rendering.facts(tokenizer)


def model_of(policy: Policy) -> str:
    """The folder or name from which the model of a policy was loaded, for messages; "" if it was not loaded."""
    return str(getattr(policy.causal_lm, "name_or_path", ""))


_OF_MODEL = ("weight_hash", "tokenizer_hash")
"""Facts whose values say nothing to a reader; the message names the models that have them."""


def check_facts(run: RunDir, facts: Mapping[str, Any], model: str = "") -> None:
    """Raises UserError if the manifest of a presample run differs from one of the facts of this training.

    A run of an older version does not say on which day its prompts were rendered, which is only reported. model: where
    the model of this training is, for the message.
    """
    manifest, wrong = run.manifest, []
    for name, now in facts.items():
        there = manifest.get(name, plain(DEFAULTS.get(name)))  # a set from before a sampling parameter has its default
        if there != now and (name, there) != ("chat_template_date", None):
            places = (f" of {manifest.get('model', 'the set')}", f" of {model}" if model else "")
            before, here = places if name in _OF_MODEL else ("", "")
            wrong.append(f"{name} {there!r}{before} there, {now!r}{here} here")
    if wrong:
        raise RunError(
            f"the rehearsal set of {run.path} does not fit this run ({'; '.join(wrong)}); run `dph presample` with "
            "this model and this sampling, or train with the model and sampling of the set"
        )
    if (date := facts.get("chat_template_date")) and manifest.get("chat_template_date") is None:
        warn(
            f"the rehearsal set of {run.path} does not say on which day its prompts were rendered, and the chat "
            f"template writes a date: {date} in this run's prompts; if the set's differ, run `dph presample` again"
        )


_JUDGES_ALIKE = {"verifier.workers", "verifier.timeout", "reward.in_process"}


def judging_rules(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stage that decide verdicts, by their names with dots. settings: nested dictionaries.

    >>> judging_rules({"verifier": {"policy": "symbolic", "workers": 4}, "out": "runs/a"})
    {'verifier.policy': 'symbolic'}
    """
    rules = flatten({key: settings.get(key, {}) for key in ("verifier", "reward")})
    return {name: value for name, value in rules.items() if name not in _JUDGES_ALIKE}


def warn_of_another_judge(presampled: RunDir, verifier: VerifierConfig, reward: RewardConfig) -> None:
    """Warn, in one line, if a rehearsal set was judged by other rules than a training with these settings judges by.
    The responses that are rehearsed as correct need not be responses that the training pays for."""
    there = judging_rules(presampled.settings())
    here = judging_rules({"verifier": to_dict(verifier), "reward": to_dict(reward)})
    del here["verifier.reward"]  # a wrong response's reward: it is not rehearsed
    names = [name for name in here if name in there and here[name] != there[name]]
    if names:
        differing = "; ".join(f"{name} {there[name]!r} there, {here[name]!r} here" for name in names)
        warn(
            f"the rehearsal set of {presampled.path} was judged by other rules than this training ({differing}); run "
            "`dph presample` with the same rules, or train with the set's rules"
        )


def other_versions(manifest: Mapping[str, Any]) -> list[str]:
    """The packages and the rules of judging whose versions differ from those that made a set, as "name there → here".
    manifest: of the presample run."""
    there, here = manifest.get("versions"), package_versions()
    packages = there if isinstance(there, dict) else {}
    names = sorted(packages.keys() & here.keys())
    changed = [f"{name} {packages[name]} → {here[name]}" for name in names if packages[name] != here[name]]
    return [*changed, *other_rules(there)]


def recheck(policy: Policy, rows: Sequence[Rehearsal], temperature: float, token_budget: int) -> float:
    """Recompute the log-probabilities of stored responses by the forward pass of training.

    rows: the stored responses. temperature: of sampling. token_budget: tokens per micro-batch. Returns the largest
    deviation of a stored log-probability from the recomputed one, in nats. Raises UserError for a stored token that the
    model does not have.
    """
    vocabulary = int(policy.model.config.get_text_config().vocab_size)
    if any(max(*row.prompt_ids, *row.response_ids) >= vocabulary for row in rows):
        raise RunError(f"the rehearsal set holds tokens beyond the model's {vocabulary}; run `dph presample` again")
    again = policy.response_logprobs(rows, temperature, token_budget)
    gaps = [
        abs(there - here)
        for row, new in zip(rows, again, strict=True)
        for there, here in zip(of_policy(row.ref_logprobs, row.written), of_policy(new, row.written), strict=True)
    ]
    return max(gaps)


_MEAN_GAP = {"fp32": 0.01, "bf16": 0.1}
"""Nats per token, on average, by which a sampler's log-probabilities may differ from the trainer's. Rounding stays well
below it; single tokens may be further apart if rounding sends them to another expert."""
_LEAST_TOKENS = 100
"""Fewer tokens at some places of their responses have no mean of their own."""


def check_sampler(sampled: Sequence[Sequence[float]], trained: Sequence[Sequence[float]], precision: str) -> None:
    """Raises UserError if the log-probabilities that a sampler reports are not those of the policy.

    sampled, trained: for each response, the log-probabilities of its tokens in nats, by the sampler (empty if it
    reports none) and by the forward pass of training. precision: of the forward pass, "fp32" or "bf16", which says how
    large a difference rounding explains.
    """
    bands: dict[int, list[float]] = {0: []}  # some errors begin at a length, and a mean over all would hide them
    for by_trainer, by_sampler in zip(trained, sampled, strict=True):
        for place, (sampled_logprob, trained_logprob) in enumerate(
            zip(by_sampler, by_trainer, strict=True) if by_sampler else (), 1
        ):
            for band in (0, place.bit_length()):
                bands.setdefault(band, []).append(abs(sampled_logprob - trained_logprob))
    if not (gaps := bands[0]):
        return
    means = [sum(band) / len(band) for key, band in bands.items() if key == 0 or len(band) >= _LEAST_TOKENS]
    mean, largest = next((average for average in means if not average <= _MEAN_GAP[precision]), means[0]), max(gaps)
    if not mean <= _MEAN_GAP[precision]:  # a mean that is not a number is refused too
        raise ModelError(
            f"the sampler's log-probabilities of its responses differ from the model's by {mean:.2g} nats per token "
            f"(at most {largest:.2g}), more than rounding in {precision} explains, so it samples from another "
            "distribution; use another sampler.engine"
        )
    say(f"log-probabilities of sampler and trainer agree to {mean:.1e} nats per token (at most {largest:.1e})")


def check_start(presampled: Presampled, policy: Policy, params: SamplingParams, count: int, token_budget: int) -> float:
    """Recompute the log-probabilities of `count` stored responses, which are spread evenly over the set.

    Says, and returns, the largest deviation of a stored log-probability from the recomputed one, in nats. Raises
    UserError if the deviation shows that another model made the set.
    """
    rows = presampled.stored
    sample = [rows[place * len(rows) // count] for place in range(count)] if count < len(rows) else rows
    deviation = recheck(policy, sample, params.temperature, token_budget)
    both_fp32 = presampled.run.manifest.get("precision") == policy.precision == "fp32"
    versions = check_deviation(presampled, deviation, _SAME_NUMBERS if both_fp32 else _LOW_PRECISION)
    compared = counted(len(sample), "row")
    say(f"stored log-probabilities agree with recomputed ones to {deviation:.1e} nats ({compared}){versions}")
    return deviation


def check_deviation(presampled: Presampled, deviation: float, allowed: float) -> str:
    """Compare a deviation of stored log-probabilities from recomputed ones with the allowed one, both in nats.

    Returns a note about the packages whose versions have changed since the set was made; "" if none has. Raises
    UserError if the deviation is larger than allowed.
    """
    changed = other_versions(presampled.run.manifest)
    versions = f"; versions have changed: {', '.join(changed)}" if changed else ""
    if not deviation <= allowed:  # a deviation that is not a number is refused too
        raise RunError(
            f"the stored log-probabilities of {presampled.run.path} differ from this model's by {deviation:.1f} nats, "
            f"so they are not its own{versions}; run `dph presample` again"
        )
    return versions


def check_settings(
    presampled: Presampled,
    rollout: SamplingConfig,
    verifier: VerifierConfig,
    reward: RewardConfig,
    run: RunDir,
    *,
    fresh: bool,
    leads: bool,
) -> None:
    """Compare a rehearsal set with a training that samples and judges as these settings say, before a model is loaded.

    Raises UserError if the set was sampled otherwise, holds no response or, when a training is resumed (`fresh` is
    off), is not the set that the training started with. The leading process warns if the set was judged by other rules.
    """
    _ = presampled.stored  # raises UserError for an empty set
    check_facts(presampled.run, sampling_facts(rollout))
    begun = run.manifest.get("rehearsal", {}).get("hash", presampled.stored_hash)
    if not fresh and begun != presampled.stored_hash:
        where = presampled.run.path
        raise RunError(f"the rehearsal set of {where} is not the one that {run.path} was started with; restore it")
    if leads:
        warn_of_another_judge(presampled.run, verifier, reward)


def check_rehearsal(
    presampled: Presampled,
    rows: int,
    rollout: SamplingConfig,
    policy: Policy,
    run: RunDir,
    token_budget: int,
    *,
    fresh: bool,
    leads: bool,
) -> None:
    """Compare stored responses with the policy that training starts from, and recompute the log-probabilities of `rows`
    of them. When a training is resumed (`fresh` is off), only the tokenizer and the prompts are compared.

    The leading process records the hash of the set and the largest deviation, in nats, in the manifest of the run.
    """
    check_fit(presampled.run, policy, rollout, same_weights=fresh)
    if not fresh:
        return
    facts: dict[str, str | int | float] = {"hash": presampled.stored_hash}
    if count := min(rows, len(presampled.stored)):
        deviation = check_start(presampled, policy, rollout, count, token_budget)
        facts |= {"checked_rows": count, "deviation": deviation}
    if leads:
        run.update(rehearsal=facts)
