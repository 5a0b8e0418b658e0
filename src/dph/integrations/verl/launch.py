"""`dph verl`: writes a directory with everything that training through verl needs, on one machine or a cluster.

launch.yaml is verl's configuration; presample.toml, train.toml, eval.toml and verl.toml have the settings of each stage
and of `dph verl`; there is a script for each step; README.md says what to run, with the estimates of memory.

How much memory a model needs on a cluster, and the layout that follows, is arithmetic; nothing was measured. Full
training holds 16 bytes per parameter over all GPUs (fp32 weights, gradient and two moments of AdamW); verl gathers one
layer at a time in bf16. Added to that are, for the tokens of one micro-batch on one GPU, each layer's input, the
activations within one layer, and the logits. For sampling, vLLM keeps a copy of the weights in bf16 and its cache.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from dph.config import (
    EvalConfig,
    EvaluatedModelConfig,
    ModelConfig,
    PartitionRule,
    PresampleConfig,
    ReferenceModelConfig,
    SamplerConfig,
    SamplingConfig,
    TaskConfig,
    TrainConfig,
    VerlConfig,
    absolute,
    from_dict,
    merge_settings,
    narrowed,
    to_dict,
    to_toml,
    words_of,
)
from dph.config.checks import check_model
from dph.config.files import expanded
from dph.engine import check_unchanged, model_folder, own, read_config, refuse_other_kinds, say, write_atomically
from dph.errors import UserError, reason_of
from dph.integrations.verl.installed import check_registered
from dph.integrations.verl.settings import (
    VLLM_SHARE,
    ClusterLayout,
    Offload,
    presamples,
    shares_prompts,
    unused_settings,
    verl_config,
)
from dph.objective import Objective

# The layout, by estimate --------------------------------------------------------------------------------------------

STATE_BYTES = 16
"""Bytes per trained parameter: weight, gradient and two moments, 4 bytes each."""
_GATHERED_LAYERS = 2
"""Layers gathered at one time: the current one and the next."""
_LAYER_BYTES = 68
"""Bytes per token and unit of width within one layer: about 17 activations in bf16 and their gradients."""
_LOGIT_BYTES = 10
"""Bytes per token and vocabulary entry: bf16 logits, and in fp32 their log-softmax and gradient."""
_USABLE = 0.9
"""Share of a GPU's memory that a plan may use."""
_CACHE_GROUPS = 2
"""Groups of responses at full length, with one copy of the prompt each, that vLLM's cache must hold."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes that a decoder's memory depends on."""

    parameters: int
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_size: int

    @property
    def cache_bytes(self) -> int:
        """Key/value cache of one token in bf16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_size


def read_shape(path: str, *, trust_remote_code: bool = False) -> ModelShape:
    """Shape of a model from its configuration, without its weights. Raises UserError if that cannot be read."""
    import torch
    from transformers import AutoModelForCausalLM

    config = read_config(ModelConfig(path, trust_remote_code=trust_remote_code))
    refuse_other_kinds(path, config)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # damaged files make transformers raise many types
        raise UserError(f"cannot read the configuration of the model {path!r}: {reason_of(error)}") from error
    text: Any = config.get_text_config()
    heads = int(text.num_attention_heads)
    return ModelShape(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        hidden=int(text.hidden_size),
        layers=int(text.num_hidden_layers),
        vocab=int(text.vocab_size),
        heads=heads,
        kv_heads=int(getattr(text, "num_key_value_heads", None) or heads),
        head_size=int(getattr(text, "head_dim", None) or text.hidden_size // heads),
    )


def training_bytes(shape: ModelShape, config: VerlConfig, tokens: int, offload: Offload) -> float:
    """Peak memory of one GPU in training, in bytes, with `tokens` tokens on it at once. With adapters the other weights
    have neither gradient nor moments."""
    state = (4 if config.model.lora_rank else STATE_BYTES) * shape.parameters / config.cluster.gpus
    layer = 2 * shape.parameters / shape.layers
    activations = tokens * shape.hidden * (2 * shape.layers + _LAYER_BYTES)
    logits = tokens * shape.vocab * _LOGIT_BYTES
    return (0.0 if offload == "cpu" else state) + _GATHERED_LAYERS * layer + activations + logits


def plan(shape: ModelShape, config: VerlConfig) -> ClusterLayout:
    """The simplest layout that fits by estimate: states on the GPUs rather than in host memory, whole sequences rather
    than shared ones, and the values that the settings fix. Raises UserError if none fits."""
    cluster, adapters = config.cluster, config.model.lora_rank > 0
    microbatch, rollout = config.optim.tokens_per_microbatch, config.rollout
    if not microbatch:
        raise UserError("verl does not choose the size of a micro-batch; set optim.tokens_per_microbatch")
    memory = cluster.memory * 1e9
    per_node = min(cluster.gpus, cluster.per_node)
    powers = [1 << i for i in range(per_node.bit_length()) if per_node % (1 << i) == 0 and shape.heads % (1 << i) == 0]
    tensor = cluster.tensor_parallel or _tensor_parallel(shape, config, powers)
    resident = (4 if adapters else 12) * shape.parameters / cluster.gpus  # weights and moments, during sampling
    fits_beside = resident + VLLM_SHARE * memory <= _USABLE * memory
    choices: tuple[Offload, ...] = ("none" if fits_beside else "between", "cpu")
    if cluster.offload != "auto":
        choices = (cluster.offload,)
    least = float("inf")
    for offload in choices:
        for sequence in [cluster.sequence_parallel] if cluster.sequence_parallel else powers:
            tokens = -(-max(microbatch, rollout.max_prompt_tokens + rollout.max_tokens) // sequence)
            needed = training_bytes(shape, config, tokens, offload)
            least = min(least, needed)
            if needed <= _USABLE * memory:
                bytes_each = {"none": 0, "between": 12, "cpu": STATE_BYTES}[offload]
                host = min(bytes_each, 4 if adapters else STATE_BYTES) * shape.parameters / cluster.nodes
                return ClusterLayout(tensor, sequence, offload, tokens, needed / 1e9, host / 1e9)
    raise UserError(
        f"by estimate a model of {shape.parameters / 1e9:.1f} billion parameters needs {least / 1e9:.0f} GB per GPU on "
        f"{cluster.gpus} GPUs of {cluster.memory:.0f} GB; use more of them, shorter sequences or --model.lora-rank"
    )


def _tensor_parallel(shape: ModelShape, config: VerlConfig, possible: list[int]) -> int:
    """Number of GPUs, one of the possible ones, that hold the weights in bf16 and the cache of a few whole groups."""
    prompt, response = config.rollout.max_prompt_tokens, config.rollout.max_tokens
    weights, room = 2 * shape.parameters, VLLM_SHARE * config.cluster.memory * 1e9
    wanted = weights + _CACHE_GROUPS * (prompt + config.rollout.n * response) * shape.cache_bytes
    count = next((count for count in possible if wanted <= count * room), possible[-1])
    if weights + (prompt + response) * shape.cache_bytes > count * room:
        raise UserError(
            f"vLLM needs {weights / 1e9:.0f} GB for the weights of {shape.parameters / 1e9:.1f} billion parameters and "
            f"has {count * room / 1e9:.0f} GB on {count} GPUs of a node; use more GPUs per node"
        )
    return count


# The launch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that was written."""

    path: Path
    steps: tuple[Path, ...]
    """Scripts to run, in this order."""
    layout: ClusterLayout


