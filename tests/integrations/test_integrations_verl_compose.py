# pyright: reportMissingImports=false
"""Every launch against verl's own configuration: no unknown key, sizes that divide, the objective that was asked for.

These runs are too large to be started here; Hydra, verl's own validation and our reading of the result check them.
"""

from pathlib import Path
from typing import Any

import pytest

from dph.config import VerlConfig, flatten, from_dict, merge_settings
from dph.errors import UserError
from dph.integrations.verl.launch import preset_launch
from dph.integrations.verl.layout import ModelShape
from dph.integrations.verl.settings import TRAINER_MODE, VENDOR, configured
from dph.objective import Objective
from helpers import METHODS, needs

pytestmark = needs("verl")

SHAPES = {
    "llama_sql": ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128),
    "omnisql_32b": ModelShape(32_763_876_352, 5120, 64, 152_064, 40, 8, 128),
    "llama_math": ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128),
    "qwen_math": ModelShape(7_615_616_512, 3584, 28, 152_064, 28, 4, 128),
}
LAUNCHES = [
    (preset, method, gpus)
    for preset in SHAPES
    for method in METHODS
    for gpus in (1, 4, 32)
    if not (preset == "omnisql_32b" and gpus == 1)  # its weights alone exceed one GPU of 80 GB
    and (method in ("dph_js", "dapo") or (preset, gpus) == ("llama_sql", 32))
]
LAUNCHES += [("llama_sql", method, 32) for method in ("bank", "bank_online")]
OPEN = ("reward.custom_reward_function.reward_kwargs.", "ray_kwargs.ray_init.runtime_env.env_vars.")
"""Tables of verl's that take any key."""


def composed(folder: Path | None, name: str = "launch") -> dict[str, Any]:
    """verl's configuration as `python -m dph.integrations.verl` sees it, in plain containers."""
    from hydra import compose, initialize_config_dir, initialize_config_module
    from omegaconf import OmegaConf

    where = (
        initialize_config_dir(str(folder), version_base=None)
        if folder
        else initialize_config_module("dph.integrations.verl", version_base=None)
    )
    with where:
        config = compose(name)
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return plain


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every key of verl's configuration and of ours."""
    return set(flatten(composed(None, "dph_trainer")))


