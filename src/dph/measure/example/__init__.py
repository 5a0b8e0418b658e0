"""Counts of a public pair of models, which `dph passk --example` compares; LICENSE names their origin."""

from pathlib import Path

__all__ = ["ABOUT", "FILES"]

FILES = tuple(Path(__file__).with_name(name) for name in ("base.csv", "rl.csv"))
"""The model before and after its training: 1,060 problems, 128 samples of each."""
ABOUT = (
    "counts of 1,060 problems of mathematics, 128 samples each: base.csv of DeepSeek-R1-Distill-Qwen-1.5B, rl.csv of "
    "DeepScaleR-1.5B-Preview, which was trained from it (Yang, Zhang and Chen, arXiv 2609.22547; MIT license). Their "
    "own band finds pass@k higher for k = 1–10 and lower for 61–128, and the first loss between 11 and 61"
)
