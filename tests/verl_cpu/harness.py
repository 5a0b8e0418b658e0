"""Test support: a tiny model, a presample run and a launch of verl's trainer with our plug-in on two CPU ranks."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

import parity  # noqa: F401  (registers the verifier)
import torch
from safetensors.torch import load_file

from dph.config import (
    ModelConfig,
    MonitorConfig,
    NewModelConfig,
    PresampleConfig,
    RehearsalConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
)
from dph.integrations.verl.data import convert
from dph.integrations.verl.launch import preset_launch
from dph.models.scratch import new_policy
from dph.rehearsal.store import RehearsalSet, read_rehearsal
from dph.stages.presample import presample

HERE = Path(__file__).resolve().parent
TEXTS = ("ask about 0 1 2 3 4 5 6 7 8 9", "a a b c d e f g z a")
SIZES = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=64)
MAX_TOKENS = 8


def environment() -> dict[str, str]:
    """For every process of verl: the CPU registrations, quiet, one thread."""
    return {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform,verl_cpu_rollout",
        "PYTHONPATH": f"{HERE}:{HERE.parent}:{HERE.parents[1] / 'src'}",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_prestart_worker_first_driver": "0",  # Ray would start a process for every CPU
        "RAY_enable_worker_prestart": "0",
        "RAY_worker_niceness": "0",  # Ray's 15 would leave them no time on a machine with other work
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "HYDRA_FULL_ERROR": "1",
    }


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(script: str, ranks: int, *words: str, **variables: str) -> list[str]:
    """Run a file of this folder in as many processes as ranks; returns their outputs."""
    common = {**environment(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(HERE / script), *words],
            env={**common, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [worker.communicate(timeout=900)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * ranks, outputs[0][-3000:]
    return outputs


def stored_tokens(run: Path, start: int, rows: int) -> int:
    """Tokens of stored responses from a place in the order of training."""
    order = RehearsalSet(read_rehearsal(run / "rehearsal.parquet"), seed=0)
    return sum(len(row.response_ids) for row in order.take(start, rows))


def make_model(path: Path, seed: int = 0, sizes: NewModelConfig = SIZES) -> Path:
    """A random word-level Llama whose logits differ by a few nats, with a chat template that adds nothing."""
    policy = new_policy(sizes, TEXTS, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2, generator=generator)
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    policy.save(path)
    return path


def make_launch(
    folder: Path, sizes: NewModelConfig = SIZES, prompt_set: Literal["all", "explore"] = "explore"
) -> tuple[Path, Path, Path]:
    """Model, presample run and verl's Parquet in a folder; returns their paths."""
    model = make_model(folder / "model", sizes=sizes)
    prompts = [f"ask about {i // 10} {i % 10}" for i in range(48)]
    rows = [{"id": f"p{i}", "prompt": text, "answer": "-", "verifier": "parity"} for i, text in enumerate(prompts)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TaskConfig(name="records", options={"path": str(folder / "train.jsonl")})
    rollout = RolloutConfig(n=8, max_tokens=MAX_TOKENS, max_prompt_tokens=32)
    run = presample(
        PresampleConfig(
            out=str(folder / "presample"),
            model=ModelConfig(path=str(model)),
            task=task,
            rollout=rollout,
            threshold=6,
        )
    )
    config = TrainConfig(
        prompt_set=prompt_set,
        model=ModelConfig(path=str(model)),
        task=task,
        rollout=RolloutConfig(prompts=4, n=4, max_tokens=MAX_TOKENS, max_prompt_tokens=32),
        rehearsal=RehearsalConfig(path=str(run), rows=6),
        monitor=MonitorConfig(split="train", limit=4),
    )
    convert(config, folder / "data")
    return model, run, folder / "data"


def write_launch(model: Path, presampled: Path, folder: Path) -> Path:
    """`dph verl` at the smallest scale: two ranks, 4 prompts × 4 responses, one step."""
    sizes = {"max_tokens": MAX_TOKENS, "max_prompt_tokens": 32, "n": 4}
    settings = {
        "steps": 1,
        "checkpoint_every": 1,
        "max_unjudged": 0.5,
        "model": {"path": str(model)},
        "task": {"name": "records", "options": {"path": str(model.parent / "train.jsonl")}},
        "rollout": {**sizes, "prompts": 4},
        "validation": sizes,
        "dynamic_sampling": {"enabled": True},
        "optim": {"lr": 1e-2, "tokens_per_microbatch": 100},
        "monitor": {"split": "train", "limit": 4, "n": 4, "every": 1},
        "rehearsal": {"path": str(presampled), "rows": 6},
        "cluster": {"gpus": 2},
        "plugins": [str(HERE / "parity.py")],
    }
    return preset_launch(["dph_js"], folder, settings).path


def on_cpu() -> dict[str, object]:
    """What the CPU registrations ask of verl's configuration."""
    a = "actor_rollout_ref"
    return {
        "trainer.device": "cpu",
        f"{a}.model.use_remove_padding": "false",
        f"{a}.model.enable_gradient_checkpointing": "false",
        f"+{a}.model.override_config.attn_implementation": "eager",
        f"{a}.actor.use_torch_compile": "false",
        f"{a}.actor.fsdp_config.use_torch_compile": "false",
        f"+{a}.actor.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{a}.actor.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        f"{a}.ref.fsdp_config.use_torch_compile": "false",
        f"+{a}.ref.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{a}.ref.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        f"{a}.rollout.name": "hf_cpu",
        f"{a}.rollout.agent.num_workers": 1,
        "data.dataloader_num_workers": 0,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "ray_kwargs.ray_init.num_cpus": 24,
        "+ray_kwargs.ray_init.num_gpus": 2,
        "+ray_kwargs.ray_init.include_dashboard": "false",
        "+ray_kwargs.ray_init.object_store_memory": 300_000_000,
    }


def with_vllm() -> dict[str, object]:
    """vLLM's build for processors samples, through verl's own server; beside `on_cpu`."""
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": "vllm",
        f"{rollout}.dtype": "float32",
        f"{rollout}.enforce_eager": "true",
        f"{rollout}.free_cache_engine": "false",
        f"+{rollout}.enable_sleep_mode": "false",
        f"{rollout}.max_model_len": 128,
        f"{rollout}.max_num_seqs": 16,
        f"{rollout}.max_num_batched_tokens": 512,
        f"{rollout}.calculate_log_probs": "true",
    }


