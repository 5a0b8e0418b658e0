# pyright: reportMissingImports=false
"""TRL's settings and the rehearsal term's."""

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, get_type_hints

from trl import GRPOConfig

from dph.config import LossConfig, RehearsalTerm, field_docs, from_dict
from dph.errors import UserError
from dph.objective import Objective

_AGGREGATIONS = {
    **dict.fromkeys(("dapo", "cispo", "vespo"), "token"),
    **dict.fromkeys(("grpo", "sapo"), "sequence"),
    "dr_grpo": "dr_grpo",
}
"""Our name for how each loss type of TRL averages. bnpo and luspo divide by the tokens or rows of a micro-batch."""

_TERM = {one.name: one.name for one in fields(RehearsalTerm)} | {"alpha": "divergence_alpha"}
"""TRL's name for each field of the rehearsal term: among TRL's many settings, `alpha` alone would say too little."""
for _name in ("estimator", "js_scale", "js_ratio", "divergence_options"):
    del _TERM[_name]  # JS by its definition needs log π_ref of the rollouts; TRL's parser takes no tables


_types, _texts = get_type_hints(RehearsalTerm), field_docs(RehearsalTerm)
_TermFields: Any = make_dataclass(
    "_TermFields",
    [
        (_TERM[one.name], _types[one.name], field(default=one.default, metadata={"help": _texts[one.name]}))
        for one in fields(RehearsalTerm)
        if one.name in _TERM
    ],
)


@dataclass
class DPHConfig(_TermFields, GRPOConfig):
    """GRPOConfig and the rehearsal term (see `dph.config.RehearsalTerm`). TRL's settings keep their defaults."""

    rehearsal_rows: int | None = field(
        default=None,
        metadata={"help": "Stored responses per optimizer step, over all processes; one per 8 rollouts if None."},
    )
    rehearsal_check_rows: int = field(
        default=8,
        metadata={"help": "Stored responses whose log-probabilities are recomputed at the start; 0 skips the check."},
    )
    rehearsal_check_tokens: int = field(
        default=4096,
        metadata={"help": "Tokens, padding included, that this check passes through the model at once."},
    )
    bank: str = field(
        default="",
        metadata={
            "help": "The bank: keep and rehearse one correct response of each way to solve a problem that training "
            "finds. What counts as one way: style, answer, text, tokens, once, every, or a key of a plug-in."
        },
    )
    bank_capacity: int = field(default=16, metadata={"help": "Most ways of a problem in the bank."})
    bank_correct_from: float | None = field(
        default=None,
        metadata={
            "help": "The weighted sum of rewards from which on a response is correct and admitted to the bank; 1 if "
            "None, and then rewards between 0 and 1 are refused."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_type not in _AGGREGATIONS:
            raise UserError(
                f"loss_type {self.loss_type!r} has no fixed denominator to share with rehearsal; choose one of "
                f"{', '.join(sorted(_AGGREGATIONS))}"
            )
        if self.rehearsal_rows is not None and self.rehearsal_rows < 0:
            raise UserError(f"rehearsal_rows is {self.rehearsal_rows}; it must be 0 or more")
        if self.rehearses and self.eta == 0:
            raise UserError(
                "eta is 0, so stored responses would have no effect; set eta above 0, or rehearsal_rows to 0"
            )
        if self.bank:
            self._check_bank()
        if self.rehearsal_check_tokens < 1:
            raise UserError(f"rehearsal_check_tokens is {self.rehearsal_check_tokens}; it must be at least 1")
        Objective(self.loss_config())

    def _check_bank(self) -> None:
        if not self.rehearses:
            raise UserError(f"bank is {self.bank!r}, but rehearsal_rows is 0, so nothing is taken from it; change one")
        if self.bank_capacity < 1:
            raise UserError(f"bank_capacity is {self.bank_capacity}; it must be at least 1")

    @property
    def rehearses(self) -> bool:
        """Whether stored responses take part in the updates."""
        return self.rehearsal_rows != 0

    def loss_config(self) -> LossConfig:
        """The rehearsal term in this package's settings. Raises UserError for a value that a setting cannot take."""
        term = {ours: getattr(self, theirs) for ours, theirs in _TERM.items()}
        denominators = {
            "aggregation": _AGGREGATIONS[self.loss_type],
            "dr_grpo_length": self.max_completion_length or 1,
        }
        return from_dict(LossConfig, term | denominators, "the settings of DPHConfig")