def write_launch(config: VerlConfig, shape: ModelShape | None = None) -> Launch:
    """Write a launch into `config.out`; the shape of the model is read from its configuration if it is not given.

    Raises UserError for settings that verl has no counterpart for, for a model that does not fit the memory by
    estimate, and for a directory that holds another launch.
    """
    if not config.out:
        raise UserError("dph verl needs a directory to write: add --out DIRECTORY")
    if shape is None or not config.model.path:
        check_model(config.model.path)
    Objective(config.loss)
    config = _absolute(config)
    folder = Path(config.out)
    shape = shape or read_shape(config.model.path, trust_remote_code=config.model.trust_remote_code)
    layout = plan(shape, config)
    files = {
        "verl.toml": to_toml(replace(config, start=False)),  # written first: it marks the others as ours
        "launch.yaml": launch_yaml(verl_config(config, layout, folder)),
        **_settings_files(config, layout, folder),
        **scripts(config, folder),
        "README.md": readme(config, layout, shape),
    }
    own(folder)
    existing = folder / "verl.toml"
    if existing.exists() and existing.read_text(encoding="utf-8", errors="replace") != files["verl.toml"]:
        raise UserError(f"{folder} holds a launch with other settings; name another directory with --out")
    check_unchanged({folder / name: text for name, text in files.items()})
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_atomically(folder / name, text)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    in_order = ("presample.sh", "data.sh", "train.sh", "eval.sh")  # without a partition there is no presample.sh
    steps = tuple(folder / name for name in in_order if name in files)
    return Launch(folder, steps, layout)


def preset_launch(
    presets: Sequence[str], out: Path, settings: Mapping[str, Any], shape: ModelShape | None = None
) -> Launch:
    """Write a launch from presets (a model's and a method's) and settings that override them, nested as in a settings
    file. Raises UserError as `write_launch` does, and for unknown presets and keys."""
    default = from_dict(VerlConfig, merge_settings("verl", presets, []))
    return write_launch(replace(from_dict(VerlConfig, settings, default=default), out=str(out)), shape)


