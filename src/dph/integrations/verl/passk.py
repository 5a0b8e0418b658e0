# pyright: reportMissingImports=false
"""Unbiased pass@k in verl's validation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dph.evaluation.passk import pass_at_powers

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer as _Trainer
else:
    _Trainer = object


class PassAtKMixin(_Trainer):
    """Logs `val-core/SOURCE/NAME/pass@K` for K = 2, 4, … up to the number of responses, for each data source.

    verl's `best@K/mean` draws K of a problem's responses with replacement and so estimates less than pass@K, the
    probability that one of K responses is correct. NAME is verl's core variable: `acc`, or `reward` without it. A data
    source gets these numbers if all of its values are 0 or 1. A problem counts if it has at least K values (None is
    none).
    """

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        reward_extra_infos_dict: Mapping[str, Sequence[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        found = super()._val_metrics_update(data_sources, sample_uids, reward_extra_infos_dict, *args, **kwargs)
        return {**found, **validation_passes(data_sources, sample_uids, reward_extra_infos_dict)}


def validation_passes(
    sources: Sequence[str], problems: Sequence[str], values: Mapping[str, Sequence[Any]]
) -> dict[str, float]:
    """Mean pass@k by verl's name of it.

    Args:
        sources, problems: data source, and id of the problem, of each response.
        values: by name, a value for each response.
    """
    found: dict[str, float] = {}
    for source in dict.fromkeys(sources):
        own = [index for index, other in enumerate(sources) if other == source]
        name = "acc" if any(values["acc"][index] is not None for index in own if "acc" in values) else "reward"
        groups: dict[str, list[float]] = {}
        for index in own:
            if values[name][index] is not None:
                groups.setdefault(problems[index], []).append(float(values[name][index]))
        if all(value in (0, 1) for group in groups.values() for value in group):
            counts = [(len(group), int(sum(group))) for group in groups.values()]
            passes = pass_at_powers(*zip(*counts, strict=True)) if counts else {}
            found |= {f"val-core/{source}/{name}/pass@{k}": value for k, value in passes.items()}
    return found
