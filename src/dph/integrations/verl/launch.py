"""`dph verl`: writes a directory with everything that training through verl needs, on one machine or a cluster.

launch.yaml is verl's configuration; presample.toml, train.toml, eval.toml and verl.toml have the settings of each stage
and of `dph verl`; there is a script for each step; README.md says what to run, with the estimates of memory.
"""

import os
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
)
from dph.config.checks import check_model
from dph.config.files import expanded
from dph.engine import check_unchanged, model_folder, own, say, write_atomically
from dph.errors import UserError
from dph.integrations.verl.configuration import presamples, shares_prompts, unused_settings, verl_config
from dph.integrations.verl.installed import check_registered
from dph.integrations.verl.layout import ClusterLayout, ModelShape, plan, read_shape
from dph.integrations.verl.scripts import readme, scripts
from dph.objective import Objective


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
