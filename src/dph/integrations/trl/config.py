# pyright: reportMissingImports=false
"""TRL's settings with those of the rehearsal loss."""

from dataclasses import dataclass, field

from trl import GRPOConfig

from dph.config.schema import LossConfig
from dph.errors import UserError
from dph.objective import Objective

_AGGREGATIONS = {
    **dict.fromkeys(("dapo", "cispo", "vespo"), "token"),
    **dict.fromkeys(("grpo", "sapo"), "sequence"),
    "dr_grpo": "dr_grpo",
}
"""How a loss type of TRL's weighs tokens, in our terms. bnpo and luspo divide by what a micro-batch happens to hold."""


@dataclass
class DPHConfig(GRPOConfig):
    """GRPOConfig and the rehearsal term; everything of TRL's keeps TRL's defaults."""

    divergence: str = field(
        default="js",
        metadata={"help": "f-divergence to the reference on stored responses: js, forward_kl, alpha, reverse_kl …"},
    )
    divergence_alpha: float = field(default=0.5, metadata={"help": "α of the divergence called alpha, 0 < α < 1."})
    official: bool = field(
        default=False,
        metadata={"help": "Follow the authors' code where it departs from the paper (clamped forward KL)."},
    )
    eta: float = field(default=0.2, metadata={"help": "η, weight of the rehearsal term; 0 switches rehearsal off."})
    reduction: str = field(
        default="pooled",
        metadata={"help": "pooled: both sets over all their tokens; per_set: each set over its own tokens."},
    )
    rehearsal_rows: int | None = field(
        default=None,
        metadata={
            "help": "Stored responses per optimizer step, over all processes; by default one for eight rollouts."
        },
    )
    rehearsal_check_rows: int = field(
        default=8,
        metadata={"help": "Stored responses whose log-probabilities are computed again at the start; 0 skips it."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_type not in _AGGREGATIONS:
            known = ", ".join(sorted(_AGGREGATIONS))
            raise UserError(
                f"loss_type {self.loss_type!r} has no fixed denominator to share with rehearsal; choose one of {known}"
            )
        if self.reduction not in ("pooled", "per_set"):
            raise UserError(f"reduction is {self.reduction!r}; it must be 'pooled' or 'per_set'")
        if self.rehearsal_rows is not None and self.rehearsal_rows < 1:
            raise UserError(
                f"rehearsal_rows is {self.rehearsal_rows}; it must be at least 1 (eta=0 switches rehearsal off)"
            )
        Objective(self.loss_config())

    def loss_config(self) -> LossConfig:
        """The rehearsal term in this package's own settings. What belongs to the policy loss is TRL's business."""
        return LossConfig(
            aggregation=_AGGREGATIONS[self.loss_type],  # type: ignore[arg-type]
            dr_grpo_length=self.max_completion_length or 1,
            divergence=self.divergence,
            alpha=self.divergence_alpha,
            official=self.official,
            eta=self.eta,
            reduction=self.reduction,  # type: ignore[arg-type]
        )
