"""From problems to judged groups of responses."""

__all__ = ["hf", "plain_decode", "protocol", "rollouts", "seeding", "shared_decode", "vllm"]
