"""Checkpoints: exact, whole or absent, the newest kept, damage named."""

import json

import pytest
import torch

from dph import checkpoints
from dph.checkpoints import TrainState
from dph.config import ModelConfig, OptimConfig
from dph.errors import UserError
from dph.models.batch import collate
from dph.models.policy import Policy
from dph.optim import Optimizer
from helpers import gradient, random_rows, tiny_policy, weights

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft
CONFIG = OptimConfig(lr=1e-2)
STATE = TrainState(step=3, explore_cursor=17, rehearsal_cursor=5, optimizer_steps=6)


def stepped(policy, steps=2):
    optimizer = Optimizer(policy.trainable(), CONFIG, 10)
    for seed in range(steps):
        policy.logprobs(collate(random_rows(policy, 4, seed)))[0].sum().backward()
        optimizer.step()
    return optimizer


def adapted(path):
    return Policy.load(ModelConfig(path=str(path), device="cpu", lora_rank=2))


def test_a_checkpoint_holds_weights_moments_and_cursors(tmp_path):
    policy = tiny_policy()
    optimizer = stepped(policy)
    checkpoints.save(tmp_path, policy, optimizer, STATE, keep=2)
    newest = checkpoints.newest(tmp_path)
    assert newest == tmp_path / "checkpoints" / "step-00000003"
    again = Policy.load(ModelConfig(path=str(newest / "model"), device="cpu"))
    restored = Optimizer(again.trainable(), CONFIG, 10)
    assert checkpoints.restore(newest, again, restored) == STATE == checkpoints.read_state(newest)
    assert again.weight_hash() == policy.weight_hash() and restored.steps_taken == 6
    before, after = optimizer.state(), restored.state()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_adapters_are_restored_into_the_base_model(tmp_path):
    tiny_policy().save(tmp_path / "base")
    policy = adapted(tmp_path / "base")
    optimizer = stepped(policy)
    checkpoints.save(tmp_path, policy, optimizer, STATE, keep=1)
    newest = checkpoints.newest(tmp_path)
    again = adapted(tmp_path / "base")
    rows = collate(random_rows(policy, 3))
    assert not torch.equal(again.logprobs(rows)[0], policy.logprobs(rows)[0])
    restored = Optimizer(again.trainable(), CONFIG, 10)
    checkpoints.restore(newest, again, restored)
    assert torch.equal(again.logprobs(rows)[0], policy.logprobs(rows)[0])
    for either, its_optimizer in ((policy, optimizer), (again, restored)):
        either.logprobs(rows)[0].sum().backward()
        assert gradient(either).any()
        its_optimizer.steps_taken = 6
        its_optimizer.step()
    assert torch.equal(again.logprobs(rows)[0], policy.logprobs(rows)[0])
    assert weights(newest / "model").keys() == weights(tmp_path / "base").keys()


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (9, [1, 2, 3, 4]), (0, [1, 2, 3, 4])])
def test_the_newest_are_kept(tmp_path, keep, left):
    policy = tiny_policy()
    optimizer = Optimizer(policy.trainable(), CONFIG, 10)
    for step in range(1, 5):
        checkpoints.save(tmp_path, policy, optimizer, TrainState(step=step), keep)
    assert checkpoints.steps_saved(tmp_path) == left


def test_what_an_interruption_leaves_is_no_checkpoint(tmp_path, monkeypatch):
    policy = tiny_policy()
    optimizer = Optimizer(policy.trainable(), CONFIG, 10)
    checkpoints.save(tmp_path, policy, optimizer, TrainState(step=1), 2)

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(tmp_path, policy, optimizer, TrainState(step=2), 2)
    (tmp_path / "checkpoints" / ".step-00000003.99.tmp").mkdir()  # killed on the spot
    (tmp_path / "checkpoints" / "step-notes").mkdir()
    assert checkpoints.steps_saved(tmp_path) == [1]
    assert checkpoints.newest(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", b'{"step": '),
        ("state.json", b'{"step": 1, "more": 2}'),
        ("state.json", None),
        ("trainer.safetensors", b"\x10\x00\x00"),
        ("trainer.safetensors", None),
    ],
)
def test_damage_is_named_with_what_to_do(tmp_path, name, content):
    policy = tiny_policy()
    optimizer = stepped(policy, 1)
    checkpoints.save(tmp_path, policy, optimizer, STATE, 1)
    newest = checkpoints.newest(tmp_path)
    if content is None:
        (newest / name).unlink()
    else:
        (newest / name).write_bytes(content)
    with pytest.raises(UserError, match=r"step-00000003 is damaged .*; delete it to go on from the one before"):
        checkpoints.restore(newest, policy, optimizer)


def test_the_state_is_readable(tmp_path):
    policy = tiny_policy()
    checkpoints.save(tmp_path, policy, Optimizer(policy.trainable(), CONFIG, 1), STATE, 1)
    text = (checkpoints.newest(tmp_path) / "state.json").read_text()
    assert json.loads(text) == {"step": 3, "explore_cursor": 17, "rehearsal_cursor": 5, "optimizer_steps": 6}
