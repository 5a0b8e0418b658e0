"""The group of processes: how it is made, how long processes wait for one of them, and one that dies."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from dph.process.distributed import TIMEOUT, World

BOTH = "import datetime, os, sys, time, torch, torch.distributed as dist\nfrom dph.process.distributed import World\n"


def two(tmp_path: Path, code: str) -> tuple[list[int], list[str], list[float]]:
    """Run code in two processes; their exit statuses, what they printed, and how long they took in seconds."""
    source = str(Path(__file__).parents[2] / "src")
    environment = os.environ | {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    begin = f"meeting, rank = 'file://{tmp_path}/rendezvous', int(os.environ['RANK'])\n"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BOTH + begin + code],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        started, printed, took = time.monotonic(), [], []
        for process in processes:
            out, err = process.communicate(timeout=100)
            printed.append(out or err)
            took.append(time.monotonic() - started)
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], printed, took


GROUP = """
seconds = datetime.timedelta(seconds={group})
dist.init_process_group('gloo', init_method=meeting, world_size=2, rank=rank, timeout=seconds)
world = World.join()
"""
SLOW = """
found = world.decided(lambda: time.sleep(4) or 'chosen')
total = world.sum_values({'a': rank + 1.0})['a']
joined = world.joined(torch.arange(float(rank + 1))).tolist()
world.wait()
weight = torch.nn.Parameter(torch.zeros(1))
weight.grad = torch.tensor([rank + 2.0])
world.sum_gradients([weight])
print(found, total, joined, weight.grad.item())
world.leave()
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_processes_share_values_and_wait_as_long_as_the_group_allows(tmp_path: Path) -> None:
    status, printed, _ = two(tmp_path, GROUP.format(group=100) + SLOW)
    assert status == [0, 0], printed
    assert printed == ["chosen 3.0 [0.0, 0.0, 1.0] 5.0\n"] * 2
    (tmp_path / "rendezvous").unlink(missing_ok=True)
    status, printed, _ = two(tmp_path, GROUP.format(group=2) + SLOW)
    assert status[1] != 0 and "imed out" in printed[1]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_process_that_dies_is_noticed_long_before_the_timeout(tmp_path: Path) -> None:
    code = "print('joined', flush=True)\nworld.decided(lambda: os._exit(3))\n"
    status, _, took = two(tmp_path, GROUP.format(group=3600) + code)
    assert status[0] == 3 and status[1] not in (0, 3)
    assert took[1] - took[0] < 30


@pytest.mark.parametrize(("cuda", "backend"), [(False, "gloo"), (True, "cpu:gloo,cuda:nccl")])
def test_an_own_group_has_gloo_for_the_host_and_hours_of_patience(
    cuda: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[object, ...]] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: made.append(("device", index)))
    stand_ins = {
        "init_process_group": lambda name, *, timeout: made.append((name, timeout)),
        "get_rank": lambda: 1,
        "get_world_size": lambda: 2,
    }
    with patch.multiple(dist, **stand_ins):
        assert World.join() == World(1, 2)
        World.join(timedelta(seconds=9))
    selected = [("device", 1)] if cuda else []
    assert made == [*selected, (backend, TIMEOUT), *selected, (backend, timedelta(seconds=9))]
    assert timedelta(hours=2) <= TIMEOUT <= timedelta(days=1)
