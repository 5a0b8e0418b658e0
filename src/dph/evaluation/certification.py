"""The certification set of a presample run: near-perfect problems kept aside, and new samples of the base model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dph.build import load_problems, make_sampler
from dph.config import (
    CertifySetConfig,
    EvaluatedModelConfig,
    PresampleConfig,
    RewardConfig,
    SamplerConfig,
    TaskConfig,
    VerifierConfig,
    differences,
    from_dict,
    to_dict,
)
from dph.errors import RunError, counted
from dph.evaluation.evaluator import Evaluator
from dph.measure.certificate import MOST_PROBLEMS, Certificate, Counts, certificate, smallest_set
from dph.models.chat import Rendering
from dph.models.policy import Policy
from dph.process.progress import warn
from dph.rehearsal.check import check_facts, judging_rules, model_of, policy_facts
from dph.rehearsal.presampled import Presampled
from dph.runs.directory import RunDir
from dph.sampling.protocol import Sampler
from dph.types import Problem
from dph.verifiers import NOT_RECORDED, Verifiers, other_rules


@dataclass(frozen=True, slots=True)
class CertificationSet:
    """Problems that the base model mastered, its new samples of them, and the settings of a check."""

    run: RunDir
    settings: PresampleConfig
    """Settings of the presample run, by which checkpoints are sampled."""
    problems: Sequence[Problem]
    base: Counts
    allowed: CertifySetConfig

    @classmethod
    def open(cls, allowed: CertifySetConfig) -> "CertificationSet":
        """The set of the presample run `allowed.set`. Raises UserError if the run or its problems have changed, it kept
        nothing aside, or the set is too small to certify epsilon even if nothing is lost."""
        presampled = Presampled.open(Path(allowed.set))
        run = presampled.run
        settings = from_dict(PresampleConfig, run.settings(), f"the settings of {run.path}")
        # the manifest has the paths of the task's files from anywhere, the settings from where the run was started
        settings = replace(settings, task=from_dict(TaskConfig, run.manifest["task"], f"the manifest of {run.path}"))
        problems, counts = load_problems(settings.task)[1], presampled.new_counts()
        presampled.check_problems(problems, settings.task.split)
        n = settings.certify.samples  # a sample that could not be judged counts against the certificate
        base = {id: (n - judged + correct, n) for id, (correct, judged) in counts.items()}
        opened = cls(run, settings, [problem for problem in problems if problem.id in counts], base, allowed)
        opened._check_rules()
        if not opened.certificate(base).certified:
            enough = smallest_set(allowed.epsilon, allowed.alpha) or f"more than {MOST_PROBLEMS:,}"
            raise RunError(
                f"{counted(len(base), 'problem')} that {run.path} kept aside cannot certify a loss of "
                f"{allowed.epsilon:g} even if nothing is lost; {enough} can: raise certify.share of "
                "`dph presample`, or certify.epsilon"
            )
        return opened

    def _check_rules(self) -> None:
        """Raises UserError if the base model was judged by other versions of the verifiers' rules than checkpoints will
        be; warns if the run does not record them."""
        used = () if self.settings.reward.function else {problem.verifier for problem in self.problems}
        for changed in other_rules(self.run.manifest.get("versions"), used):
            if NOT_RECORDED not in changed:
                raise RunError(
                    f"{self.run.path} judged the base model by other rules ({changed}), so that no checkpoint can be "
                    "compared with it; run `dph presample` again"
                )
            warn(f"{self.run.path} does not say by which version of the rules it judged the base model ({changed})")

    @property
    def rendering(self) -> Rendering:
        """How the presample run rendered prompts."""
        return Rendering.of(self.settings.model)

    def check_apart(self, what: str, ids: Iterable[str]) -> None:
        """Raises UserError if one of the problems is in the set."""
        if shared := self.base.keys() & set(ids):
            where = f"{what}: {counted(len(shared), 'problem')} of the certification set of {self.run.path}"
            raise RunError(f"{where}; leave these out, or use one presample run for both")

    def check(self, policy: Policy, *, base: bool = False) -> None:
        """Raises UserError for a policy with another tokenizer, or that renders prompts otherwise than the presample
        run, with `base` also for other weights."""
        check_facts(self.run, policy_facts(policy, weights=base), model_of(policy))

    def check_judging(self, verifier: VerifierConfig, reward: RewardConfig) -> None:
        """Raises UserError for settings that judge otherwise than the presample run."""
        here = judging_rules({"verifier": to_dict(verifier), "reward": to_dict(reward)})
        if changed := differences(judging_rules(to_dict(self.settings)), here):
            how = f"{self.run.path} judged the base model otherwise ({'; '.join(changed)})"
            raise RunError(f"{how}; use its settings, or run `dph presample` again")

    def evaluator(self, policy: Policy, sampler: Sampler, verifiers: Verifiers) -> Evaluator:
        """An evaluator that samples a policy as the base model was sampled, with the random keys of the new samples:
        these chose no problem and trained no policy. So chance makes both sides differ only if the policies do."""
        rollout = self.settings.rollout
        params = rollout.params(self.settings.certify.samples)
        return Evaluator(
            policy, sampler, verifiers, params, rollout.max_prompt_tokens, self.settings.seed, False, "certify"
        )

    def certificate(self, counts: Counts) -> Certificate:
        """Check a policy's samples."""
        return certificate(self.base, counts, self.allowed.epsilon, self.allowed.alpha, self.allowed.k)

    def certify(
        self, policy: Policy, model: EvaluatedModelConfig, config: SamplerConfig, verifiers: Verifiers
    ) -> Certificate:
        """Sample a policy, which may have other weights than `model`, and check it; prompts are the presample run's."""
        policy.rendering = self.rendering
        self.check(policy)
        sampler = make_sampler(config, policy, model, self.settings.rollout.longest, training=True)
        counts = solved(self.evaluator(policy, sampler, verifiers), self.problems)
        sampler.close()
        return self.certificate(counts)


def solved(evaluator: Evaluator, problems: Sequence[Problem]) -> dict[str, tuple[int, int]]:
    """A policy's correct and all samples of each problem; one that could not be judged counts as wrong."""
    groups = [group for group, _ in evaluator.responses(problems)] if problems else []
    return {group.problem.id: (group.counts[0], len(group.rollouts)) for group in groups}
