# pyright: reportMissingImports=false
"""Whole steps of verl's trainer as it is launched (Ray, vLLM, FSDP2), with shared prompts and without.

    python -m benchmarks.engines.verl_step --sizes 512+256 --model 0.5B          # one GPU, with vLLM
    python -m benchmarks.engines.verl_step --sizes 16+8 --device cpu             # its support in tests/verl_cpu

Run it in an environment with verl, on a GPU `verl[vllm]`. For each size `verl.trainer.main_ppo` trains twice with
verl's defaults (bf16, gradient checkpointing) on a model with random weights: in verl's mode `sync`, and with the lines
of docs/guides/verl.md. Both take `--prompts` prompts with `--responses` responses of full length, one mini-batch a
step, and micro-batches of `--tokens` tokens. On a CPU the tests' server takes vLLM's place.

It prints medians of verl's own times over the steps after the first: the update, the pass for old log-probabilities,
generation and the step; the peak memory; and how far the sampler's log-probabilities are from the trainer's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks._support import shapes
from benchmarks._support.lines import Lines

ROOT = Path(__file__).resolve().parents[2]
POLICY = "actor_rollout_ref"
TIMES = {"update": "update_actor", "log-probs": "old_log_prob", "generation": "gen", "step": "step"}
"""verl's names of what is timed."""
SHARED = {
    "trainer.v1.trainer_mode": "shared_prefix_sync",
    "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_ENGINE_VENDOR": "dph",
}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return float(solution_str.split()[0][-1] in "02468")
"""


def write_files(folder: Path, sizes: dict[str, int], model: str) -> None:
    """A model with random weights and its tokenizer, prompts as verl's Parquet, and a reward function."""
    import torch

    from benchmarks.engines.step_worker import make_prompts, make_texts, make_tokenizer, named_model
    from dph.integrations.verl.data import write_rows
    from dph.types import Problem

    made = named_model(model, shapes.Where())
    vocabulary = made.config.vocab_size
    made.to(torch.bfloat16).save_pretrained(folder / "model")
    tokenizer = make_tokenizer(vocabulary)
    texts = make_texts(make_prompts(2 * sizes["prompts"], sizes["prompt"], vocabulary), tokenizer)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    problems = [Problem(str(index), text, "-", "exact") for index, text in enumerate(texts)]
    for name in ("train", "val"):
        write_rows(folder / f"{name}.parquet", [(problem, "random", name) for problem in problems])
    (folder / "reward.py").write_text(REWARD, encoding="utf-8")


def settings(folder: Path, sizes: dict[str, int], steps: int, tokens: int, device: str) -> dict[str, object]:
    """verl's settings that both ways share."""
    found: dict[str, object] = {
        "trainer.use_v1": "true",
        "trainer.v1.trainer_mode": "sync",
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        "trainer.logger": "[console,file]",
        "trainer.val_before_train": "false",
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": steps,
        "trainer.default_local_dir": folder / "checkpoints",
        "algorithm.adv_estimator": "grpo",
        "data.train_files": folder / "train.parquet",
        "data.val_files": folder / "val.parquet",
        "data.train_batch_size": sizes["prompts"],
        "data.max_prompt_length": sizes["prompt"],
        "data.max_response_length": sizes["response"],
        "reward.custom_reward_function.path": folder / "reward.py",
        "reward.custom_reward_function.name": "compute_score",
        f"{POLICY}.model.path": folder / "model",
        f"{POLICY}.actor.strategy": "fsdp2",
        f"{POLICY}.actor.use_dynamic_bsz": "true",
        f"{POLICY}.actor.ppo_mini_batch_size": sizes["prompts"],
        f"{POLICY}.actor.ppo_max_token_len_per_gpu": tokens,
        f"{POLICY}.rollout.name": "vllm",
        f"{POLICY}.rollout.n": sizes["responses"],
        f"{POLICY}.rollout.ignore_eos": "true",
        f"{POLICY}.rollout.calculate_log_probs": "true",
        f"{POLICY}.rollout.tensor_model_parallel_size": 1,
        f"{POLICY}.rollout.gpu_memory_utilization": 0.4,
    }
    if device == "cpu":
        import harness

        own = harness.on_cpu()
        found |= {name: value for name, value in own.items() if "mixed_precision" not in name}
        found |= {f"{POLICY}.model.enable_gradient_checkpointing": "true"}
    elif find_spec("flash_attn") is None:
        found[f"{POLICY}.model.use_remove_padding"] = "false"
        found[f"+{POLICY}.model.override_config.attn_implementation"] = "sdpa"
    return found


def train(given: dict[str, object], folder: Path, device: str) -> list[dict[str, float]]:
    """Run verl's trainer; returns the metrics of each step. Raises SystemExit if it fails."""
    folder.mkdir()
    command = [sys.executable, "-m", "verl.trainer.main_ppo"]
    if device == "cpu":
        import harness

        done = harness.run(command, given, folder)
    else:
        own = {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), "HF_HUB_OFFLINE": "1"}
        words = [f"{name}={value}" for name, value in given.items()]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([*command, *words], env=os.environ | own, cwd=folder, check=False, **output)
    said = [line for line in done.stdout.splitlines() if "shared prompts: " in line or "once for each" in line]
    print("\n".join(said) if done.returncode == 0 else done.stdout[-8000:], flush=True)
    if done.returncode:
        raise SystemExit("verl has ended with an error; see above")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["data"] for row in rows if "timing_s/step" in row["data"]]


def summary(steps: list[dict[str, float]]) -> dict[str, float]:
    """Medians over the steps after the first, the peak memory, and the sampler's distance."""
    later = steps[1:] or steps
    found = {name: statistics.median(step[f"timing_s/{theirs}"] for step in later) for name, theirs in TIMES.items()}
    found["bytes"] = 2**30 * max(step["actor/perf/max_memory_allocated_gb"] for step in later)
    names = {"sampler": "training/rollout_probs_diff_mean", "computed": "shared_prefix/computed_per_prompt"}
    return found | {name: steps[0][theirs] for name, theirs in names.items() if theirs in steps[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["512+256"], metavar="PROMPT+RESPONSE")
    parser.add_argument("--responses", type=int, default=16, help="to each prompt")
    parser.add_argument("--prompts", type=int, default=8, help="in a step")
    parser.add_argument("--model", choices=("small", *shapes.MODELS), default="small")
    parser.add_argument("--steps", type=int, default=4, help="of which the first is not counted")
    parser.add_argument("--tokens", type=int, default=32768, help="of a micro-batch")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--lines", type=Path, help="file that gets each size at once, as lines of JSON")
    args = parser.parse_args()
    if args.device == "cpu":
        sys.path[:0] = [str(ROOT / "tests" / "verl_cpu"), str(ROOT / "tests")]
    lines = Lines(args.lines, trainer="verl", model=args.model, device=args.device, vllm=args.device != "cpu")
    for size in args.sizes:
        prompt, response = map(int, size.split("+"))
        sizes = {"prompt": prompt, "response": response, "prompts": args.prompts, "responses": args.responses}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_files(folder, sizes, args.model)
            given = settings(folder, sizes, args.steps, args.tokens, args.device)
            stock, shared = (
                summary(train(given | more, folder / name, args.device))
                for name, more in (("stock", {}), ("shared", SHARED))
            )
        print(f"\n{size} tokens, {args.prompts} prompts with {args.responses} responses\n{'':16}      verl    shared")
        for name in stock:
            print(f"{name:16}{stock[name]:10.4g}{shared[name]:10.4g}", flush=True)
        lines.add("trainer", **sizes, stock=stock, shared=shared)


if __name__ == "__main__":
    main()
