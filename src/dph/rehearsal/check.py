"""The checks of a presample run before training uses it.

The manifest holds hashes of the weights, the tokenizer and the files, the sampling temperature and top-p, the
threshold, the seed, and the versions of packages. A set with another model, tokenizer, temperature or top-p than the
training is refused, and so is one whose files have changed since they were written. Changed versions are only reported,
because the recomputed log-probabilities measure their effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.config import RewardConfig, SamplingConfig, VerifierConfig, flatten, to_dict
from dph.config.sampling import DEFAULTS, SamplingParams, plain, sampling_facts
from dph.errors import DataError, ModelError, RunError, refused
from dph.models.chat import Rendering, tokenizer_hash
from dph.models.policy import Policy
from dph.process.progress import say, warn
from dph.rehearsal.store import Rehearsal, read_rehearsal
from dph.runs.directory import RunDir, package_versions
from dph.runs.files import sha256
from dph.verifiers import other_rules

FILES = ("partition.parquet", "rehearsal.parquet")

_SAME_NUMBERS = 0.1
"""Nats by which a stored log-probability may differ from the recomputed one when both were computed in fp32: kernels of
another device or version stay well below it; other weights do not."""
_LOW_PRECISION = 1.0
"""The same if either was computed in bf16."""


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A presample run whose files have not changed since they were written."""

    run: RunDir
    stored: Sequence[Rehearsal]
    """Responses to near-perfect prompts, or to those that can lose pass@k (`presample.for_k`)."""

    @property
    def hash(self) -> str:
        """Hash of the stored responses."""
        return self.run.manifest["files"]["rehearsal.parquet"]


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a presample run. Raises UserError for one that is missing."""
    try:
        return {name: sha256(folder / name) for name in FILES}
    except OSError as error:
        raise RunError(refused(f"{error.filename} cannot be read", error, "run `dph presample` again")) from error


def open_presampled(path: Path) -> RunDir:
    """A finished presample run whose files have not changed. Raises UserError otherwise."""
    run = RunDir.open(path, "presample")
    if not run.complete:
        raise RunError(f"the presample run {path} is not complete; run `dph presample --resume --out {path}`")
    written = run.manifest.get("files")
    if not isinstance(written, dict):
        raise RunError(f"the manifest of {path} does not say what its files hold; run `dph presample` again")
    task = run.manifest.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("split"), str):
        raise RunError(f"the manifest of {path} does not say which problems it sampled; run `dph presample` again")
    hashes = file_hashes(path)
    for name in FILES:
        if written.get(name) != hashes[name]:
            raise RunError(
                f"{path / name} is not the file that the run wrote (it was changed, damaged or replaced); run "
                "`dph presample` again"
            )
    return run


def open_set(path: Path) -> CheckedSet:
    """A presample run with its stored responses. Raises UserError as `open_presampled` and `set_of` do."""
    return set_of(open_presampled(path))


def set_of(run: RunDir) -> CheckedSet:
    """A presample run that was opened, with its stored responses. Raises UserError as `read_rehearsal` does, and if
    there are none."""
    checked = CheckedSet(run, read_rehearsal(run.path / "rehearsal.parquet"))
    if not checked.stored:
        if k := run.manifest.get("for_k"):
            raise DataError(
                f"the presample run {run.path} found no prompt that can lose pass@{k} (its for_k), so there is nothing "
                "to rehearse; draw more samples (rollout.n), choose another for_k, or train with a method without "
                "rehearsal"
            )
        raise DataError(
            f"the presample run {run.path} found no near-perfect prompt, so there is nothing to rehearse; lower its "
            "threshold, train with a method without rehearsal or, if the model solves nothing, begin with `dph sft`: "
            "docs/guides/your-data.md, 'When the model solves nothing'"
        )
    return checked


def check_fit(run: RunDir, policy: Policy, params: SamplingParams, *, same_weights: bool) -> None:
    """Refuse a rehearsal set that was made with another tokenizer, sampling parameter, or date or variables of the
    chat template than the policy's and training's or, with `same_weights`, with another model than the policy."""
    facts = {**policy_facts(policy, weights=same_weights), **sampling_facts(params)}
    check_facts(run, facts, model_of(policy))


def policy_facts(policy: Policy, *, weights: bool) -> dict[str, Any]:
    """What the manifest of a set must say for a policy: its tokenizer, how it renders prompts and, if they are to be
    the same, its weights."""
    facts = rendering_facts(policy.rendering, policy.tokenizer)
    return facts | ({"weight_hash": policy.weight_hash()} if weights else {})


def rendering_facts(rendering: Rendering, tokenizer: Any) -> dict[str, Any]:
    """The same of a tokenizer alone, and of what its chat template is given."""
    facts = {"tokenizer_hash": tokenizer_hash(tokenizer), "chat_template_kwargs": None, "chat_template_date": None}
    return facts | rendering.facts(tokenizer)


def model_of(policy: Policy) -> str:
    """The folder or name from which a policy's model was loaded, for messages; "" if it was made otherwise."""
    return str(getattr(policy.causal_lm, "name_or_path", ""))


