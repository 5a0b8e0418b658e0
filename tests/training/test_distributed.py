"""Two processes that train together (gloo) against one process alone: the same sums, steps and runs."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
import torch

from dph.config import LossConfig, MonitorConfig, MonitorSet, OptimConfig
from dph.errors import Interrupted, UserError
from dph.models.batch import by_prompt
from dph.models.policy import Policy
from dph.objective import Objective
from dph.process.distributed import World
from dph.runs.directory import read_metrics
from dph.runs.samples import read_kept_samples
from dph.training import checkpoints, rollouts
from dph.training.optim import Optimizer
from dph.training.update import Updater
from dph.types import Outcome, Verdict
from helpers import (
    base_run,
    folder,
    gradient,
    kept_aside,
    presampled,
    random_rows,
    tiny_policy,
    train_config,
    weights,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TRAINED = ("grpo", "dapo", "dph_js", "dph_js_def", "bank")


def step(world, sizes=(8, 1, 0)):
    """One update of mini-batches of these sizes, the rows dealt out over processes; one process may get none of one."""
    policy = tiny_policy()
    objective = Objective(LossConfig(divergence="forward_kl"))
    optimizer = Optimizer(policy.trainable(), OptimConfig(lr=1e-2, grad_clip=0.5), 10)
    seen = []
    take = optimizer.step
    optimizer.step = lambda: seen.append(gradient(policy)) or take()
    rows = iter(random_rows(policy, sum(sizes), seed=5, rehearsal_every=3))
    parts = [[next(rows) for _ in range(size)] for size in sizes]
    minibatches = [[part[i] for i in world.share(len(part))] for part in parts]
    updater = Updater(policy, objective, optimizer, temperature=1.0, token_budget=16384, world=world)
    metrics = updater.update([by_prompt(rows) for rows in minibatches], recompute_old=False)
    parameters = torch.cat([p.detach().flatten() for _, p in policy.trainable()])
    return {"metrics": metrics, "gradient": seen[0], "weights": parameters}


def runs(out, methods=TRAINED):
    from dph.stages.train import train

    for method in methods:
        sets = {"easy": MonitorSet(split="easy", limit=3, n=2)}
        monitor = MonitorConfig(every=1, split="dev", limit=1, n=2, sets=sets)  # fewer problems than processes
        settings = {"bank": {"key": "every", "capacity": 3}} if method == "bank" else None
        train(train_config(out / method, method, settings, monitor=monitor))


def certified(out):
    """Two steps, each followed by a certificate."""
    from dph.stages.train import train

    path = str(kept_aside())
    settings = {
        "task": {"name": "toy", "options": {"problems": "120"}},
        "rehearsal": {"path": path, "rows": 0},
        "certify": {"set": path, "epsilon": 0.1, "every": 1, "stop": False},
    }
    return train(train_config(out / "certified", "grpo", settings))


def faulty(out, world):
    """What each process says when one of them, or the place of the run, is at fault."""
    from dph.runs.tracking import Metrics
    from dph.stages import train as module

    config = train_config(out / "faults", "grpo", {"steps": 3, "checkpoint_every": 1})
    said = {}

    def refused(name, settings, *, resume=False):
        try:
            module.train(settings, resume=resume)
        except UserError as error:
            said[name] = str(error)
        except Interrupted as error:
            said[name] = str(error)

    def mistake(*_args, **_more):
        raise UserError(f"process {world.rank} cannot go on")

    def in_process(rank, owner, name, call, action):
        """From a number of calls on, do something before each call of a function, in one process only."""
        inner, calls = getattr(owner, name), []

        def outer(*args, **more):
            calls.append(1)
            if len(calls) >= call and world.rank == rank:
                action()
            return inner(*args, **more)

        return patch.object(owner, name, outer)

    with in_process(0, Metrics, "__init__", 1, mistake):
        refused("tracker", config)
    with in_process(1, Policy, "to_train", 1, mistake):
        refused("loading", config)
    with in_process(1, rollouts, "sample_groups", 2, mistake):
        refused("sampling", config)
    refused("no resume", config)
    with in_process(0, checkpoints, "save", 1, mistake):
        refused("checkpoint", config, resume=True)
    with in_process(1, Updater, "update", 1, terminate):
        refused("signal", config, resume=True)
    reset_signals()
    module.train(config, resume=True)

    rare = train_config(out / "rare", "grpo", {"steps": 4, "checkpoint_every": 4})
    with in_process(0, checkpoints, "save", 1, lambda: time.sleep(1)):
        with in_process(1, Updater, "update", 1, terminate):
            refused("rare checkpoints", rare)
        said["saved before a process left"] = checkpoints.steps_saved(out / "rare")
        reset_signals()
        with patch.object(rollouts, "sample_groups", unjudged_after(1, world)):
            refused("judging", rare, resume=True)
        said["saved before a process left, judging"] = checkpoints.steps_saved(out / "rare")
    return said


def terminate():
    signal.raise_signal(signal.SIGTERM)


def reset_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def unjudged_after(steps, world):
    """`sample_groups`, of which the second process can judge nothing after a number of steps."""
    sample, calls = rollouts.sample_groups, []

    def sampled(*given):
        calls.append(1)
        groups = sample(*given)
        if len(calls) <= steps or world.rank != 1:
            return groups
        lost = Verdict(Outcome.INFRA_ERROR, 0.0, detail="no worker")
        return [replace(g, rollouts=[replace(r, verdict=lost) for r in g.rollouts]) for g in groups]

    return sampled


def work(out):
    """What each of the two processes does."""
    world = World.join()
    torch.save(step(world), out / f"step{world.rank}.pt")
    torch.save(step(world, (9,)), out / f"fixed{world.rank}.pt")
    (out / f"said{world.rank}.json").write_text(json.dumps(faulty(out, world)))
    sums = world.sum_values({"b": 0.1 * (world.rank + 1), "a": float(world.rank)})
    gathered = world.gather({"rank": world.rank})
    shares = [list(share) for share in world.gather(world.share(5))]
    lone = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    lone[0].grad = torch.tensor([1.0, 2.0]) * (world.rank + 1)
    if world.rank == 1:
        lone[1].grad = torch.tensor([5.0])
    world.sum_gradients(lone)
    gradients = [None if p.grad is None else p.grad.tolist() for p in lone]
    facts = {"sums": sums, "gathered": gathered, "shares": shares, "gradients": gradients, "leads": world.leads}
    (out / f"facts{world.rank}.json").write_text(json.dumps(facts))
    runs(out)
    certified(out)
    world.leave()


@pytest.fixture(scope="module")
def together():
    """Folder of what two processes wrote."""
    out = folder()
    here = Path(__file__).parents[1]
    code = (
        f"import sys; sys.path[:0] = {[str(here), str(Path(__file__).parent)]!r}\n"
        "import helpers, pathlib, torch.distributed as dist, os\n"
        f"meeting, rank = 'file://{out}/rendezvous', int(os.environ['RANK'])\n"
        "dist.init_process_group('gloo', init_method=meeting, world_size=2, rank=rank)\n"
        f"helpers.base_run = lambda: pathlib.Path({str(base_run())!r})\n"
        f"helpers.presampled = lambda: pathlib.Path({str(presampled())!r})\n"
        f"helpers.kept_aside = lambda: pathlib.Path({str(kept_aside())!r})\n"
        f"import test_distributed as t\nt.work(pathlib.Path({str(out)!r}))\n"
    )
    source = str(here.parent / "src")
    environment = os.environ | {
        "WORLD_SIZE": "2",
        "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return out


def facts(out, rank):
    return json.loads((out / f"facts{rank}.json").read_text())


def test_sums_values_and_shares(together):
    for rank in (0, 1):
        found = facts(together, rank)
        assert found["sums"] == {"a": 1.0, "b": pytest.approx(0.3, abs=1e-15)}
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}] and found["shares"] == [[0, 2, 4], [1, 3]]
        assert found["gradients"] == [[3.0, 6.0], [5.0], None] and found["leads"] is (rank == 0)


def test_an_update_is_that_of_one_process(together):
    alone = step(World())
    both = [torch.load(together / f"step{rank}.pt") for rank in (0, 1)]
    assert torch.equal(both[0]["weights"], both[1]["weights"])
    for found in both:
        # fp32 sums in another order: 1e-6 of the largest gradient
        assert float((found["gradient"] - alone["gradient"]).abs().max()) <= 1e-6 * float(alone["gradient"].abs().max())
        # Adam's first steps are lr·g/(|g| + 1e-8): an error of 1e-8 in a gradient near zero may move lr = 1e-2 itself
        change = (found["weights"] - alone["weights"]).abs()
        assert float(change.median()) <= 1e-7 and float(change.mean()) <= 1e-5
        assert found["metrics"] == {
            name: pytest.approx(value, rel=1e-4, abs=1e-5) for name, value in alone["metrics"].items()
        }


def test_loss_and_gradient_of_a_fixed_batch_are_those_of_one_process(together):
    """To 1e-6, relative: fp32 sums in another order."""
    alone = step(World(), (9,))
    for rank in (0, 1):
        found = torch.load(together / f"fixed{rank}.pt")
        difference = found["gradient"] - alone["gradient"]
        assert float(difference.norm()) <= 1e-6 * float(alone["gradient"].norm())
        assert found["metrics"]["loss"] == pytest.approx(alone["metrics"]["loss"], rel=1e-6)
        assert found["metrics"]["grad_norm"] == pytest.approx(alone["metrics"]["grad_norm"], rel=1e-6)


def test_a_mistake_or_signal_of_one_process_stops_both_with_the_state_saved(together):
    """No process waits for one that has left, and none leaves while another saves, because torchrun would then end
    that one; the run then goes on to the end of an undisturbed one."""
    said = [json.loads((together / f"said{rank}.json").read_text()) for rank in (0, 1)]
    assert said[0] == said[1]
    place = str(together / "faults")
    assert said[0] == {
        "tracker": "process 0 cannot go on",
        "loading": "process 1 cannot go on",
        "sampling": "process 1 cannot go on",
        "no resume": f"{place} already holds a run; add --resume to continue it, or use a different --out",
        "checkpoint": "process 0 cannot go on",
        "signal": "stopped after step 2 of 3, which is saved; the same command with --resume continues",
        "rare checkpoints": "stopped after step 1 of 4, which is saved; the same command with --resume continues",
        "saved before a process left": [1],
        "judging": "8 of 16 responses could not be judged (no worker); check the reward function or the verifier's "
        "processes, then continue with --resume, or raise --max-unjudged",
        "saved before a process left, judging": [2],  # it takes the place of the one before, which was not due either
    }
    config = train_config(folder(), "grpo", {"steps": 3, "checkpoint_every": 1})
    from dph.stages.train import train

    lines = [read_metrics(path) for path in (together / "faults", train(config))]
    for one, two in zip(*lines, strict=True):
        assert two == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in one.items()}


@pytest.mark.parametrize("method", TRAINED)
def test_a_run_is_that_of_one_process(together, method):
    alone = folder()
    runs(alone, (method,))
    lines = [read_metrics(out / method) for out in (alone, together)]
    kept = [
        [
            (s.source, s.step, s.id, s.sample, s.response)
            for source in ("rollouts", "monitor")
            for s in read_kept_samples(run, source)
        ]
        for run in (alone / method, together / method)
    ]
    assert kept[0] == kept[1] and len(kept[0]) > 20
    visits = [(run / "coverage.jsonl").read_text() for run in (alone / method, together / method)]
    assert visits[0] == visits[1] and len(visits[0].splitlines()) == 3  # the pre-sampling and two steps
    assert [line["step"] for line in lines[1]] == [0, 1, 2] and lines[0][0].keys() == lines[1][0].keys()
    for one, two in zip(*lines, strict=True):
        # the same responses; losses are sums in another order, and the second step follows Adam's (see above)
        assert two == {name: pytest.approx(value, rel=1e-3, abs=1e-4) for name, value in one.items()}
    banks = [bank_of(run) for run in (alone / method, together / method)]
    assert banks[0] == banks[1] and bool(banks[0]) == (method == "bank")
    one, two = (weights(out / method / "model") for out in (alone, together))
    for name, value in one.items():
        assert float((value - two[name]).abs().mean()) <= 1e-5, name  # against steps of 1e-3
    assert (together / method / "manifest.json").read_text().count("complete") == 1


def bank_of(run):
    """What the steps of a run admitted, in order, without log-probabilities, and the counters of its checkpoint."""
    names = ["problem_id", "mode", "prompt_ids", "response_ids", "text"]
    found = [(file.name, pq.read_table(file, columns=names).to_pylist()) for file in sorted(run.glob("bank/*.parquet"))]
    counters = [pq.read_table(file).to_pylist() for file in sorted(run.glob("checkpoints/*/bank.parquet"))]
    return [*found, *counters]


def test_certificates_are_those_of_one_process(together):
    """The same problems, samples and bounds: the order of the problems, on which a bound by betting depends, too."""
    alone, both = certified(folder()), together / "certified"
    texts = [(run / "certificate.jsonl").read_text() for run in (alone, both)]
    assert len(texts[0].splitlines()) == 3 and texts[0] == texts[1]
    names = ("certify/loss", "certify/bound", "certify/lost", "certify/certified")
    lines = [
        [{name: line[name] for name in names if name in line} for line in read_metrics(run)] for run in (alone, both)
    ]
    assert lines[0] == lines[1] and sum("certify/bound" in line for line in lines[0]) == 2
    assert (both / "certified").exists() == (alone / "certified").exists()
