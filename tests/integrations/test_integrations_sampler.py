"""The gate on a trainer's sampler, on worked numbers."""

import math

import pytest
import torch

from dph.errors import UserError
from dph.integrations.sampler import check_sampler


def test_the_line_has_the_mean_and_the_largest_difference_and_ratio() -> None:
    # Differences of log 2, −0.1 and 0: mean (log 2 + 0.1) / 3 = 0.2644
    line = check_sampler(torch.tensor([-1.0, -1.0, -3.0]), torch.tensor([math.log(2) - 1, -1.1, -3.0]), 0.27)
    assert "0.2644 nats" in line and "largest 0.693" in line and "ratio 2.000" in line


@pytest.mark.parametrize("wrong", [-1.3, math.nan])
def test_a_sampler_that_is_further_than_rounding_explains_is_refused(wrong: float) -> None:
    trained = torch.full((4,), -1.0)
    with pytest.raises(UserError, match="is given the trained adapters"):
        check_sampler(torch.tensor([-1.0, -1.0, -1.0, wrong]), trained, 0.05)
    assert check_sampler(torch.full((4,), -1.04), trained, 0.05)
