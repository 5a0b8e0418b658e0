"""The scripts and the README of a launch."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from dph.config import VerlConfig, words_of
from dph.integrations.verl.configuration import presamples, shares_prompts
from dph.integrations.verl.layout import ClusterLayout, ModelShape


def script(folder: Path, title: str, needs: str, body: str) -> str:
    """A script that begins with the variables `here`, its directory, and `python`, the interpreter."""
    return f"""#!/usr/bin/env bash
# {title}
# PYTHON names the interpreter of an environment that has {needs}.
set -euo pipefail
here={shlex.quote(str(folder))}
python="${{PYTHON:-python}}"
{body}"""


def presample_script(folder: Path, title: str, words: Sequence[str] = ()) -> str:
    """Pre-sampling with the settings in the folder's presample.toml; started again, it continues. words: flags, for
    code of others, which a file alone cannot name."""
    body = f'exec "$python" -m dph presample --config "$here/presample.toml"{_behind(words)} --resume\n'
    return script(folder, title, "dph-rl[vllm]", body)


def _behind(words: Sequence[str]) -> str:
    return "".join(f" {shlex.quote(word)}" for word in words)


def scripts(config: VerlConfig, folder: Path) -> dict[str, str]:
    """Every script by name."""
    nodes, files, code = config.cluster.nodes, {}, _behind(words_of(config))
    if presamples(config):
        title = "1. Make the partition and the rehearsal set from the reference policy, sampled through vLLM."
        files["presample.sh"] = presample_script(folder, title, words_of(config))
    title = "2. Write the problems as verl's Parquet, into a folder that every node can read."
    files["data.sh"] = script(folder, title, "dph-rl", f'exec "$python" -m dph.integrations.verl.data "$here"{code}\n')
    ray = f"""port="${{RAY_PORT:-6379}}"
case "${{1:?head, or the address of the head node}}" in
    head) exec "$python" -m ray.scripts.scripts start --head --port="$port" --num-gpus={config.cluster.per_node} ;;
    *) exec "$python" -m ray.scripts.scripts start --address="$1:$port" --num-gpus={config.cluster.per_node} ;;
esac
"""
    if nodes > 1:
        title = f"3. On each of the {nodes} nodes: ray.sh head on the first, ray.sh ADDRESS-OF-THE-FIRST on the others."
        files["ray.sh"] = script(folder, title, "dph-rl[verl] and vLLM", ray)
    join = 'export RAY_ADDRESS="${RAY_ADDRESS:-auto}" # the cluster that ray.sh made\n' if nodes > 1 else ""
    train = f"""cat "$here/metrics.jsonl" >> "$here/metrics-before.jsonl" 2>/dev/null || true # verl begins it anew
export VERL_FILE_LOGGER_PATH="$here/metrics.jsonl" TENSORBOARD_DIR="$here/tensorboard"
{join}cd "$here"
exec "$python" -m dph.integrations.verl --config-dir "$here" --config-name launch hydra.run.dir="$here/hydra" "$@"
"""
    title = "4. Train; again, from the newest checkpoint. Arguments KEY=VALUE change verl's configuration."
    files["train.sh"] = script(folder, title, "dph-rl[verl] and vLLM", train)
    score = """step="${1:-$(cat "$here/checkpoints/latest_checkpointed_iteration.txt")}"
model="$here/models/step-$step"
if [ ! -e "$model/config.json" ]; then
    "$python" -m verl.model_merger merge --backend fsdp \\
        --local_dir "$here/checkpoints/global_step_$step/actor" --target_dir "$model"
fi
for settings in "$here"/eval*.toml; do # the task's split, and each further set of the monitor
    name="$(basename "$settings" .toml)"
    "$python" -m dph eval --config "$settings" --model.path "$model"CODE \\
        --out "$here/$name/step-$step" "${@:2}"
done
""".replace("CODE", code)
    title = "5. Merge a checkpoint, by default the newest, and score it: eval.sh [STEP [settings of dph eval]]."
    files["eval.sh"] = script(folder, title, "dph-rl[verl], or dph-rl[vllm] once it is merged", score)
    return files


def readme(config: VerlConfig, layout: ClusterLayout, shape: ModelShape) -> str:
    """The launch's README: what to run, and how much memory to expect."""
    cluster = config.cluster
    training = f"{layout.training_gb:.0f} of a GPU's {cluster.memory:.0f} GB"
    ray = ["./ray.sh head                  # the first node", "./ray.sh ADDRESS               # the others"]
    commands = [
        *(["./presample.sh                 # one node with GPUs"] if presamples(config) else []),
        "./data.sh                      # needs the data, no GPU",
        *(ray if cluster.nodes > 1 else []),
        "./train.sh                     # the first node",
        "./eval.sh                      # the newest checkpoint",
    ]
    where = {
        "none": "all training states on the GPUs",
        "between": "weights and moments in host memory while responses are sampled",
        "cpu": "all training states in host memory",
    }[layout.offload]
    rollout, rows, ranks = config.rollout, config.stored_rows, cluster.gpus // layout.sequence_parallel
    listed = "\n".join(commands)
    return f"""# {config.method} on {config.task.name}, {cluster.gpus} GPUs

Written by `dph verl`. Every node must see this directory, and all that it names, under the same paths.

```sh
{listed}
```

* A step: {rollout.prompts} prompts with {rollout.n} responses each, and {rows} stored responses;
  {config.optim.minibatches} mini-batches; {config.steps} steps.
* Layout: {ranks} data-parallel ranks of {layout.sequence_parallel} GPU(s), a copy of vLLM over
  {layout.tensor_parallel} GPU(s), {layout.tokens_per_gpu} tokens per GPU at once; {where}.
* In training each prompt is computed once{"" if shares_prompts(config, layout) else " for each response"}.
* Estimated, not measured, for {shape.parameters / 1e9:.2f} billion parameters:
  in training {training}, and {layout.host_gb:.0f} GB of a node's host memory.
"""
