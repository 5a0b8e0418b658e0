# pyright: reportMissingImports=false
"""Several turns with the SQL tool, adapters, shared prompts and long prompts in TRL, with a gate on the sampler.

    python examples/trl_tools.py MODEL PRESAMPLE_RUN OUT             # transformers samples
    python examples/trl_tools.py MODEL PRESAMPLE_RUN OUT --vllm      # vLLM does, on the same GPU

MODEL needs a chat template that calls tools, PRESAMPLE_RUN is a run of `dph presample` on SQL problems. A sampler that
returns log-probabilities, as vLLM does, is compared with the trainer before each update: one that computes with other
weights, for example without the newest adapters, is refused before it can train anything.
"""

import argparse
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from dph.config import VerifierConfig
from dph.integrations.sampler import check_sampler
from dph.integrations.trl import PassAtKMixin, SharedPrefixMixin, SqlEnvironment, VerifierReward, exploration_set
from dph.models.batch import Tokens
from dph.models.policy import Policy

ROWS = 8
"""Responses of each generation that are compared."""
TIMES = 3.0
"""The sampler may be this many times as far from fp32 as the trainer's own rounding to bf16 is."""


def check_gap(policies: list[Policy], rows: list[Tokens], sampled: list[list[float]], temperature: float) -> str:
    """Compare a sampler's log-probabilities with the trainer's. Returns the numbers as a line.

    policies: the trained model, computed in fp32 and in bf16.

    Raises UserError if the mean difference from fp32 is more than rounding to bf16 explains.
    """
    exact, rounded = (policy.response_logprobs(rows, temperature, 1 << 14) for policy in policies)
    # A response's tool results were not sampled, and have no log-probability
    kept = torch.tensor([value == value and value != 0 for row in sampled for value in row])
    values, truth, near = (
        torch.tensor([value for row in table for value in row])[kept] for table in (sampled, exact, rounded)
    )
    return check_sampler(values, truth, TIMES * float((near - truth).abs().mean()) + 1e-4)


class Trainer(SharedPrefixMixin, PassAtKMixin, GRPOTrainer):
    """TRL's trainer with shared prompts, pass@k, and the gate."""

    policies: list[Policy] | None = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        sampled = output.get("sampling_per_token_logps")
        if sampled is not None and self.model.training:
            parts = [(output[f"{name}_ids"], output[f"{name}_mask"].bool()) for name in ("prompt", "completion")]
            rows = [
                Tokens(*(ids[index][mask[index]].tolist() for ids, mask in parts))
                for index in range(min(ROWS, len(sampled)))
            ]
            own = output.get("tool_mask", parts[1][1]).bool()
            numbers = [
                (sampled[index] * own[index])[: len(row.response_ids)].tolist() for index, row in enumerate(rows)
            ]
            if self.policies is None:
                model = self.accelerator.unwrap_model(self.model)
                self.policies = [Policy(model, self.processing_class, precision=name) for name in ("fp32", "bf16")]
            print(check_gap(self.policies, rows, numbers, self.temperature))
        return output


def make(
    model: str, data: Any, out: str, tokenizer: Any, kind: type = Trainer, reward: str = "binary", **settings: Any
) -> Any:
    """The trainer of this example; reward: the scheme, of which `paper` pays for a query by the tool."""
    return kind(
        model=model,
        processing_class=tokenizer,
        reward_funcs=VerifierReward(VerifierConfig(reward=reward)),
        environment_factory=SqlEnvironment,
        train_dataset=data,
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", r=8),
        args=GRPOConfig(
            out,
            max_completion_length=1024,
            max_tool_calling_iterations=2,
            learning_rate=1e-5,
            logging_steps=1,
            **settings,
        ),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("run")
    parser.add_argument("out")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument(
        "--reward", default="binary", help="scheme of the SQL verifier; paper pays for a query by the tool"
    )
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    more = {"use_vllm": True, "vllm_mode": "colocate"} if args.vllm else {}
    trainer = make(
        *(args.model, exploration_set(args.run, tokenizer), args.out, tokenizer),
        max_steps=args.steps,
        use_cpu=args.cpu,
        reward=args.reward,
        **more,
    )
    trainer.train()
    print(trainer.shared_prefix_report())