def run_launch(launch: Launch) -> None:
    """Run the steps of a launch on this machine, one after the other. Raises UserError if one fails."""
    for step in launch.steps:
        say(f"running {step}")
        if status := subprocess.run([str(step)], check=False).returncode:
            raise UserError(f"{step} ended with status {status}; see its output, fix the cause and start again")


def verl(config: VerlConfig) -> Path:
    """The stage: write a launch and, with `start`, run it. Returns the launch directory."""
    if config.start and config.cluster.gpus > config.cluster.per_node:
        raise UserError("--start runs on one node; for several write the launch and follow its README.md")
    try:
        if find_spec("verl"):
            check_registered()
    except UserError as error:
        if config.start and "PYTHON" not in os.environ:
            raise
        say(f"{error} (this launch may run in another environment)")
    launch = write_launch(config)
    if unused := [*unused_settings(config), *Objective(config.loss).unused]:
        say(f"training through verl does not use: {', '.join(unused)}")
    if config.model.shared_prefix and not shares_prompts(config, launch.layout):
        say("each response computes its prompt again, because Ulysses cuts rows; use --cluster.sequence-parallel 1")
    estimate = f"about {launch.layout.training_gb:.0f} GB per GPU in training, by estimate"
    say(f"wrote {launch.path} for {config.cluster.gpus} GPUs ({estimate}); its README.md says what to run")
    if config.start:
        run_launch(launch)
    return launch.path


def _absolute(config: VerlConfig) -> VerlConfig:
    """Existing paths, and that of the rehearsal set, made absolute: the processes of a launch start elsewhere."""

    def located(part: Any) -> Any:
        return replace(part, options={key: absolute(value) for key, value in part.options.items()})

    stored = config.rehearsal.path
    return replace(
        config,
        out=os.path.realpath(expanded(config.out)),
        model=replace(config.model, path=absolute(model_folder(config.model.path))),
        task=located(config.task),
        monitor=replace(config.monitor, sets={name: located(one) for name, one in config.monitor.sets.items()}),
        rehearsal=replace(config.rehearsal, path=stored and os.path.realpath(expanded(stored))),
        plugins=tuple(absolute(name) for name in config.plugins),
    )


def _settings_files(config: VerlConfig, layout: ClusterLayout, folder: Path) -> dict[str, str]:
    """Settings files of the other stages, in agreement with training."""
    sampler = SamplerConfig(engine="vllm", rows=512, tensor_parallel=layout.tensor_parallel)
    presample = PresampleConfig(
        out=str(folder / "presample"),
        plugins=config.plugins,
        seed=config.seed,
        model=narrowed(ReferenceModelConfig, config.model),
        task=config.task,
        verifier=config.verifier,
        sampler=sampler,
        rollout=replace(narrowed(SamplingConfig, config.rollout), n=config.partition.n),
        **to_dict(narrowed(PartitionRule, config.partition)),
    )
    made_here = presamples(config)
    rehearsal = replace(config.rehearsal, path=str(folder / "presample")) if made_here else config.rehearsal
    train = to_toml(replace(config, rehearsal=rehearsal), TrainConfig)
    evaluation = EvalConfig(
        out=str(folder / "eval"),
        plugins=config.plugins,
        label=config.method,
        model=replace(narrowed(EvaluatedModelConfig, config.model), path=""),
        task=replace(config.task, split=config.monitor.split, limit=0),
        verifier=config.verifier,
        sampler=sampler,
        rollout=config.validation,
    )
    files = {"train.toml": train, "eval.toml": to_toml(evaluation)}
    for name, one in config.monitor.sets.items():
        task = TaskConfig(one.task, one.options, shuffle=config.task.shuffle) if one.task else evaluation.task
        other = replace(evaluation, out=f"{evaluation.out}-{name}", task=replace(task, split=one.split))
        files[f"eval-{name}.toml"] = to_toml(other)
    return {**files, "presample.toml": to_toml(presample)} if made_here else files


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # between equal values
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """OmegaConf reads more words as numbers than YAML 1.1 does (1e5), and "${" as the start of an interpolation."""
    try:
        float(text.replace("_", ""))
        quote = '"'
    except ValueError:
        quote = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text.replace("${", r"\${"), style=quote)


_Dumper.add_representer(str, _write_text)


def launch_yaml(config: Mapping[str, Any]) -> str:
    """verl's configuration as a Hydra file: verl's defaults, then ours, then this launch's."""
    hydra = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config", "pkg://dph.integrations.verl"]},
        "defaults": ["ppo_trainer", "dph_defaults", "_self_"],
    }
    head = "# Written by `dph verl`. Values here override verl's own; `train.sh KEY=VALUE` overrides both.\n"
    return head + yaml.dump({**hydra, **config}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


# Scripts -------------------------------------------------------------------------------------------------------------


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
