# pyright: reportMissingImports=false
"""Certificates for any trainer of TRL that trains in one process."""

from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from dph.config import CertifyConfig, ModelConfig, SamplerConfig
from dph.engine import CertificationSet, Certifier, Policy, World, make_sampler, make_verifiers, save_with_card
from dph.errors import SettingsError
from dph.verifiers import Verifiers


class CertifyCallback(TrainerCallback):
    """Checks the trained model on the certification set of a presample run, as `dph train` does: certificates go to the
    logs and to certificate.jsonl, the last certified model to `certified`, in the trainer's output_dir. Its prompts
    must not be in the training set; `exploration_set` leaves them out."""

    def __init__(self, config: CertifyConfig, verifiers: Verifiers | None = None) -> None:
        """config: `set` is the presample run, of the model that training begins with. verifiers: judge the samples; by
        default the presample run's. Raises UserError as `CertificationSet.open` does."""
        self._held, self._due = CertificationSet.open(config), {"every": config.every, "stop": config.stop}
        if verifiers is None and self._held.made.reward.function:
            raise SettingsError(f"{config.set} judges by a reward function; name it: make_verifiers(…, function=…)")
        self._verifiers = verifiers or make_verifiers(self._held.made.verifier)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare the model with the presample run's, and read earlier checks of a resumed run."""
        if args.world_size > 1:
            raise SettingsError("CertifyCallback works in one process; certify saved checkpoints with `dph certify`")
        precision = "bf16" if args.bf16 or args.fp16 else "fp32"
        how = {"precision": precision, "rendering": self._held.rendering}
        policy = Policy(kwargs["model"], kwargs["processing_class"], **how)
        self._held.check(policy, base=state.global_step == 0)
        run, longest = Path(args.output_dir), self._held.made.rollout.longest
        run.mkdir(parents=True, exist_ok=True)
        self._sampler = make_sampler(SamplerConfig(), policy, ModelConfig(), longest, training=True)
        evaluator = self._held.evaluator(policy, self._sampler, self._verifiers)
        save = partial(save_with_card, None, policy.save)
        self._certifier = Certifier(run, self._held, evaluator, World(), save, state.global_step or -1, **self._due)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the model if it is due; may end the training."""
        if self._certifier.due(state.global_step):
            state.log_history.append(self._certifier.check(state.global_step) | {"step": state.global_step})
            control.should_training_stop |= self._certifier.ended

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the sampler and the verifiers' processes."""
        self._sampler.close()
        self._verifiers.close()
