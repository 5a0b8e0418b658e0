"""Estimates of the paper's runs: memory and time per step by arithmetic, for experiments/results/gpu.md.

    python -m benchmarks.gpu.scale [--prompt 3000] [--response 400] [--rate 989] [--share 0.4]

Nothing is measured. Per token and parameter, the forward pass counts 2 operations, the backward pass 4 and recomputed
activations 2. A rate is the published peak of a GPU times an assumed share of it.
"""

from argparse import ArgumentParser
from dataclasses import dataclass, fields

from dph.config import ClusterConfig, OptimConfig, RolloutConfig, VerlConfig
from dph.errors import UserError
from dph.integrations.verl.layout import ModelShape, plan

MODELS = {
    "Llama-3.1-8B": ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128),
    "Qwen2.5-32B": ModelShape(32_763_876_352, 5120, 64, 152_064, 40, 8, 128),
}
PROMPTS, ROLLOUTS, STORED = 128, 16, 256
"""Prompts, rollouts per prompt and stored rows in a step of the paper."""
SETS = {"Llama-3.1-8B": 2248, "Qwen2.5-32B": 3789}
"""Near-perfect prompts in the paper's SQL runs, each with one stored response."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions behind the table."""

    prompt: int = 3000
    """Mean length of a prompt in tokens."""
    response: int = 400
    """Mean length of a response in tokens."""
    rate: float = 989.0
    """Peak of a GPU in dense bf16, TFLOP/s (H100 SXM as published)."""
    share: float = 0.4
    """Share of the peak that training and prefill achieve."""
    bandwidth: float = 3.35
    """Memory bandwidth of a GPU, TB/s (H100 SXM as published)."""
    rows_at_once: int = 64
    """Responses that one vLLM copy decodes together; it reads the weights once per token for all of them."""


def parts(shape: ModelShape, gpus: int, tensor: int, given: Assumed) -> dict[str, float]:
    """Seconds per step by part, with all GPUs at work."""
    speed = gpus * given.rate * 1e12 * given.share
    weights = shape.parameters
    rollouts, row = PROMPTS * ROLLOUTS, given.prompt + given.response
    reads = given.response * rollouts / given.rows_at_once / (gpus / tensor)
    cache = given.prompt * shape.cache_bytes * given.rows_at_once  # each response reads its prompt's cache
    return {
        "prefill": PROMPTS * given.prompt * 2 * weights / speed,
        "decode": reads * (2 * weights + cache) / (tensor * given.bandwidth * 1e12),
        "old log-probs": rollouts * row * 2 * weights / speed,
        "update": rollouts * row * 8 * weights / speed,
        "rehearsal": STORED * row * 8 * weights / speed,
        "reference": rollouts * row * 2 * weights / speed,
    }


def settings(gpus: int) -> VerlConfig:
    """The paper's SQL run on a number of GPUs."""
    return VerlConfig(
        rollout=RolloutConfig(max_prompt_tokens=16000, max_tokens=4096, n=ROLLOUTS),
        optim=OptimConfig(tokens_per_microbatch=16384),
        cluster=ClusterConfig(gpus=gpus),
    )


def main(given: Assumed) -> None:
    """Print the tables of experiments/results/gpu.md."""
    print("| model | GPUs | training GB a GPU | host GB a node | layout |\n|---|---|---|---|---|")
    for name, shape in MODELS.items():
        for gpus in (1, 4, 8, 32):
            try:
                layout = plan(shape, settings(gpus))
            except UserError:
                print(f"| {name} | {gpus} | does not fit | | |")
                continue
            where = f"vLLM over {layout.tensor_parallel}, offload {layout.offload}"
            print(f"| {name} | {gpus} | {layout.training_gb:.0f} | {layout.host_gb:.0f} | {where} |")
    print("\n| model | GPUs | " + " | ".join(parts(MODELS["Llama-3.1-8B"], 8, 1, given)) + " | step with rehearsal |")
    print("|---" * 9 + "|")
    for name, shape in MODELS.items():
        for gpus in (8, 32):
            seconds = parts(shape, gpus, plan(shape, settings(gpus)).tensor_parallel, given)
            total = sum(seconds.values()) - seconds["reference"]
            cells = " | ".join(f"{value:.1f}" for value in seconds.values())
            print(f"| {name} | {gpus} | {cells} | {total:.0f} s |")
            plain = total - seconds["rehearsal"]
            print(
                f"  rehearsal adds {seconds['rehearsal'] / plain:.0%} to a step; a reference model would add "
                f"{seconds['reference'] / plain:.0%} and {2 * shape.parameters / gpus / 1e9:.1f} GB a GPU in bf16"
            )
    print("\nstored sets, 4 bytes a token of the prompt, 8 of the response:")
    for name, rows in SETS.items():
        print(f"  {name}: {rows * (4 * given.prompt + 8 * given.response) / 1e6:.0f} MB")
    print("\ntokens of an update with each row's prompt repeated, by those with it once a group of 16:")
    for prompt, response in ((64, 48), (512, 64), (3000, 400), (16000, 400)):
        print(f"  {prompt}+{response}: {ROLLOUTS * (prompt + response) / (prompt + ROLLOUTS * response):.1f}")


if __name__ == "__main__":
    parser = ArgumentParser(description="Estimates of the paper's runs, by arithmetic.")
    for item in fields(Assumed):
        parser.add_argument(f"--{item.name.replace('_', '-')}", type=type(item.default), default=item.default)
    main(Assumed(**vars(parser.parse_args())))