_OF_MODEL = ("weight_hash", "tokenizer_hash")
"""Facts whose values say nothing to a reader; the message names the models that have them."""


def check_facts(run: RunDir, facts: Mapping[str, Any], model: str = "") -> None:
    """Raises UserError if a rehearsal set's manifest differs from the facts of this training in one of their keys. A
    set of an older version does not say on which day its prompts were rendered, which is only reported.

    model: where this training's model is, for the message.
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
    """Of a stage's settings, as nested dictionaries, those that decide verdicts, by their dotted names."""
    rules = flatten({key: settings.get(key, {}) for key in ("verifier", "reward")})
    return {name: value for name, value in rules.items() if name not in _JUDGES_ALIKE}


def warn_of_another_judge(presampled: RunDir, verifier: VerifierConfig, reward: RewardConfig) -> None:
    """Warn, in one line, if a rehearsal set was judged by other rules than a training with these settings judges by:
    what it rehearses as correct need not be what training pays for."""
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
    """Packages whose versions differ from those that made the set, as "name there → here", and the rules of judging
    that do."""
    there, here = manifest.get("versions"), package_versions()
    packages = there if isinstance(there, dict) else {}
    names = sorted(packages.keys() & here.keys())
    changed = [f"{name} {packages[name]} → {here[name]}" for name in names if packages[name] != here[name]]
    return [*changed, *other_rules(there)]


def recheck(policy: Policy, rows: Sequence[Rehearsal], temperature: float, token_budget: int) -> float:
    """Largest deviation of stored log-probabilities from recomputed ones, in nats.

    Raises UserError for a stored token that the model does not have.
    """
    vocabulary = int(policy.model.config.get_text_config().vocab_size)
    if any(max(*row.prompt_ids, *row.response_ids) >= vocabulary for row in rows):
        raise RunError(f"the rehearsal set holds tokens beyond the model's {vocabulary}; run `dph presample` again")
    again = policy.response_logprobs(rows, temperature, token_budget)
    pairs = [(a, b) for row, new in zip(rows, again, strict=True) for a, b in zip(row.ref_logprobs, new, strict=True)]
    return max(abs(a - b) for a, b in pairs)


_MEAN_GAP = {"fp32": 0.01, "bf16": 0.1}
"""Nats per token, on average, by which a sampler's log-probabilities may differ from the trainer's. Rounding stays well
below it; single tokens may be further apart if rounding sends them to another expert."""
_LEAST_TOKENS = 100
"""Fewer tokens at some places of their responses have no mean of their own."""


