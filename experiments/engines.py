"""The same training by the native engine and by TRL: does TRL end within the spread of the native engine's seeds?

    python -m experiments.engines --out runs/engines      # a few minutes on two CPU cores

Run it in an environment with the extra `trl`. It makes and pre-samples one small model that sorts three digits
(examples/extend). Then the native engine and TRL train with the same number of seeds and steps, each step with 8
prompts, 8 responses per prompt and 8 stored responses. All models are evaluated on held-out problems. Finished parts
are kept, so the command can be repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "extend"
PLUGINS = [str(EXAMPLES / name) for name in ("sorting.py", "ends_with.py")]
METRICS = ("greedy", "pass@1", "pass@8")
PROMPTS, RESPONSES, STORED, TOKENS, RATE = 8, 8, 8, 8, 1e-4


def dph(stage: str, out: Path, *options: str) -> Path:
    """Run a stage unless it is complete; return its run directory."""
    manifest = out / "manifest.json"
    if not (manifest.exists() and json.loads(manifest.read_text())["status"] == "complete"):
        plugins = [part for plugin in PLUGINS for part in ("--plugin", plugin)]
        words = [stage, *plugins, "--task.name", "sorting", "--out", str(out), *options]
        subprocess.run([sys.executable, "-m", "dph", *words], check=True)
    return out


def native(out: Path, base: Path, presampled: Path, steps: int, seed: int) -> Path:
    """Train with `dph train`; return the folder of the final model."""
    facts: dict[str, Any] = {
        "--preset": "dph_js",
        "--model.path": base,
        "--rehearsal.path": presampled,
        "--rehearsal.rows": STORED,
        "--rollout.prompts": PROMPTS,
        "--rollout.n": RESPONSES,
        "--rollout.max-tokens": TOKENS,
        "--optim.lr": RATE,
        "--optim.minibatches": 1,
        "--optim.weight-decay": 0.0,
        "--steps": steps,
        "--checkpoint-every": steps,
        "--seed": seed,
    }
    dph("train", out, *(str(part) for pair in facts.items() for part in pair))
    return max((out / "checkpoints").glob("step-*")) / "model"


def trl(out: Path, base: Path, presampled: Path, steps: int, seed: int) -> Path:
    """Train with TRL; return the folder of the final model."""
    if not (out / "model" / "config.json").exists():
        from transformers import AutoTokenizer

        from dph.integrations.trl import DPHConfig, DPHTrainer, VerifierReward, exploration_set

        args = DPHConfig(
            str(out),
            divergence="js",
            eta=0.2,
            epsilon_high=0.28,
            rehearsal_rows=STORED,
            per_device_train_batch_size=PROMPTS * RESPONSES,
            num_generations=RESPONSES,
            max_completion_length=TOKENS,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_steps=steps,
            seed=seed,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(base)
        trainer = DPHTrainer(
            model=str(base),
            reward_funcs=VerifierReward(),
            args=args,
            train_dataset=exploration_set(presampled, tokenizer, PLUGINS),
            rehearsal_set=presampled,
        )
        trainer.train()
        trainer.save_model(str(out / "model"))
    return out / "model"


def scores(out: Path, model: Path) -> dict[str, float]:
    """Metrics on held-out problems, with 64 responses per problem."""
    options = ("--model.path", str(model), "--task.split", "test", "--rollout.n", "64")
    run = dph("eval", out, *options, "--rollout.max-tokens", str(TOKENS))
    metrics = json.loads((run / "scores.json").read_text())["splits"]["test"]["metrics"]
    return {name: _mean(metrics[name]) for name in METRICS}


def _mean(value: Any) -> float:
    return float(value["mean"] if isinstance(value, dict) else value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    base = dph("sft", args.out / "base", "--new.tokenizer", "word", "--steps", "18") / "model"
    sampling = ("--model.path", str(base), "--rollout.max-tokens", str(TOKENS), "--threshold", "5")
    presampled = dph("presample", args.out / "presample", *sampling)
    found = {"start": [scores(args.out / "start-eval", base)]}
    for engine in (native, trl):
        name = engine.__name__
        for seed in range(args.seeds):
            model = engine(args.out / f"{name}-{seed}", base, presampled, args.steps, seed)
            found.setdefault(name, []).append(scores(args.out / f"{name}-{seed}-eval", model))
    (args.out / "engines.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"\n{'':10}" + "".join(f"{name:>24}" for name in METRICS))
    for name, every in found.items():
        print(f"{name:10}" + "".join(f"{', '.join(f'{one[metric]:.3f}' for one in every):>24}" for metric in METRICS))


if __name__ == "__main__":
    main()
