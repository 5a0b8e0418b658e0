"""Every setting of `dph train` reaches verl: each is changed, and verl's configuration is compared."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from torch import Tensor

from dph.config import MonitorSet, TrainConfig, VerlConfig, flatten, from_dict, merge_settings, to_dict
from dph.errors import UserError
from dph.integrations.verl.configuration import WITHOUT_EFFECT, unused_settings, verl_config
from dph.integrations.verl.launch import verl
from dph.integrations.verl.layout import ModelShape, plan
from dph.objective import GroupView, register_advantage

LLAMA_8B = ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128)
READ_BY_DATA = {"prompt_set", "monitor.limit", "monitor.split"} | {
    f"task.{name}" for name in ("limit", "name", "requires", "shuffle", "split")
}
"""Settings that data.sh acts on: they choose problems, and leave verl's configuration as it is."""
REFUSED = {
    *("advantage.name", "rollout.old_logprobs", "trained_share"),
    *("reward.correct_from", "reward.function", "reward.in_process"),
    *("rollout.turns", "rollout.tool_tokens"),
}
"""Settings with one way in verl: every other value is refused, or means that same way."""
OTHERS: dict[str, tuple[Any, ...]] = {
    "bank.key": ("text",),
    "model.path": ("another/model",),
    "plugins": (("another.py",),),
    "model.lora_targets": ("q_proj,v_proj",),
    "loss.policy": ("gspo",),
    "rollout.prompts": (256,),
    "rollout.stop": (("\n\n",),),
    "rehearsal.rows": (64, 0),
    "model.date": ("2025-02-03",),
    "loss.dual_clip": (3.0,),
    "optim.minibatches": (4,),
    "optim.tokens_per_microbatch": (40000,),
}
"""Values to try where numbers and words at random would be refused."""

BESIDE: dict[str, dict[str, Any]] = {
    "loss.js_scale": {"loss": {"estimator": "definition"}},
    "loss.js_ratio": {"loss": {"estimator": "definition"}},
    "loss.kl_coef": {"loss": {"kl": "k3"}},
}
"""Settings without which another value would be refused."""


def config_of(**changes: Any) -> VerlConfig:
    """A launch in which as many settings as possible have an effect, with changes."""
    default = from_dict(VerlConfig, merge_settings("verl", ["llama_sql", "dph_js"], []))
    usual = {"model": {"path": "some/model", "lora_rank": 8}, "cluster": {"gpus": 32}}
    return from_dict(VerlConfig, changes, default=from_dict(VerlConfig, usual, default=default))


def leaf_type(name: str) -> Any:
    kind: Any = TrainConfig
    for part in name.split("."):
        kind = get_type_hints(kind)[part]
    return kind


def other_values(name: str, value: Any) -> Iterator[Any]:
    """Values that a setting might have instead."""
    kind = leaf_type(name)
    if name in OTHERS:
        yield from OTHERS[name]
    elif get_origin(kind) is Literal:
        yield from (word for word in get_args(kind) if word != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield 2 * value or 1
    elif isinstance(value, float):
        yield value / 2 or 0.5
    else:
        yield f"{value}x"


def result(config: VerlConfig) -> dict[str, Any]:
    """verl's configuration for these settings."""
    return verl_config(config, plan(LLAMA_8B, config), Path(config.out))


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


LEAVES = flatten(to_dict(TrainConfig()))


@pytest.mark.parametrize("name", LEAVES)
def test_every_setting_is_mapped_or_refused_or_listed(name: str) -> None:
    usual, found = config_of(**BESIDE.get(name, {})), set()
    for value in other_values(name, flatten(to_dict(usual))[name]):
        try:
            changed = from_dict(VerlConfig, nested(name, value), default=usual)
            found.add("mapped" if result(changed) != result(usual) else "same")
        except UserError:
            found.add("refused")
    listed = {"same"} if name in WITHOUT_EFFECT or name in READ_BY_DATA else {"mapped"}
    if name in REFUSED:
        assert "refused" in found and "mapped" not in found
    else:
        assert found - {"refused"} == listed


def test_the_division_by_the_std_can_be_left_out_in_verl() -> None:
    def divides(**options: str) -> bool:
        return result(config_of(advantage={"options": options}))["algorithm"]["norm_adv_by_std_in_grpo"]

    assert divides() and divides(normalize_std="true") and not divides(normalize_std="false")
    with pytest.raises(UserError, match="must be true or false, not 'no'"):
        divides(normalize_std="no")

    @register_advantage("test_own_std")
    def own(group: GroupView, *, normalize_std: bool = True) -> Tensor:
        return group.centred

    config = result(config_of(advantage={"name": "test_own_std", "options": {"normalize_std": "false"}}))
    assert config["algorithm"]["norm_adv_by_std_in_grpo"] is True  # verl's setting is for GRPO's own advantage
    assert config["dph"]["advantage_options"] == {"normalize_std": "false"}


def test_other_advantages_reach_verl_with_their_options() -> None:
    def block(name: str, **options: str) -> dict[str, Any]:
        return result(config_of(advantage={"name": name, "options": options}))["dph"]

    found = block("passk", k="8")
    assert (found["advantage"], found["advantage_options"]) == ("passk", {"k": "8"})
    found = block("group", eps="1e-3", normalize_std="false")
    assert (found["advantage"], found["advantage_options"]) == ("group", {"eps": "1e-3"})
    assert block("uniqueness", by="text")["advantage"] == "uniqueness"
    for options in ({}, {"by": "answer"}):
        with pytest.raises(UserError, match="without their problems"):
            block("uniqueness", **options)
    with pytest.raises(UserError, match="kk"):
        block("passk", kk="8")


def test_a_monitored_set_has_as_many_samples_as_the_others() -> None:
    sets = {"sums": MonitorSet(task="countdown", n=4)}
    changed = replace(config_of().monitor, n=4, sets=sets)
    assert result(replace(config_of(), monitor=changed))["actor_rollout_ref"]["rollout"]["val_kwargs"]["n"] == 4
    with pytest.raises(UserError, match="as many samples for every monitored set"):
        result(replace(config_of(), monitor=replace(changed, n=8)))


def test_every_listed_setting_exists() -> None:
    assert {*WITHOUT_EFFECT, *READ_BY_DATA, *REFUSED} <= LEAVES.keys()
    assert not (WITHOUT_EFFECT.keys() & READ_BY_DATA or WITHOUT_EFFECT.keys() & REFUSED)


def test_settings_without_effect_are_named_where_they_were_changed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unused_settings(VerlConfig()) == []
    as_verl_does = {"model": {"gradient_checkpointing": True}, "sampler": {"engine": "vllm"}}
    assert unused_settings(from_dict(VerlConfig, as_verl_does)) == []
    config = config_of(out=str(tmp_path / "launch"), optim={"max_skipped": 3}, sampler={"memory": 0.5})
    monkeypatch.setattr("dph.integrations.verl.launch.read_shape", lambda *_, **__: LLAMA_8B)
    verl(config)
    assert "training through verl does not use: optim.max_skipped, sampler.memory" in capfd.readouterr().err
