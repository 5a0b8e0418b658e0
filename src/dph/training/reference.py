"""The reference policy π_ref during training, for what needs its log-probabilities on rollouts."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from dph.models.batch import Tokens
from dph.models.policy import Policy


class Reference:
    """π_ref: a model of its own or, for a policy with adapters, the policy with its adapters switched off."""

    def __init__(self, policy: Policy, own: Policy | None, temperature: float, token_budget: Callable[[], int]) -> None:
        """
        Args:
            policy: the policy that is trained.
            own: a separate reference model; None where the policy has adapters.
            temperature: logits are divided by it, as in sampling.
            token_budget: returns the tokens per micro-batch, which training halves once where memory runs out.
        """
        self._policy, self._own = policy, own
        self._temperature, self._token_budget = temperature, token_budget

    def logprobs(self, rows: Sequence[Tokens]) -> list[list[float]]:
        """log π_ref of every response token of every row, in nats."""
        inside: AbstractContextManager[object] = nullcontext() if self._own is not None else self._policy.reference()
        with inside:
            policy = self._own or self._policy
            return policy.response_logprobs(rows, self._temperature, self._token_budget()) if rows else []
