"""The scripts and the README of a launch."""

import shlex
from pathlib import Path

from dph.config import VerlConfig
from dph.integrations.verl.launch_config import presamples, shares_prompts
from dph.integrations.verl.sizes import ClusterLayout, ModelShape

_HEAD = """#!/usr/bin/env bash
# {title}
# PYTHON names the interpreter of an environment that has {needs}.
set -euo pipefail
here={here}
python="${{PYTHON:-python}}"
"""


def script(folder: Path, title: str, needs: str, body: str) -> str:
    """A script that begins with the variables `here`, its directory, and `python`, the interpreter."""
    return _HEAD.format(title=title, needs=needs, here=shlex.quote(str(folder))) + body.lstrip("\n")


def presample_script(folder: Path, title: str, plugins: str = "") -> str:
    """Pre-sampling with the settings in the folder's presample.toml; started again, it continues."""
    body = f"""
resume=""
if [ -e "$here/presample" ]; then resume=--resume; fi
exec "$python" -m dph presample --config "$here/presample.toml" $resume{plugins}
"""
    return script(folder, title, "dph-rl[vllm]", body)


def scripts(config: VerlConfig, folder: Path) -> dict[str, str]:
    """Every script by name."""
    plugins = "".join(f" --plugin {shlex.quote(name)}" for name in config.plugins)
    nodes = -(-config.cluster.gpus // config.cluster.per_node)

    files = {
        "data.sh": script(
            folder,
            "2. Write the problems as verl's Parquet, where every node can read them.",
            "dph-rl",
            f"""
"$python" -m dph.integrations.verl.data --config "$here/train.toml" --out "$here/data"{plugins}
""",
        ),
        "train.sh": script(
            folder,
            "4. Train; again, from the newest checkpoint. Arguments KEY=VALUE change verl's configuration.",
            "dph-rl[verl] and vLLM",
            f"""
export VERL_FILE_LOGGER_PATH="$here/metrics.jsonl" TENSORBOARD_DIR="$here/tensorboard"
{'export RAY_ADDRESS="${RAY_ADDRESS:-auto}" # the cluster that ray.sh made' if nodes > 1 else ""}
cd "$here"
exec "$python" -m dph.integrations.verl --config-dir "$here" --config-name launch hydra.run.dir="$here/hydra" "$@"
""".replace("\n\n", "\n"),
        ),
        "eval.sh": script(
            folder,
            "5. Merge a checkpoint, by default the newest, and score it: eval.sh [STEP [settings of dph eval]].",
            "dph-rl[verl], or dph-rl[vllm] once it is merged",
            f"""
step="${{1:-$(cat "$here/checkpoints/latest_checkpointed_iteration.txt")}}"
model="$here/models/step-$step"
if [ ! -e "$model/config.json" ]; then
    "$python" -m verl.model_merger merge --backend fsdp \\
        --local_dir "$here/checkpoints/global_step_$step/actor" --target_dir "$model"
fi
exec "$python" -m dph eval --config "$here/eval.toml" --model.path "$model" \\
    --out "$here/eval/step-$step"{plugins} "${{@:2}}"
""",
        ),
    }
    if presamples(config):
        title = "1. Make the partition and the rehearsal set from the reference policy, sampled through vLLM."
        files["presample.sh"] = presample_script(folder, title, plugins)
    if nodes > 1:
        files["ray.sh"] = script(
            folder,
            f"3. On each of the {nodes} nodes: ray.sh head on the first, ray.sh ADDRESS-OF-THE-FIRST on the others.",
            "dph-rl[verl] and vLLM",
            f"""
port="${{RAY_PORT:-6379}}"
case "${{1:?head, or the address of the head node}}" in
    head) exec "$python" -m ray.scripts.scripts start --head --port="$port" --num-gpus={config.cluster.per_node} ;;
    *) exec "$python" -m ray.scripts.scripts start --address="$1:$port" --num-gpus={config.cluster.per_node} ;;
esac
""",
        )
    return files


def readme(config: VerlConfig, layout: ClusterLayout, shape: ModelShape) -> str:
    """The launch's README: what to run, and how much memory to expect."""
    cluster = config.cluster
    nodes = -(-cluster.gpus // cluster.per_node)
    training = f"{layout.training_gb:.0f} of a GPU's {cluster.memory:.0f} GB"
    ray = ["./ray.sh head                  # the first node", "./ray.sh ADDRESS               # the others"]
    commands = [
        *(["./presample.sh                 # one node with GPUs"] if presamples(config) else []),
        "./data.sh                      # needs the data, no GPU",
        *(ray if nodes > 1 else []),
        "./train.sh                     # the first node",
        "./eval.sh                      # the newest checkpoint",
    ]
    where = {
        "none": "all training states on the GPUs",
        "between": "weights and moments in host memory while responses are sampled",
        "cpu": "all training states in host memory",
    }[layout.offload]
    rollout, rows, ranks = config.rollout, config.rehearsal.rows, cluster.gpus // layout.sequence_parallel
    lines = [
        f"# {config.method} on {config.task.name}, {cluster.gpus} GPUs",
        "",
        "Written by `dph verl`. Every node must see this directory, and all that it names, under the same paths.",
        "",
        "```sh",
        *commands,
        "```",
        "",
        f"* A step: {rollout.prompts} prompts with {rollout.n} responses each, and {rows} stored responses;",
        f"  {config.optim.minibatches} mini-batches; {config.steps} steps.",
        f"* Layout: {ranks} data-parallel ranks of {layout.sequence_parallel} GPU(s), a copy of vLLM over",
        f"  {layout.tensor_parallel} GPU(s), {layout.tokens_per_gpu} tokens per GPU at once; {where}.",
        f"* In training each prompt is computed once{'' if shares_prompts(config, layout) else ' for each response'}.",
        f"* Estimated, not measured, for {shape.parameters / 1e9:.2f} billion parameters:",
        f"  in training {training}, and {layout.host_gb:.0f} GB of a node's host memory.",
    ]
    return "\n".join(lines) + "\n"
