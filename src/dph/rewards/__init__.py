"""The verifiers as plain reward functions, for the trainers of others (docs/guides/rewards.md).

judge = reward_function("math", policy="strict")
judge(completions=[r"\\boxed{4}"], answer=["4"])      # [1.0]; None where the judging itself failed
await judge.ascore(r"\\boxed{4}", "4")                # 1.0
"""

from dph.rewards.judge import RewardFunction, reward_function

__all__ = ["RewardFunction", "reward_function"]