def check_sampler(sampled: Sequence[Sequence[float]], trained: Sequence[Sequence[float]], precision: str) -> None:
    """Raises UserError if a sampler's log-probabilities of its responses' tokens, in nats (empty if it gives none),
    differ from the trainer's forward pass in a precision by more than rounding explains: they are not the policy's."""
    bands: dict[int, list[float]] = {0: []}  # some errors begin at a length, and a mean over all would hide them
    for ours, theirs in zip(trained, sampled, strict=True):
        for place, (one, other) in enumerate(zip(theirs, ours, strict=True) if theirs else (), 1):
            for band in (0, place.bit_length()):
                bands.setdefault(band, []).append(abs(one - other))
    if not (gaps := bands[0]):
        return
    means = [sum(band) / len(band) for key, band in bands.items() if key == 0 or len(band) >= _LEAST_TOKENS]
    mean, largest = next((each for each in means if not each <= _MEAN_GAP[precision]), means[0]), max(gaps)
    if not mean <= _MEAN_GAP[precision]:  # a mean that is not a number is refused too
        raise ModelError(
            f"the sampler's log-probabilities of its responses differ from the model's by {mean:.2g} nats per token "
            f"(at most {largest:.2g}), more than rounding in {precision} explains, so it samples from another "
            "distribution; use another sampler.engine"
        )
    say(f"log-probabilities of sampler and trainer agree to {mean:.1e} nats per token (at most {largest:.1e})")


def check_start(checked: CheckedSet, policy: Policy, params: SamplingParams, count: int, token_budget: int) -> float:
    """Recompute stored log-probabilities of `count` rows, spread evenly over the set; reports and returns the largest
    deviation in nats. Raises UserError when it shows that the set is not this model's own."""
    rows = checked.stored
    sample = [rows[place * len(rows) // count] for place in range(count)] if count < len(rows) else rows
    deviation = recheck(policy, sample, params.temperature, token_budget)
    both_fp32 = checked.run.manifest.get("precision") == policy.precision == "fp32"
    versions = check_deviation(checked, deviation, _SAME_NUMBERS if both_fp32 else _LOW_PRECISION)
    say(f"stored log-probabilities agree with recomputed ones to {deviation:.1e} nats ({len(sample)} rows){versions}")
    return deviation


def check_deviation(checked: CheckedSet, deviation: float, allowed: float) -> str:
    """Raises UserError if stored log-probabilities deviate from recomputed ones by more than allowed, both in nats;
    returns a note on the packages whose versions changed since the set was made, or nothing."""
    changed = other_versions(checked.run.manifest)
    versions = f"; versions have changed: {', '.join(changed)}" if changed else ""
    if not deviation <= allowed:  # a deviation that is not a number is refused too
        raise RunError(
            f"the stored log-probabilities of {checked.run.path} differ from this model's by {deviation:.1f} nats, so "
            f"they are not its own{versions}; run `dph presample` again"
        )
    return versions


def rehearsed(made: RunDir, rollout: SamplingConfig, run: RunDir, *, fresh: bool) -> CheckedSet:
    """The stored responses of the presample run `made`, for a training run that samples as `rollout` says, with every
    check that needs no model. On resume it must have started with the same set."""
    checked = set_of(made)
    check_facts(checked.run, sampling_facts(rollout))
    begun = run.manifest.get("rehearsal", {}).get("hash", checked.hash)
    if not fresh and begun != checked.hash:
        raise RunError(f"the rehearsal set of {made.path} is not the one that {run.path} was started with; restore it")
    return checked


def check_rehearsal(
    checked: CheckedSet,
    rows: int,
    rollout: SamplingConfig,
    policy: Policy,
    run: RunDir,
    token_budget: int,
    *,
    fresh: bool,
    leads: bool,
) -> None:
    """Check stored responses against the policy that training starts from, and the log-probabilities of `rows` of them;
    on resume, against its tokenizer only. The leading process records the set's hash and the deviation in the run's
    manifest."""
    check_fit(checked.run, policy, rollout, same_weights=fresh)
    if not fresh:
        return
    facts: dict[str, str | int | float] = {"hash": checked.hash}
    if count := min(rows, len(checked.stored)):
        deviation = check_start(checked, policy, rollout, count, token_budget)
        facts |= {"checked_rows": count, "deviation": deviation}
    if leads:
        run.update(rehearsal=facts)
