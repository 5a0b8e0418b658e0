# pyright: reportMissingImports=false
"""Stored responses that fill the wait for rollouts: counted across updates, and exact in verl's engine on two ranks.

verl's asynchronous trainer itself needs a checkpoint engine between GPUs and does not run here; its place is taken by a
base class that records what it would send to the training processes.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_marks import needs

pytestmark = [*needs("verl"), pytest.mark.timeout(3600)]

SUPPORT = Path(__file__).resolve().parents[1] / "verl_cpu"


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_update_does_not_depend_on_what_was_computed_before_it(ranks: int, tmp_path: Path) -> None:
    """Gradient of every case of the contract, with none, three or all of five stored responses computed before."""
    sys.path.insert(0, str(SUPPORT))
    from harness import run_ranks

    outputs = run_ranks("fill_worker.py", ranks, str(tmp_path))
    (line,) = [line for line in outputs[0].splitlines() if line.startswith("ERRORS ")]
    errors = json.loads(line.removeprefix("ERRORS "))
    assert len(errors) == 16 * 3 * 2  # gradients and divergences
    assert max(errors.values()) < 1e-5


class Base:
    """In the place of verl's trainer."""

    parameter_sync_step = 3

    def __init__(self, config: Any) -> None:
        self.sent: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.global_steps, self.local_trigger_step = 1, 0

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        from dph.integrations.verl.worker import FILL

        kind = "fill" if batch.extra_info.get(FILL) else "update"
        self.sent.append((kind, list(batch.rows), dict(batch.extra_info)))
        tokens = sum(len(row.response_ids) for row in batch.rows)
        metrics["actor/pef/tokens"] = float(tokens)
        every = tokens + batch.extra_info.get("dph_filled", (0, 0))[0]
        metrics["actor/pef/divergence"] = 0.25 * tokens / (1 if kind == "fill" else every)
        return batch


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return self.size


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our trainer between the recording base and a queue that hands rows through; 11 stored responses a step."""
    from dph.integrations.verl import trainer as synchronous
    from dph.integrations.verl import trainer_async
    from dph.integrations.verl.settings import DPHSettings
    from dph.rehearsal.store import Rehearsal, RehearsalSet

    class Trainer(trainer_async.FillingMixin, Base):
        _ranks = 2  # type: ignore[assignment]

    def joined(batch: Any, rows: Any, *_: Any) -> tuple[Any, Any]:
        return Batch(rows=rows, size=4, extra_info=batch.extra_info), Batch(rows=rows, size=len(rows))

    def alone(rows: Any, *_: Any) -> Any:
        return Batch(rows=rows, size=len(rows), extra_info={})

    monkeypatch.setattr(synchronous, "put_rows", joined)
    monkeypatch.setattr(trainer_async, "put_alone", alone)
    monkeypatch.setattr(synchronous, "remove_rows", lambda _: None)
    monkeypatch.setattr(trainer_async, "remove_rows", lambda _: None)
    made: Any = object.__new__(Trainer)
    Base.__init__(made, None)
    stored = [Rehearsal([1], [2] * (1 + index % 5), f"p{index}", [-0.1] * (1 + index % 5), "") for index in range(50)]
    made._dph, made._checked = DPHSettings(rows=11, rehearsal="run", fill_rows=2), True
    made._stored = None, RehearsalSet(stored, 0)
    made._filled, made._sums, made._fill_metrics = [], {}, {}
    actor = SimpleNamespace(ppo_mini_batch_size=2)
    made.config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(actor=actor, rollout=SimpleNamespace(n=2)),
        trainer=SimpleNamespace(critic_warmup=0),
    )
    return made


def test_every_stored_response_of_a_step_is_used_once_however_long_the_waits_are(trainer: Any) -> None:
    """Three updates a step have 3, 4 and 4 of 11 responses; waits with no, one and more fills than there is work."""
    from dph.integrations.verl.worker import FILLED

    waits = [0, 1, 9, 9, 0, 1]
    for update, fills in enumerate(waits):
        trainer.global_steps, trainer.local_trigger_step = 1 + update // 3, update % 3
        done = [trainer._fill() for _ in range(fills)]
        assert done == sorted(done, reverse=True)  # once there is nothing left, there stays nothing
        metrics: dict[str, Any] = {}
        trainer._update_actor(Batch(size=4, rows=[], extra_info={}), metrics)
        own = trainer._rows_of_update()
        assert metrics["dph/rehearsal_rows"] == len(own) == (3, 4, 4)[update % 3]
        assert metrics["dph/filled_rows"] == min(2 * fills, len(own))
        # The mean of 0.25 a token, over those computed before and those that joined
        assert metrics["actor/pef/divergence"] == pytest.approx(0.25)
        assert metrics["actor/pef/tokens"] == sum(len(row.response_ids) for row in own)
        kind, rows, extra = trainer.sent[-1]
        before = own[: len(own) - len(rows)]
        expected = (sum(len(row.response_ids) for row in before), len(before)) if before else None
        assert kind == "update" and extra.get(FILLED) == expected
    sent = [row for _, rows, _ in trainer.sent for row in rows]
    assert sent == trainer._stored[1].take(0, 22)  # those of two steps of the synchronous trainer, in order


def test_nothing_is_computed_before_an_update_that_does_not_come(trainer: Any) -> None:
    trainer.config.trainer.critic_warmup = 2
    assert not trainer._fill() and trainer.sent == []


def test_the_wait_for_rollouts_is_filled_and_that_for_validation_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from dph.integrations.verl import replay

    slept: list[str] = []
    monkeypatch.setattr(
        replay.ReplayBufferAsync, "_wait_for_next_poll", lambda self, partition, _: slept.append(partition)
    )
    work = iter([True, True, False])
    buffer = object.__new__(replay.FillingReplayBuffer)
    buffer._fill = lambda: next(work)
    for partition in ("train", "val", "train", "train"):
        buffer._wait_for_next_poll(partition, 0.0)
    assert slept == ["val", "train"]


def test_the_modes_are_registered() -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSeparateAsync
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    import dph.integrations.verl.plugin  # noqa: F401

    made = TRAINER_REGISTRY["dph_separate_async"]
    assert issubclass(made, PPOTrainerSeparateAsync) and made.base_mode == "separate_async"
