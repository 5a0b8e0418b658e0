# pyright: reportMissingImports=false
"""Which members of TRL are used, and whether the installed version has them. TRL publishes every two weeks, and most of
what a trainer can extend there is private; so members are looked for, and no version is refused by its number."""

import inspect
from collections.abc import Mapping, Sequence

import trl
from trl import GRPOTrainer

LOGPROBS = {
    "_get_per_token_logps_and_entropies": (
        *("model", "input_ids", "attention_mask", "logits_to_keep"),
        *("batch_size", "compute_entropy", "compute_aux_loss"),
    )
}
SHARED_PREFIX = LOGPROBS | {
    "_prepare_inputs": ("generation_batch",),
    "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields"),
}
REWARDS = {"_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list")}
ADVANTAGES = REWARDS | {"_generate_and_score_completions": ("inputs",)}
REHEARSAL = LOGPROBS | {"_compute_loss": ("model", "inputs")}
BANK = ADVANTAGES | {
    "_save_checkpoint": ("model", "trial"),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_get_output_dir": ("trial",),
}
"""Methods of GRPOTrainer that each extension overrides or calls, with the names of their first arguments."""


def missing(methods: Mapping[str, Sequence[str]], trainer: GRPOTrainer, attributes: Sequence[str]) -> str | None:
    """The methods of an extension and the attributes of a trainer that this version of TRL lacks, in words; None if it
    has all."""
    for name, wanted in methods.items():
        method = getattr(GRPOTrainer, name, None)
        arguments = [] if method is None else list(inspect.signature(method).parameters)[1:]
        if arguments[: len(wanted)] != list(wanted):
            return f"TRL {trl.__version__} has no GRPOTrainer.{name}({', '.join(wanted)})"
    absent = next((name for name in attributes if not hasattr(trainer, name)), None)
    return absent and f"TRL {trl.__version__} has no GRPOTrainer.{absent}"
