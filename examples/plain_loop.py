"""DPH-JS in a plain torch loop: a policy that learns prompt 1 does not forget prompt 0."""

import torch

from dph.config import LossConfig
from dph.objective import LossCounts, Objective, TokenBatch, group_advantages

PROMPTS = torch.tensor([[1.0, 0.3], [0.3, 1.0]])  # features of two prompts; learning one changes the other
CORRECT = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])  # [prompts, answers]; an answer is one token


def train(eta: float, steps: int = 300) -> list[float]:
    """Probability of a correct answer to each prompt after training with rehearsal strength η."""
    torch.manual_seed(0)
    weight = torch.tensor([[3.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    optimizer, objective = torch.optim.Adam([weight], lr=0.05), Objective(LossConfig(divergence="js", eta=eta))
    ref = (PROMPTS @ weight.detach()).log_softmax(-1)
    stored = torch.multinomial(ref[0].exp() * CORRECT[0], 16, replacement=True)  # D_pef: π_ref's correct answers
    is_rehearsal = torch.arange(16 + 16) >= 16
    for _ in range(steps):
        old = (PROMPTS @ weight.detach()).log_softmax(-1)
        answers = torch.multinomial(old[1].exp(), 16, replacement=True)  # D_exp: a group of answers to prompt 1
        advantages = group_advantages(CORRECT[1, answers][None], torch.ones(1, 16, dtype=torch.bool))[0]
        chosen = (~is_rehearsal).long(), torch.cat([answers, stored])
        batch = TokenBatch(
            old_logprobs=old[chosen][:, None],  # [B, T]: here T = 1
            ref_logprobs=ref[chosen][:, None],
            response_mask=torch.ones(32, 1),
            advantages=torch.cat([advantages, torch.zeros(16)]),
            is_rehearsal=is_rehearsal,
        )
        loss, _ = objective((PROMPTS @ weight).log_softmax(-1)[chosen][:, None], batch, LossCounts.of(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return ((PROMPTS @ weight.detach()).softmax(-1) * CORRECT).sum(-1).tolist()


if __name__ == "__main__":
    print("without rehearsal:", train(eta=0.0), "with:", train(eta=0.2))
