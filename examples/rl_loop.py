"""DPH-JS from top to bottom, in one loop with the parts of this package: the file to read first.

    python examples/rl_loop.py [FOLDER]     makes a base model and a rehearsal set for Countdown, and trains

Departures from GRPO (arXiv 2402.03300), in the order in which they occur:

* Problems are split before training: those that the base model masters (D_pef) are not sampled any more.
* A response whose judging failed leaves its group. It does not count as wrong.
* Stored correct responses of the base model to the problems of D_pef join every mini-batch. They cost η·f(u), a
  divergence from the base model, in place of a KL penalty on rollouts. No reference model is in memory.
* The clip is asymmetric (0.2, 0.28), and each set has the mean over all of its tokens, not over responses.

`dph train` takes the same step (src/dph/training/loop.py). It adds several mini-batches and processes, DAPO's refill,
other engines and precisions, checkpoints from which an interrupted run continues, guards, and an evaluation in between.

Names of nested lists and tensors end with their dimensions:

    P   prompts of a step          R   stored responses of a step
    G   responses to a prompt      B   rows of a micro-batch      T   tokens of a response
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from dph.build import load_problems, make_verifiers
from dph.cli.main import main
from dph.config import (
    LossConfig,
    ModelConfig,
    OptimConfig,
    RehearsalConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
)
from dph.models.batch import by_prompt
from dph.models.policy import Policy
from dph.objective import Objective, group_advantages
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import RehearsalSet
from dph.sampling.generate import HFSampler
from dph.sampling.rollouts import encode_problems, usable_problems
from dph.sampling.seeding import EpochOrder, derive_key
from dph.training.optim import Optimizer
from dph.training.rows import Row, batches, rehearsal_row
from dph.training.update import count_rows


def train(config: TrainConfig) -> Iterator[dict[str, float]]:
    """Take the steps that the settings ask for; yields the metrics of each."""
    rollout, seed = config.rollout, config.seed
    presampled = Presampled.open(Path(config.rehearsal.path))
    policy = Policy.load(config.model, seed)
    sampler = HFSampler(policy)
    objective = Objective(config.loss)
    optimizer = Optimizer(policy.trainable(), config.optim, config.steps)
    rehearsal = RehearsalSet(presampled.stored, seed)  # D_pef, in an endless order
    with make_verifiers(config.verifier) as verifiers:
        _, problems = load_problems(config.task)
        problems = presampled.training_problems(config.task, "explore", problems)  # D_exp
        problems = usable_problems(verifiers, problems)
        prompts = encode_problems(policy, problems, rollout, rollout.max_prompt_tokens)
        order = EpochOrder(len(prompts), seed, "explore")
        for step in range(config.steps):
            # Draw. All randomness is a function of the seed and of the position in the endless order of prompts: no
            # generator's state is kept, and a response does not depend on the batch that it is sampled in.
            positions_P = range(step * rollout.prompts, (step + 1) * rollout.prompts)
            prompts_P = [prompts[order.item(position)] for position in positions_P]
            keys_P = [
                derive_key(seed, "train", position, prompt.problem.id)
                for position, prompt in zip(positions_P, prompts_P, strict=True)
            ]
            # The sampler returns each token with its log-probability, log π_old, of the distribution before top-p.
            completions_PG = sampler.sample([prompt.prompt_ids for prompt in prompts_P], rollout.params(), keys_P)

            # Judge. A verdict has a reward and says whether the judging itself went well.
            judged = [
                (prompt.problem, policy.decode(completion.token_ids))
                for prompt, completions_G in zip(prompts_P, completions_PG, strict=True)
                for completion in completions_G
            ]
            verdicts = verifiers.verify(judged)
            rewards_PG = torch.tensor([verdict.reward for verdict in verdicts]).view(-1, rollout.n)
            scored_PG = torch.tensor([verdict.scored for verdict in verdicts]).view(-1, rollout.n)

            # Shape: (r − mean) / std within the group, over the responses that could be judged.
            advantages_PG = group_advantages(rewards_PG, scored_PG)
            rows = [
                Row(prompt.prompt_ids, completion.token_ids, completion.logprobs, advantage=advantage)
                for prompt, completions_G, advantages_G, scored_G in zip(
                    prompts_P, completions_PG, advantages_PG.tolist(), scored_PG.tolist(), strict=True
                )
                for completion, advantage, scored in zip(completions_G, advantages_G, scored_G, strict=True)
                if scored
            ]

            # Take stored responses: nothing to sample or judge. Their rows hold log π_ref, which was computed when they
            # were stored, and say that they belong to D_pef.
            stored_R = rehearsal.take(step * config.rehearsal.rows, config.rehearsal.rows)
            rows += [rehearsal_row(stored) for stored in stored_R]

            # Update. The denominators are those of the whole mini-batch, so that its cut into micro-batches does not
            # matter. The rows of a prompt stay together: a micro-batch computes the prompt once for all of them.
            counts, total = count_rows(rows), 0.0
            for _, batch in batches(policy, by_prompt(rows), config.optim.tokens_per_microbatch):
                logprobs_BT, _ = policy.logprobs(batch, rollout.temperature)
                loss, _ = objective(logprobs_BT, batch, counts)
                loss.backward()
                total += loss.item()
            norm = optimizer.step()  # clips, sets the learning rate of the step, and clears the gradients

            # Record.
            judged_count = max(1, int(scored_PG.sum()))
            correct = sum(verdict.correct for verdict in verdicts if verdict.scored)
            reward = float(rewards_PG[scored_PG].sum()) / judged_count
            yield {
                "reward": reward,
                "pass_rate": correct / judged_count,
                "loss": total,
                "grad_norm": norm,
                "lr": optimizer.lr,
            }


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/rl_loop")
    base, sampled = folder / "base", folder / "presample"
    main(["sft", "--preset", "countdown", "--resume", "--out", str(base)])
    main(["presample", "--preset", "countdown", "--resume", "--model.path", f"{base}/model", "--out", str(sampled)])
    config = TrainConfig(  # as in the presets countdown and dph_js, but for one update a step in place of two
        steps=40,
        model=ModelConfig(path=str(base / "model"), device="cpu", precision="fp32"),
        task=TaskConfig(name="countdown"),
        rollout=RolloutConfig(prompts=8, n=16, max_tokens=24, max_prompt_tokens=32),
        rehearsal=RehearsalConfig(path=str(sampled), rows=16),
        loss=LossConfig(divergence="js", eta=0.6, reduction="per_set"),
        optim=OptimConfig(lr=1e-4, warmup_steps=10, beta2=0.99, weight_decay=0.0, tokens_per_microbatch=4096),
    )
    for number, metrics in enumerate(train(config), 1):
        print(f"step {number:3}", *(f"{name} {value:.4f}" for name, value in metrics.items()), sep="  ")
