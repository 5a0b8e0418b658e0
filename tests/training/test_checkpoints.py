"""Checkpoints: exact, whole or absent, the newest kept, damage named."""

import json

import pytest
import torch
from safetensors.torch import save_file

from dph.config import ModelConfig, OptimConfig
from dph.errors import RunError
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.runs.directory import RunDir
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.optim import Optimizer
from dph.training.rows import collate
from dph.training.run_loop import Saver
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


def newest_of(run):
    step = checkpoints.newest_intact(run)
    assert step is not None
    return checkpoints.path_of(run, step)


def adapted(path):
    return Policy.load(ModelConfig(path=str(path), device="cpu", lora_rank=2))


def test_a_checkpoint_holds_weights_moments_and_cursors(tmp_path):
    policy = tiny_policy()
    optimizer = stepped(policy)
    checkpoints.save(tmp_path, policy, optimizer, STATE, keep=2)
    newest = newest_of(tmp_path)
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
    newest = newest_of(tmp_path)
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
    assert checkpoints.newest_intact(tmp_path / "elsewhere") is None


def three(run):
    """A run with checkpoints after steps 1, 2 and 3."""
    policy = tiny_policy()
    optimizer = stepped(policy, 1)
    for step in (1, 2, 3):
        checkpoints.save(run, policy, optimizer, TrainState(step=step), 3)
    return run


def spoil(checkpoint, name, how):
    path = checkpoint / name
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:  # one bit
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])


DAMAGE = [
    (name, how)
    for name in ("model/model.safetensors", "model/tokenizer.json", "trainer.safetensors", "state.json")
    for how in ("missing", "cut", "bit")
] + [("checksums.json", "missing"), ("checksums.json", "cut")]


@pytest.mark.parametrize(("name", "how"), DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, capsys, name, how):
    run = three(tmp_path)
    spoil(checkpoints.path_of(run, 3), name, how)
    assert checkpoints.newest_intact(run) == 2
    said = capsys.readouterr().err
    assert "the checkpoint after step 3 is damaged (" in said and name.rpartition("/")[2] in said
    assert "continuing from the previous one, after step 2" in said
    assert checkpoints.steps_saved(run) == [1, 2]
    assert (run / "checkpoints" / "damaged-step-00000003").is_dir()
    assert checkpoints.newest_intact(run) == 2 and not capsys.readouterr().err  # said once


def test_two_damaged_ones_and_none_intact(tmp_path, capsys):
    run = three(tmp_path)
    spoil(checkpoints.path_of(run, 3), "state.json", "cut")
    spoil(checkpoints.path_of(run, 2), "trainer.safetensors", "bit")
    assert checkpoints.newest_intact(run) == 1
    assert "step 3 is damaged" in (said := capsys.readouterr().err) and "step 2 is damaged" in said
    spoil(checkpoints.path_of(run, 1), "model/model.safetensors", "cut")
    with pytest.raises(RunError, match=r"no checkpoint of .* can be used"):
        checkpoints.newest_intact(run)
    assert checkpoints.steps_saved(run) == [1]  # nothing is set aside where there is nothing to go on from


def test_a_checkpoint_of_another_model_does_not_fit(tmp_path):
    run = three(tmp_path)
    other = Optimizer([("elsewhere", torch.nn.Parameter(torch.zeros(2)))], CONFIG, 10)
    other.parameters[0].grad = torch.ones(2)
    other.step()
    policy = tiny_policy()
    save_file({"weight/elsewhere": torch.zeros(2)}, checkpoints.path_of(run, 3) / "trainer.safetensors")
    with pytest.raises(RunError, match=r"step-00000003 does not fit this run"):
        checkpoints.restore(checkpoints.path_of(run, 3), policy, other)


def test_the_best_is_kept_besides_the_newest(tmp_path):
    policy = tiny_policy()
    optimizer = Optimizer(policy.trainable(), CONFIG, 10)
    for step, best in ((1, ()), (2, (2,)), (3, (2,)), (4, (2,)), (5, (5,))):
        checkpoints.save(tmp_path, policy, optimizer, TrainState(step=step), 1, best)
        assert checkpoints.steps_saved(tmp_path) == sorted({step, *best})


@pytest.mark.parametrize(("keep", "left"), [(1, [6]), (2, [4, 6]), (0, [2, 4, 6])])
def test_what_an_interruption_saved_displaces_no_other_and_goes_with_the_next(tmp_path, keep, left):
    policy = tiny_policy()
    saver = Saver(RunDir(tmp_path, {}), policy, Optimizer(policy.trainable(), CONFIG, 10), STATE, World(), keep=keep)
    kept = []
    for step, due in ((2, True), (3, False), (4, True), (5, False), (6, True)):
        saver.state = TrainState(step=step)
        assert saver.save() is None if due else saver.rescue()
        kept.append(checkpoints.steps_saved(tmp_path))
        assert newest_of(tmp_path) == saver.path
    assert set(kept[3]) == {2, 4, 5} - ({2} if keep == 1 else set())
    assert kept[-1] == left


def test_a_checkpoint_takes_the_place_of_one_of_the_same_step(tmp_path):
    policy = tiny_policy()
    optimizer = Optimizer(policy.trainable(), CONFIG, 10)
    for pending in ({"loss": 1 / 3}, None):
        state = TrainState(step=1, pending=pending)
        checkpoints.save(tmp_path, policy, optimizer, state, 2)
        assert checkpoints.restore(newest_of(tmp_path), policy, optimizer) == state
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_the_state_is_readable(tmp_path):
    policy = tiny_policy()
    checkpoints.save(tmp_path, policy, Optimizer(policy.trainable(), CONFIG, 1), STATE, 1)
    text = (newest_of(tmp_path) / "state.json").read_text()
    cursors = {"step": 3, "explore_cursor": 17, "rehearsal_cursor": 5, "optimizer_steps": 6}
    assert json.loads(text) == cursors | {"skipped_in_a_row": 0, "token_budget": 0, "pending": None}


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", -1), ("step", 1.5), ("step", True), ("explore_cursor", "3"), ("token_budget", float("nan"))],
)
def test_a_state_of_other_kinds_is_refused(tmp_path, name, value):
    whole = {"step": 3, "token_budget": 512, "pending": None}
    (tmp_path / "state.json").write_text(json.dumps(whole))
    assert checkpoints.read_state(tmp_path) == TrainState(step=3, token_budget=512)
    (tmp_path / "state.json").write_text(json.dumps(whole | {name: value}))
    with pytest.raises(RunError, match=f"cannot be used: {name} is "):
        checkpoints.read_state(tmp_path)