def overrides(model: Path, run: Path, data: Path, out: Path) -> dict[str, object]:
    """A run at the smallest scale: two ranks, 4 prompts × 4 responses, two mini-batches, 6 stored responses."""
    a = "actor_rollout_ref"
    return on_cpu() | {
        "trainer.n_gpus_per_node": 2,
        "trainer.nnodes": 1,
        f"{a}.model.path": model,
        f"{a}.actor.optim.lr": 1e-2,
        f"{a}.actor.ppo_mini_batch_size": 2,
        f"{a}.actor.ppo_max_token_len_per_gpu": 100,
        f"{a}.rollout.n": 4,
        f"{a}.rollout.tensor_model_parallel_size": 1,
        "data.train_files": data / "train.parquet",
        "data.val_files": data / "val.parquet",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 32,
        "data.max_response_length": MAX_TOKENS,
        "data.seed": 1,
        "+reward.custom_reward_function.reward_kwargs.plugins": f"[{HERE / 'parity.py'}]",
        "trainer.logger": "[console,file]",
        "trainer.val_before_train": "false",
        "trainer.total_training_steps": 2,
        "trainer.total_epochs": 9,
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.project_name": "p",
        "trainer.experiment_name": "e",
        "trainer.default_local_dir": out,
        "dph.rehearsal": run,
        "dph.rows": 6,
        "dph.reduction": "per_set",
        "dph.max_unjudged": 0.5,
    }


def stock_overrides(model: Path, data: Path, mode: str) -> dict[str, object]:
    """verl's own training without this package's objective, for one step on two ranks; mode: of verl's trainer."""
    a = "actor_rollout_ref"
    everything = overrides(model, Path("none"), data, model / "unused")
    kept = {name: value for name, value in everything.items() if "dph." not in name and "reward_kwargs" not in name}
    return kept | {
        "trainer.use_v1": "true",
        "trainer.v1.trainer_mode": mode,
        "trainer.total_training_steps": 1,
        "algorithm.adv_estimator": "grpo",
        f"{a}.actor.strategy": "fsdp2",
        f"{a}.actor.fsdp_config.strategy": "fsdp2",
        f"{a}.ref.fsdp_config.strategy": "fsdp2",
        f"{a}.actor.use_dynamic_bsz": "true",
        f"{a}.actor.ppo_mini_batch_size": 4,
        "reward.custom_reward_function.path": HERE / "parity.py",
        "reward.custom_reward_function.name": "compute_score",
    }


def train(settings: dict[str, object], folder: Path, timeout: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run `python -m dph.integrations.verl` and wait for it; its output is also in folder/output.txt."""
    command = ["nice", sys.executable, "-m", "dph.integrations.verl", f"hydra.run.dir={folder}"]
    return run(command, settings, folder, timeout)


def run(
    command: list[str], settings: dict[str, object], folder: Path, timeout: float = 1500, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of verl's with settings of its configuration, variables of the environment, and a folder of Ray's
    own."""
    temporary = tempfile.mkdtemp(prefix="r", dir="/tmp")  # Ray's sockets need a short path
    words = [f"{name}={value}" for name, value in settings.items()]
    try:
        done = subprocess.run(
            [*command, *words, f"+ray_kwargs.ray_init._temp_dir={temporary}"],
            env=environment()
            | {"VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), "PYTHON": sys.executable}
            | variables,
            cwd=folder,
            timeout=timeout,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    (folder / "output.txt").write_text(done.stdout)
    return done


def metrics_of(folder: Path) -> dict[int, dict[str, float]]:
    """Metrics by step, from verl's file logger."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["data"] for row in rows}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of all ranks' shards in verl's checkpoint, joined."""
    paths = sorted(folder.glob("model_world_size_*_rank_*.pt"), key=lambda p: int(re.findall(r"\d+", p.name)[-1]))
    shards = [torch.load(path, weights_only=False) for path in paths]
    return {
        name: torch.cat([getattr(shard[name], "_local_tensor", shard[name]) for shard in shards]) for name in shards[0]
    }


def saved(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of a model directory."""
    return load_file(folder / "model.safetensors")
