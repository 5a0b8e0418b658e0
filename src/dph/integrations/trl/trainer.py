# pyright: reportMissingImports=false
"""TRL's GRPO trainer with rehearsal. It overrides TRL's `_compute_loss`, and adds to its result:

    pooled:   L = N_exp/(N_exp + N_pef) · L_TRL  +  η/(N_exp + N_pef) · Σ_{D_pef} f(u)
    per_set:  L = L_TRL                          +  η/N_pef · Σ_{D_pef} f(u)

N counts tokens of an optimizer step (sequences, if TRL's loss type averages sequences), over its micro-batches and
all processes. A row of the bank counts as often as its weight says (`dph.rehearsal.bank`). N_exp is TRL's own
denominator. TRL's own method computes the log-probabilities of the stored responses, so temperature, precision,
adapters, FSDP and DeepSpeed are TRL's.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from dph.engine import (
    Policy,
    Presampled,
    Rehearsal,
    RehearsalSet,
    Rendering,
    Row,
    check_fit,
    check_start,
    collate,
    count_rows,
    date_sentence,
    dated_template,
    even_weights,
    rehearsal_row,
    template_of,
    warn,
)
from dph.errors import UserError
from dph.integrations.trl.bank import TrainerBank
from dph.integrations.trl.config import DPHConfig
from dph.integrations.trl.members import BANK, REHEARSAL, missing
from dph.integrations.trl.rewards import AdvantageMixin, PassAtKMixin
from dph.integrations.trl.sampling import drawn_by, reshaped
from dph.integrations.trl.shared_prefix import SharedPrefixMixin, padded_rows
from dph.objective import Objective, mean_metrics


class DPHTrainer(SharedPrefixMixin, AdvantageMixin, PassAtKMixin, GRPOTrainer):
    """GRPOTrainer with rehearsal of stored responses of the reference policy, shared prompts, this package's
    advantages, and pass@k in logs."""

    def __init__(
        self, *args: Any, rehearsal_set: str | Path | Sequence[Rehearsal] | None = None, **kwargs: Any
    ) -> None:
        """rehearsal_set: stored responses, or the run directory of a `dph presample` with the model that training
        starts from; not used if rehearsal_rows is 0. With a bank (`DPHConfig.bank`), the responses with which the bank
        begins; None for an empty bank. Raises UserError for a run directory that was made with another
        model, tokenizer, sampling distribution, or variables of the chat template.

        A chat template that writes today's date writes the run directory's, or that of `dph.config.ModelConfig`."""
        super().__init__(*args, **kwargs)
        if not isinstance(self.args, DPHConfig):
            raise UserError("DPHTrainer takes its settings as a DPHConfig; give it args=DPHConfig(…)")
        self._objective = Objective(self.args.loss_config())
        self._rendering = Rendering(variables=self.args.chat_template_kwargs or {})
        self._bank: TrainerBank | None = None
        if not self.args.rehearses:
            return self._fix_date()
        if lacks := missing(REHEARSAL, self, ("_metrics", "_tokenizer")):
            raise UserError(f"stored responses cannot be trained on, because {lacks}; install TRL 1.16")
        if rehearsal_set is None and not self.args.bank:
            raise UserError(
                "DPHTrainer needs a rehearsal_set; give it the run directory of `dph presample`, or rehearsal_rows=0"
            )
        run, stored = None, rehearsal_set
        if isinstance(stored, str | Path):
            run = Path(stored)
            stored = self._open(run)
        self._fix_date()
        if stored is not None and not stored:
            raise UserError("the rehearsal set is empty; give it stored responses, or set rehearsal_rows to 0")
        if self.args.bank:
            self._bank = self._open_bank(stored or [], run)
        else:
            self._rehearsal = RehearsalSet(stored or [], self.args.seed)
        self._micro_step, self._micro = -1, 0
        """The step that the last micro-batch belonged to, and the number of that step's micro-batches so far."""
        self._step_rows: list[Row] = []
        self._sums: dict[str, Tensor] = {}

    def _open(self, path: Path) -> Sequence[Rehearsal]:
        """The stored responses of a presample run, checked against this model and its sampling."""
        presampled = Presampled.open(path)
        stored = presampled.stored
        if setting := reshaped(self):
            raise UserError(
                f"the rehearsal set of {path} was sampled from the model's distribution with its sampling parameters, "
                f"but {setting} makes this trainer sample from another; leave it out, or train without stored "
                "responses (rehearsal_rows=0)"
            )
        self._rendering = replace(self._rendering, date=Rendering.recorded(presampled.run.manifest).date)
        model, precision = self.accelerator.unwrap_model(self.model), "fp32"
        if self.args.bf16 or self.args.fp16:
            precision = "bf16"
        policy = Policy(model, self._tokenizer, precision=precision, rendering=self._rendering)
        drawn = drawn_by(self)
        check_fit(presampled.run, policy, drawn, same_weights=False)
        if count := min(self.args.rehearsal_check_rows, len(stored)):
            check_start(presampled, policy, drawn, count, self.args.rehearsal_check_tokens)
        return stored

    def _open_bank(self, stored: Sequence[Rehearsal], run: Path | None) -> TrainerBank:
        if lacks := missing(BANK, self, ("eos_token_ids", "reward_weights", "reward_funcs", "tools")):
            raise UserError(f"the bank cannot see what is generated, because {lacks}; install TRL 1.16")
        bank = TrainerBank(self, stored, run)
        self.add_callback(bank)
        return bank

    def _fix_date(self) -> None:
        """Let TRL render prompts with one date, if the chat template writes today's."""
        template = getattr(self, "chat_template", None) or template_of(self.processing_class)
        if (dated := dated_template(template, self._rendering.date)) == template:
            return
        if lacks := missing({}, self, ("chat_template",)):
            return warn(f"prompts hold the date of the day on which they are rendered, because {lacks}")
        self.chat_template = dated  # which TRL hands to apply_chat_template
        warn(date_sentence(self._rendering, "in place of the day's, as in the rehearsal set"))

    def stored_rows(self, step: int, rollouts: int) -> list[Rehearsal]:
        """The stored responses of an optimizer step, over all processes: a function of the seed and the step alone or,
        with a bank, of the bank; one for eight of the step's rollouts if `rehearsal_rows` is None."""
        rows = self.args.rehearsal_rows or math.ceil(rollouts / 8)
        return self._bank.draw(rows) if self._bank else self._rehearsal.take(step * rows, rows)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: list[list[int]], *args: Any
    ) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list, *args)
        if self._bank and self.model.training:
            self._bank.note_rewards(completion_ids_list, rewards)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self._bank and self.model.training:
            pairs = zip(output["prompt_ids"], output["prompt_mask"], strict=True)
            self._bank.see(inputs, (ids[mask.bool()].tolist() for ids, mask in pairs))
        return output

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._bank and self.args.should_save:  # first, because a checkpoint is whole when its last file is written
            self._bank.save(Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}")
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self._bank and checkpoint is not None:
            self._bank.restore(Path(checkpoint))

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss = super()._compute_loss(model, inputs)
        if not self.args.rehearses or not self.model.training:
            return loss
        processes, steps = self.accelerator.num_processes, self.current_gradient_accumulation_steps
        if self.state.global_step != self._micro_step:
            self._micro_step, self._micro = self.state.global_step, 0
            stored = self.stored_rows(self._micro_step, steps * processes * len(inputs["advantages"]))
            weights = even_weights([row.problem_id for row in stored]) if self._bank else [1.0] * len(stored)
            self._step_rows = [rehearsal_row(row, weight) for row, weight in zip(stored, weights, strict=True)]
        if not self._step_rows:  # the bank is empty still
            return loss
        rows = self._step_rows[self.accelerator.process_index * steps + self._micro :: processes * steps]
        self._micro += 1
        counts = replace(
            count_rows(self._step_rows),
            exp_tokens=float(inputs["num_items_in_batch"]) * steps / self.args.steps_per_generation,
            exp_sequences=float(len(inputs["advantages"]) * steps * processes),
        )
        # Every process runs the model equally often; with FSDP the others would wait for one that has no row left.
        rows, device = rows or [replace(self._step_rows[0], weight=0.0)], self.accelerator.device
        padded = padded_rows(rows, self._tokenizer.pad_token_id, device)
        logprobs, *_ = self._get_per_token_logps_and_entropies(model, *padded)
        batch = collate(rows, device)
        rehearsal, sums = self._objective(logprobs, batch, counts)
        self._note(sums)
        exp_count = counts.exp_tokens if self._objective.config.aggregation == "token" else counts.exp_sequences
        w_exp, *_ = self._objective.weights(counts)
        return w_exp * exp_count * loss + processes * rehearsal  # gradients are averaged over processes

    def _note(self, sums: dict[str, Tensor]) -> None:
        """Add up the sums of a step's micro-batches; after the last one, log the means over all processes."""
        for name, value in sums.items():
            if name.startswith("pef/"):
                self._sums[name] = self._sums[name] + value if name in self._sums else value
        if not self.accelerator.sync_gradients:
            return
        total = self.accelerator.reduce(torch.stack(list(self._sums.values())), reduction="sum")
        for name, value in mean_metrics(dict(zip(self._sums, total, strict=True))).items():
            self._metrics["train"][name].append(value)
        self._sums = {}
