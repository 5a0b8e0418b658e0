# pyright: reportMissingImports=false
"""`python -m dph.integrations.verl [overrides]`: verl's training with DPH-RL's defaults (dph_trainer.yaml)."""

import sys
from collections.abc import Callable
from typing import Any

from dph.config import ModelConfig
from dph.config.files import expanded
from dph.engine import dated_template, load_tokenizer, show, show_messages, template_of
from dph.errors import UserError, one_line
from dph.integrations.verl.installed import check_registered
from dph.integrations.verl.settings import configured


def run(config: Any) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    plain: Any = OmegaConf.to_container(config, resolve=True)
    settings, *_ = configured(plain)
    _check_files(plain["data"])
    if template := date_in_template(plain["actor_rollout_ref"]["model"], settings.date):
        escaped = template.replace("${", r"\${")  # no interpolation of OmegaConf's
        OmegaConf.update(config, "actor_rollout_ref.model.custom_chat_template", escaped)
    auto_set_device(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    run_ppo(config, task_runner_class=TaskRunnerV1)


def date_in_template(model: dict[str, Any], date: str) -> str:
    """The chat template with a date in place of today's, which verl renders prompts with if it is told to; "" if the
    template writes no date. model: verl's settings of this name."""
    template = model.get("custom_chat_template")
    if template is None:
        path = model.get("tokenizer_path") or model["path"]
        if "://" in path:
            return ""  # verl copies it; the trainer compares the prompts' date with the rehearsal set's
        trust_remote_code = bool(model["trust_remote_code"])
        template = template_of(load_tokenizer(ModelConfig(path, trust_remote_code=trust_remote_code)))
    dated = dated_template(template, date)
    return "" if dated == template else dated


def _check_files(data: dict[str, Any]) -> None:
    """Refuses files of problems that are not there, before Ray is started. data: verl's settings of this name."""
    for name in () if data["custom_cls"]["path"] else ("train_files", "val_files"):
        for file in data[name] if isinstance(data[name], list) else [data[name]]:
            if file and "://" not in file and not expanded(file).exists():
                raise UserError(f"there is no file {file}; run data.sh of the launch, or correct data.{name}")


def one_sentence(task: Callable[..., None]) -> Callable[..., None]:
    """A task whose UserErrors end in one sentence and status 2, also those from other processes of Ray."""

    def run_task(*arguments: Any) -> None:
        try:
            task(*arguments)
        except UserError as error:  # from Ray a copy with the traceback as its text, and the error as its cause
            show(f"dph: {one_line(str(getattr(error, 'cause', error)))}")
            sys.exit(2)

    return run_task


def train() -> None:
    show_messages()  # before the plug-in is imported, which shows warnings where nothing else does
    check_registered()
    import hydra

    # Hydra reports errors in its own way, so the sentence is printed inside
    start = hydra.main(config_path="pkg://dph.integrations.verl", config_name="dph_trainer", version_base=None)
    start(one_sentence(run))()


if __name__ == "__main__":
    one_sentence(train)()
