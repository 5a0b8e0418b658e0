"""What DPH-RL needs of verl's configuration, and the block `dph`: `dph_defaults.yaml` holds it for Hydra.

python -m dph.integrations.verl.defaults     # writes the file again, after a change here or in the settings
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dph.integrations.verl.settings import NO_DUAL_CLIP, TRAINER_MODE, DPHSettings
from dph.integrations.verl.yaml_text import yaml_text

FILE = Path(__file__).with_name("dph_defaults.yaml")
_HEAD = """# @package _global_
# Written by `python -m dph.integrations.verl.defaults`. The settings under dph: dph.integrations.verl.settings.
"""
_FSDP: dict[str, Any] = {"strategy": "fsdp2"}


def defaults_text() -> str:
    """The file's content."""
    return _HEAD + yaml_text(
        {
            "dph": asdict(DPHSettings()),
            "trainer": {"use_v1": True, "v1": {"trainer_mode": TRAINER_MODE}},
            "algorithm": {
                "adv_estimator": "grpo",
                "filter_groups": {"metric": "acc"},  # the verifiers' verdict, not the shaped reward
            },
            "actor_rollout_ref": {
                "actor": {
                    **_FSDP,
                    "use_dynamic_bsz": True,
                    "loss_agg_mode": "token-mean",
                    "clip_ratio_c": NO_DUAL_CLIP,  # as in the paper
                    "fsdp_config": _FSDP,
                },
                "ref": {"fsdp_config": _FSDP},
            },
            "reward": {
                "custom_reward_function": {"path": "pkg://dph.integrations.verl.reward", "name": "compute_score"}
            },
        }
    )


if __name__ == "__main__":
    FILE.write_text(defaults_text(), encoding="utf-8")
