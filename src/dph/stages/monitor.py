"""What a training run measures besides its losses: its rollouts, its time, and held-out problems."""

import time
from collections.abc import Sequence

from dph.build import select
from dph.config import TrainConfig
from dph.distributed import World
from dph.explore import Drawn, is_informative
from dph.models.policy import Policy
from dph.samplers.protocol import Sampler
from dph.stages.evaluate import Scored, evaluate_split, metric_means, summarise
from dph.tasks import Task
from dph.types import Problem, SamplingParams
from dph.verifiers import Verifiers


def rollout_metrics(drawn: Drawn, world: World) -> dict[str, float]:
    """Means over the step's rollouts (D_exp only: stored responses never enter) and over its groups."""
    rollouts = [rollout for group in drawn.groups for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if rollout.verdict.scored]
    sums = world.sum_values(
        {
            "groups": len(drawn.groups),
            "informative": sum(map(is_informative, drawn.groups)),
            "solved": sum(any(r.verdict.correct for r in group.rollouts) for group in drawn.groups),
            "rollouts": len(rollouts),
            "scored": len(scored),
            "reward": sum(rollout.reward for rollout in scored),
            "correct": sum(rollout.verdict.correct for rollout in scored),
            "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
            "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        }
    )
    per_rollout, per_group, judged = max(1, sums["rollouts"]), max(1, sums["groups"]), max(1, sums["scored"])
    return {
        "reward": sums["reward"] / judged,
        "pass_rate": sums["correct"] / judged,
        "solved": sums["solved"] / per_group,
        "informative": sums["informative"] / per_group,
        "response_length": sums["tokens"] / per_rollout,
        "truncated": sums["truncated"] / per_rollout,
        "unscored": 1 - sums["scored"] / per_rollout,
        "groups": sums["groups"],
        "prompts_drawn": drawn.attempted,
    }


class Clock:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"{name}_seconds"], self._last = now - self._last, now

    def rate(self, name: str, count: float) -> None:
        """Record `count` units over the seconds of all laps so far, per second."""
        self.laps[name] = count / max(1e-9, sum(self.laps.values()))


class Monitor:
    """Evaluation during training on a few held-out problems, spread over processes."""

    def __init__(
        self, config: TrainConfig, task: Task, policy: Policy, sampler: Sampler, verifiers: Verifiers, world: World
    ) -> None:
        self._config, self._task, self._policy = config, task, policy
        self._sampler, self._verifiers, self._world = sampler, verifiers, world
        self._problems: list[Problem] = (
            select(task, config.monitor.split, config.monitor.limit) if config.monitor.every else []
        )

    def measure(self) -> dict[str, float]:
        """Metrics named eval/…, from the same random keys each time."""
        config, world = self._config, self._world
        rollout = config.rollout
        params = SamplingParams(config.monitor.n, rollout.temperature, rollout.top_p, rollout.max_tokens)
        own = [self._problems[i] for i in world.share(len(self._problems))]
        scored = self._score(own, params) if own else []
        every = [item for part in world.gather(scored) for item in part]
        return metric_means(summarise(every, config.monitor.n), "eval/")

    def _score(self, problems: Sequence[Problem], params: SamplingParams) -> list[Scored]:
        return evaluate_split(
            self._policy,
            self._sampler,
            self._verifiers,
            self._task,
            problems,
            params,
            self._config.seed,
            max_prompt_tokens=self._config.rollout.max_prompt_tokens,
            with_greedy=True,
            label="monitor",
            quiet=True,
        )[0]
