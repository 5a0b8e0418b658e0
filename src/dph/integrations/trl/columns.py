# pyright: reportMissingImports=false
"""The first rows of a data set, tried with this package's reward functions before anything is generated."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from trl import GRPOTrainer

from dph.errors import UserError

_ROWS = 8


class CheckedRewardsMixin(GRPOTrainer):
    """Tries the first rows of the data sets with the reward functions that can say what they need (`check_rows`), as
    those of `dph.rewards` and `VerifierReward` can. Raises UserError for a column that is missing or cannot be used,
    and if none of these rows can be judged: GRPOTrainer finds that after it has generated, or never."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, dataset in {"train_dataset": self.train_dataset, **_evaluated(self.eval_dataset)}.items():
            rows = first_rows(dataset)
            for reward in self.reward_funcs if rows else ():
                if check := getattr(reward, "check_rows", None):
                    try:
                        check(rows)
                    except UserError as error:
                        raise UserError(f"{name} does not fit its reward function: {error}") from error


def _evaluated(given: Any) -> dict[str, Any]:
    """The data sets of evaluation by what their users call them; transformers takes one, or several by name."""
    if isinstance(given, Mapping):
        return {f"eval_dataset {name!r}": dataset for name, dataset in given.items()}
    return {"eval_dataset": given}


def first_rows(dataset: Any) -> list[Mapping[str, Any]]:
    """The first rows of a data set; none of one without a length, which may be read once only."""
    if dataset is None or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        return []
    rows = islice((dataset[index] for index in range(len(dataset))), _ROWS)
    return [row for row in rows if isinstance(row, Mapping)]
