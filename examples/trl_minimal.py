"""GRPO in TRL, with rehearsal: python examples/trl_minimal.py MODEL PRESAMPLE_RUN OUT [PLUGIN …]."""

import sys

from transformers import AutoTokenizer

from dph.integrations.trl import DPHConfig, DPHTrainer, VerifierReward, exploration_set

model, run, out, *plugins = sys.argv[1:]
trainer = DPHTrainer(
    model=model,
    reward_funcs=VerifierReward(),
    args=DPHConfig(
        out,
        divergence="js",
        eta=0.2,
        learning_rate=1e-4,
        max_steps=20,
        per_device_train_batch_size=64,
        logging_steps=5,
        max_completion_length=8,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=exploration_set(run, AutoTokenizer.from_pretrained(model), plugins),
    rehearsal_set=run,
)
trainer.train()
