"""Tensors of a wrong shape or type are refused at the door of the objective: torch would broadcast most of them."""

from dataclasses import replace

import pytest
import torch

from dph.config import LossConfig
from dph.objective import LossCounts, Objective, TokenBatch

ROWS, STEPS = 2, 3
LOGPROBS = torch.full((ROWS, STEPS), -0.5)
BATCH = TokenBatch(
    old_logprobs=LOGPROBS,
    ref_logprobs=LOGPROBS,
    response_mask=torch.ones(ROWS, STEPS),
    advantages=torch.tensor([1.0, -1.0]),
    is_rehearsal=torch.tensor([False, True]),
    selected=torch.ones(ROWS, STEPS, dtype=torch.bool),
)

WRONG = {
    # without a check, torch broadcasts the first four, and the result is a number
    "old_logprobs": (torch.zeros(1, STEPS), "a float tensor [B, T] = [2, 3], but is float32 [1, 3]"),
    "ref_logprobs": (torch.zeros(ROWS, 1), "a float tensor [B, T] = [2, 3], but is float32 [2, 1]"),
    "response_mask": (torch.ones(1, STEPS), "a tensor [B, T] = [2, 3], but is float32 [1, 3]"),
    "advantages": (
        torch.zeros(1, STEPS),
        "a float tensor [B] = [2] or [B, T] = [2, 3], but is float32 [1, 3]",
    ),
    "is_rehearsal": (torch.tensor([0, 1]), "a bool tensor [B] = [2], but is int64 [2]"),
    "selected": (torch.ones(ROWS, dtype=torch.bool), "a bool tensor [B, T] = [2, 3], but is bool [2]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_tensor_of_a_batch_with_another_shape_or_type_is_refused(name: str) -> None:
    tensor, wanted = WRONG[name]
    batch = replace(BATCH, **{name: tensor})
    with pytest.raises(ValueError) as caught:
        Objective(LossConfig())(LOGPROBS, batch, LossCounts.of(BATCH))
    assert str(caught.value) == f"{name} must be {wanted}"


def test_log_probabilities_and_what_is_given_beside_the_batch_are_checked_too() -> None:
    objective, counts = Objective(LossConfig()), LossCounts.of(BATCH)
    with pytest.raises(ValueError, match=r"^logprobs must be a float tensor \[B, T\], but is float32 \[3\]$"):
        objective(LOGPROBS[0], BATCH, counts)
    with pytest.raises(ValueError, match=r"^entropy must be a float tensor \[B, T\] = \[2, 3\], but is float32 \[2\]$"):
        objective(LOGPROBS, BATCH, counts, entropy=torch.zeros(ROWS))
    with pytest.raises(ValueError, match=r"^importance must be .* \[2, 3\], but is float32 \[3\]$"):
        objective(LOGPROBS, BATCH, counts, importance=torch.ones(STEPS))


def test_every_documented_shape_is_taken() -> None:
    objective, counts = Objective(LossConfig()), LossCounts.of(BATCH)
    loss, _ = objective(LOGPROBS, BATCH, counts)
    by_token = replace(BATCH, advantages=BATCH.advantages[:, None].expand(ROWS, STEPS))
    assert torch.equal(objective(LOGPROBS, by_token, counts)[0], loss)
    for mask in (BATCH.response_mask.bool(), BATCH.response_mask.long()):
        assert torch.equal(objective(LOGPROBS, replace(BATCH, response_mask=mask), counts)[0], loss)
