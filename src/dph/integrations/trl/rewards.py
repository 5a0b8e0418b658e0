# pyright: reportMissingImports=false
"""Functions of rewards in a GRPO trainer of TRL: the advantages of `dph.objective`, and unbiased pass@k in its logs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from dph.engine import Ledger, coverage_shares, warn
from dph.errors import UserError
from dph.integrations.trl.columns import CheckedRewardsMixin
from dph.integrations.trl.members import ADVANTAGES, REWARDS, missing
from dph.objective import Advantage, GroupView
from dph.types import Outcome, Verdict


class AdvantageMixin(CheckedRewardsMixin, GRPOTrainer):
    """Replaces TRL's advantages; rewards, their weights and everything else remain TRL's."""

    def __init__(
        self, *args: Any, advantage: str = "", advantage_options: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        """
        Args:
            advantage: name of a registered advantage; TRL's own if empty. A response is correct if the weighted sum of
                its rewards is at least 1. It leaves its group if no reward function scored it.
            advantage_options: its settings.

        Raises UserError for an advantage that reads what TRL has not computed yet, and for settings of TRL's own.
        """
        super().__init__(*args, **kwargs)
        self._scored, self._said = torch.empty(0, 0), [""]
        self._advantage = Advantage(advantage, advantage_options) if advantage else None
        if self._advantage is None:
            return
        if lacks := missing(ADVANTAGES, self, ("_logs", "_tokenizer", "reward_weights")):
            raise UserError(f"advantage {advantage!r} cannot replace TRL's, because {lacks}; install TRL 1.16")
        if self._advantage.needs_logprobs or self._advantage.needs_reference:
            raise UserError(
                f"the advantage {advantage!r} reads log-probabilities of whole groups, which TRL does not have; train "
                "it with `dph train` or through verl"
            )
        if self._advantage.needs_problems:
            raise UserError(
                f"the advantage {advantage!r} reads styles or answers, and TRL hands no problems to advantages; set "
                "its options so that it reads texts (uniqueness: by text)"
            )
        if (self.scale_rewards, self.multi_objective_aggregation) != ("group", "sum_then_normalize"):  # TRL's defaults
            raise UserError(
                "scale_rewards and multi_objective_aggregation shape TRL's own advantages only; leave them out, or "
                "leave out advantage"
            )

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: list[list[int]], *args: Any
    ) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list, *args)
        if self._advantage is not None:
            self._scored = rewards.detach().float().cpu()
            texts = self._tokenizer.batch_decode(completion_ids_list, skip_special_tokens=True)
            self._said = gather_object(texts)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self._advantage is None or not self.model.training:
            return output
        weights = self.reward_weights.cpu()
        values = group_advantages(self._advantage, self._scored, weights, self._said, self.num_generations)
        theirs, logged = output["advantages"], self._logs["advantages"]
        for _ in range(min(len(values), len(logged))):  # those that TRL has just logged, of all processes
            logged.pop()
        logged.extend(values.tolist())
        start = self.accelerator.process_index * len(theirs)
        output["advantages"] = values[start : start + len(theirs)].to(theirs)
        return output


def group_advantages(advantage: Advantage, scored: Tensor, weights: Tensor, texts: list[str], responses: int) -> Tensor:
    """The advantage of each response, [N], 0 if no reward function scored it.

    scored: [N, functions], NaN if a function gave no score; the `responses` to a prompt follow each other.
    weights: [functions].
    """
    judged = ~scored.isnan().all(1)
    rewards = (scored * weights).nansum(1)
    verdicts = [
        Verdict((Outcome.CORRECT if value >= 1 else Outcome.WRONG) if scored_at_all else Outcome.INFRA_ERROR, value)
        for value, scored_at_all in zip(rewards.tolist(), judged.tolist(), strict=True)
    ]
    advantages = []
    for start in range(0, len(rewards), responses):
        group = slice(start, start + responses)
        view = GroupView(
            rewards=rewards[group],
            verdicts=verdicts[group],
            old_logprobs=[torch.empty(0)] * len(verdicts[group]),
            texts=texts[group],
        )
        values = advantage(view)
        if values.ndim != 1:
            raise UserError("TRL needs one advantage for each response; this one gives one for each token")
        advantages.append(values)
    return torch.cat(advantages)


class PassAtKMixin(CheckedRewardsMixin, GRPOTrainer):
    """Logs, for every reward function that gave only 0 and 1 (None is not a score), under `rewards/NAME/`:

    * pass@K for K = 2, 4, … up to the size of a group, with its interval over the step's groups, and cover@τ; see
      `dph.measure.passk.coverage_shares`;
    * lost: prompts that were solved before, in this process's life, and were not when last sampled.

    Training and evaluation each have their own; with a dict of evaluation sets, each of these, under
    `NAME/rewards/…`; TRL's own metrics have one name for all sets.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._set = ""
        self._counts_passes = True
        if lacks := missing(REWARDS, self, ("_metrics", "reward_func_names", "num_generations_eval")):
            self._counts_passes = False
            warn(f"pass@k is not logged, because {lacks}")

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """Trainer.evaluate, which calls itself for each set of a dict, with the prefix eval_NAME."""
        self._set = metric_key_prefix.removeprefix("eval_") + "/" if metric_key_prefix.startswith("eval_") else ""
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def _calculate_rewards(self, inputs: Any, prompts: Any, *args: Any, **kwargs: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, *args, **kwargs)
        if not self._counts_passes:
            return rewards
        mode, of_set = ("train", "") if self.model.training else ("eval", self._set)
        size = self.num_generations if mode == "train" else self.num_generations_eval
        problems = gather_object([str(prompt) for prompt in prompts])[::size]
        for name, column in zip(self.reward_func_names, rewards.detach().cpu().unbind(1), strict=True):
            ledger = self._ledgers.setdefault((mode, of_set + name), Ledger({}))
            for measure, value in passes(column.view(-1, size), problems, ledger).items():
                self._metrics[mode][f"{of_set}rewards/{name}/{measure}"].append(value)
        return rewards


def passes(rewards: Tensor, problems: Sequence[str], ledger: Ledger) -> dict[str, float]:
    """What `PassAtKMixin` logs, from rewards [groups, responses] of these problems; NaN is a response without a score.
    Empty if a reward is neither 0 nor 1. The ledger takes the groups into account."""
    scored = ~rewards.isnan()
    if not ((rewards == 0) | (rewards == 1) | ~scored).all():
        return {}
    judged, correct = scored.sum(1).tolist(), (rewards == 1).sum(1).tolist()
    lost = ledger.note(list(zip(problems, correct, judged, strict=True)))["coverage/lost"]
    shares = coverage_shares(judged, correct)
    return shares and shares | {"lost": lost}