def prefixes(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


@pytest.mark.parametrize(("preset", "method", "gpus"), LAUNCHES)
def test_a_launch_is_a_configuration_of_verls(
    preset: str, method: str, gpus: int, tmp_path: Path, known: set[str]
) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    settings = {"model": {"path": "some/model"}, "cluster": {"gpus": gpus}}
    launch = preset_launch([preset, method], tmp_path / "launch", settings, SHAPES[preset])
    plain = composed(launch.path)
    unknown = [key for key in flatten(plain) if not known.intersection(prefixes(key)) and not key.startswith(OPEN)]
    assert unknown == []

    asked = from_dict(VerlConfig, merge_settings("verl", [preset, method], []))
    config = OmegaConf.create(plain)
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    block, loss, _ = configured(resolved)
    Objective(loss)
    assert loss == asked.loss
    assert (block.rows, block.max_unjudged) == (asked.stored_rows, asked.max_unjudged)
    assert (block.overlong_buffer, block.overlong_penalty) == (asked.overlong.buffer, asked.overlong.penalty)
    assert resolved["trainer"]["v1"]["trainer_mode"] == TRAINER_MODE
    assert resolved["algorithm"]["filter_groups"]["enable"] == asked.dynamic_sampling.enabled

    wants_reference = method in ("grpo_kl", "rkl", "rkl_true", "dph_js_def")
    assert need_reference_policy(config) == wants_reference and not need_critic(config)
    validate_config(config, wants_reference, False)
    actor, rollout, data = (resolved["actor_rollout_ref"][k] for k in ("actor", "rollout", "model"))
    ranks = gpus // actor["ulysses_sequence_parallel_size"]
    assert resolved["trainer"]["nnodes"] * resolved["trainer"]["n_gpus_per_node"] == gpus
    assert actor["ppo_mini_batch_size"] * rollout["n"] % ranks == 0
    assert resolved["data"]["train_batch_size"] == asked.optim.minibatches * actor["ppo_mini_batch_size"]
    longest = resolved["data"]["max_prompt_length"] + resolved["data"]["max_response_length"]
    assert actor["ppo_max_token_len_per_gpu"] * actor["ulysses_sequence_parallel_size"] >= longest
    assert gpus % rollout["tensor_model_parallel_size"] == 0 and rollout["max_model_len"] == longest
    assert data["enable_gradient_checkpointing"]
    variables = resolved["ray_kwargs"]["ray_init"].get("runtime_env", {}).get("env_vars", {})
    assert variables == ({"VERL_ENGINE_VENDOR": VENDOR} if actor["ulysses_sequence_parallel_size"] == 1 else {})


def test_the_plain_start_has_the_same_defaults_as_a_launch(tmp_path: Path) -> None:
    """`python -m dph.integrations.verl` without a launch, and a launch: one list of what DPH-RL needs of verl."""
    settings = {"model": {"path": "some/model"}, "cluster": {"gpus": 4}}
    launch = preset_launch(["llama_sql", "dph_js"], tmp_path / "launch", settings, SHAPES["llama_sql"])
    plain, ours = composed(None, "dph_trainer"), composed(launch.path)
    for key in ("use_v1", "v1"):
        assert plain["trainer"][key] == ours["trainer"][key]
    assert plain["algorithm"]["adv_estimator"] == ours["algorithm"]["adv_estimator"] == "grpo"
    assert plain["actor_rollout_ref"]["actor"]["strategy"] == ours["actor_rollout_ref"]["actor"]["strategy"] == "fsdp2"
    path = "pkg://dph.integrations.verl.reward"
    assert plain["reward"]["custom_reward_function"]["path"] == ours["reward"]["custom_reward_function"]["path"] == path


def test_the_entry_point_registers_the_trainer() -> None:
    from importlib.metadata import entry_points

    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    (entry,) = [entry for entry in entry_points(group="verl.plugins") if entry.name == "dph"]
    entry.load()
    assert TRAINER_REGISTRY[TRAINER_MODE].__name__ == "DPHTrainerSync"


def test_a_group_is_dropped_for_what_could_be_judged_only() -> None:
    from dph.integrations.verl.judged import constant_value

    right, wrong, unknown = {"acc": 1.0, "scored": 1.0}, {"acc": 0.0, "scored": 1.0}, {"scored": 0.0}
    assert constant_value("acc", [right, unknown, right]) == 1.0
    assert constant_value("acc", [right, unknown, wrong]) is None
    nothing = constant_value("acc", [unknown, unknown])
    assert nothing is not None and nothing != nothing  # NaN: constant, with no value


def buffer(monkeypatch: pytest.MonkeyPatch, groups: list[list[dict[str, float | str]]], limit: float) -> Any:
    """A replay buffer in which these groups have finished; each response has what the reward function returned."""
    from dph.integrations.verl import trainer

    plain: Any = {"trainer_config": {}, "sampler_kwargs": {}, "max_off_policy_strategy": "drop"}
    plain |= {"max_off_policy_threshold": None, "refill_fn": lambda count: count, "filter_groups_metric": "acc"}
    made = trainer.JudgedReplayBuffer("sync", responses=8, max_unjudged=limit, **plain)
    infos = {f"g{i}_{j}_0": info for i, group in enumerate(groups) for j, info in enumerate(group)}
    made.partitions["train"] = {key: {} for key in infos}
    made.finished_keys["train"] = {f"g{i}" for i in range(len(groups))}

    def stored(keys: list[str], **_: object) -> dict[str, list[dict[str, Any]]]:
        return {"extra_fields": [{"reward_extra_info": infos[key]} for key in keys]}

    monkeypatch.setattr(trainer.tq, "kv_batch_get", stored)
    return made


RIGHT: dict[str, float | str] = {"acc": 1.0, "scored": 1.0, "outcome": "correct"}
WRONG: dict[str, float | str] = {"acc": 0.0, "scored": 1.0, "outcome": "wrong"}
LOST: dict[str, float | str] = {"scored": 0.0, "outcome": "infra_error"}


def test_outcomes_cover_the_groups_that_the_filter_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from dph.integrations.verl.judged import outcome_metrics

    made = buffer(monkeypatch, [[RIGHT, RIGHT], [RIGHT, WRONG], [WRONG, LOST]], 0.5)
    for _ in range(2):  # verl asks again at every poll
        assert made._dapo_filtered_keys("train")[0] == {"g0", "g2"}
    assert made.take_dropped() == [RIGHT, RIGHT, WRONG, LOST] and made.take_dropped() == []
    verdicts = [(str(info["outcome"]), bool(info["scored"])) for info in (RIGHT, RIGHT, RIGHT, WRONG, WRONG, LOST)]
    shares = {"correct": 3 / 6, "wrong": 2 / 6, "infra_error": 1 / 6}
    assert outcome_metrics(verdicts) == {"dph/unscored": 1 / 6} | {
        f"dph/outcome/{name}": share for name, share in shares.items()
    }
    assert outcome_metrics([("", True)]) == {"dph/unscored": 0.0}  # a reward function of the user's
    assert outcome_metrics([]) == {"dph/unscored": 0.0}


def test_a_run_whose_filter_drops_what_nothing_could_judge_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would go on to sample, because a group without verdicts is dropped like one without signal."""
    few, many = [[LOST, LOST]], [[LOST, LOST]] * 4
    assert buffer(monkeypatch, few, 0.25)._dapo_filtered_keys("train")[0] == {"g0"}  # 2 of 2 + 4 · 2
    with pytest.raises(UserError, match="judging of 8 of a step's 16 responses"):
        buffer(monkeypatch, many, 0.25)._dapo_filtered_keys("train")
    assert len(buffer(monkeypatch, many, 1.0)._dapo_filtered_keys("train")[0]) == 4
