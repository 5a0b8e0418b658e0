"""`dph doctor`: it finds what is broken, says what to do, and returns an exit status."""

import json
import os
import shutil
import sqlite3
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import dph.doctor
from dph.cli.main import main
from dph.doctor import gpu, machine, sandbox, smoke
from dph.doctor.finding import Finding, broken, note, ok
from dph.errors import UserError
from dph.process import memory
from dph.types import Outcome, Verdict


def status_of(findings):
    return {finding.name: finding.status for finding in findings}


def run(capsys, *words):
    try:
        main(["doctor", *words])
        status = 0
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture
def checks(monkeypatch):
    """Findings to be reported in place of the real ones."""
    given = {"check_installation": [ok("Python", "3")], "check_processors": [], "check_room": []}
    for name in given:
        monkeypatch.setattr(machine, name, lambda *_, name=name: given[name])
    monkeypatch.setattr(sandbox, "check_sandbox", lambda: [note("limits", "none", "use Linux")])
    monkeypatch.setattr(smoke, "check_smoke", lambda device: [ok("training", device)])
    return given


# The command --------------------------------------------------------------------------------------------------------


def test_all_is_well(checks, capsys):
    status, out, err = run(capsys)
    assert status == 0 and err == ""
    assert out.splitlines() == [
        *("Installation", "  ok     Python: 3", "Processors", "Memory and disk", "Sandbox"),
        *("  note   limits: none", "           → use Linux", "Smoke run", "  ok     training: auto"),
    ]
    assert "Smoke" not in run(capsys, "--no-smoke")[1]


def test_what_is_broken_gives_a_status_and_a_sentence(checks, capsys):
    checks["check_room"] = [broken("cache", "cannot be written", "set DPH_CACHE"), broken("memory", "0", "buy some")]
    status, out, err = run(capsys)
    assert status == 2 and "  broken cache: cannot be written\n           → set DPH_CACHE" in out
    assert err == "dph: needed, but broken: cache, memory; the output above says how to fix it\n"
    assert "Smoke run" in out  # the other checks still ran


def test_json_is_all_that_stands_on_standard_output(checks, capsys):
    checks["check_room"] = [broken("cache", "cannot be written", "set DPH_CACHE")]
    status, out, _ = run(capsys, "--json", "--device", "cpu")
    said = json.loads(out)
    assert status == 2 and said["ok"] is False
    assert {f["name"]: (f["status"], f["advice"]) for f in said["findings"]} == {
        "Python": ("ok", ""),
        "cache": ("broken", "set DPH_CACHE"),
        "limits": ("note", "use Linux"),
        "training": ("ok", ""),
    }
    checks["check_room"] = []
    status, out, _ = run(capsys, "--json")
    assert status == 0 and json.loads(out)["ok"] is True


def test_a_check_that_fails_does_not_hide_the_others(checks, monkeypatch, capsys):
    def fail():
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(machine, "check_processors", fail)
    status, out, err = run(capsys)
    assert status == 2 and "  broken processors: ZeroDivisionError: oh" in out and "Smoke run" in out
    assert "Traceback" not in err


@pytest.mark.slow
def test_on_this_machine(tmp_path, capsys, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 40))  # a full disk is not our fault
    status, out, err = run(capsys, "--json", "--device", "cpu", "--out", str(tmp_path / "runs"))
    found = json.loads(out)["findings"]
    assert status == 0, err
    assert not (tmp_path / "runs").exists()
    assert {f["name"] for f in found if f["status"] == "ok"} >= {"torch", "SQL verifier", "training", "cache"}


# Installation -------------------------------------------------------------------------------------------------------


def test_packages_that_are_missing_old_or_damaged(monkeypatch, tmp_path):
    versions = {"numpy": "2.4", "sqlglot": "1.0"}
    monkeypatch.setattr(machine, "_version", lambda name: versions.get(name, ""))
    assert machine._package(Requirement("numpy>=2")) == ok("numpy", "2.4")
    old = machine._package(Requirement("sqlglot>=27"))
    assert (old.status, old.detail) == ("broken", "1.0, but >=27 is needed")
    assert "pip install 'sqlglot>=27'" in old.advice
    gone = machine._package(Requirement("nothing>=1"))
    assert (gone.status, gone.detail) == ("broken", "is not installed")
    (tmp_path / "damaged_one.py").write_text("raise OSError('libcudart.so is missing')")
    monkeypatch.syspath_prepend(str(tmp_path))
    versions["damaged-one"] = "3"
    damaged = machine._package(Requirement("damaged-one"))
    assert damaged.detail == "3 cannot be imported (OSError: libcudart.so is missing)" and damaged.status == "broken"


def test_every_requirement_is_looked_at_and_extras_are_not_needed():
    found = status_of(machine.check_installation())
    assert {"Python", "dph-rl", "torch", "transformers", "math-verify", "pyarrow", "optional packages"} <= found.keys()
    assert set(found.values()) == {"ok"} and "pytest" not in found


@pytest.fixture
def not_installed(monkeypatch):
    version = machine.metadata.version

    def missing(name):
        if name == "dph-rl":
            raise machine.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(machine.metadata, "version", missing)


def test_a_package_that_is_not_installed_at_all(not_installed, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_SOURCE", tmp_path)
    assert status_of(machine.check_installation()) == {"Python": "ok", "dph-rl": "broken"}


def test_a_package_that_runs_from_its_source(not_installed, monkeypatch, tmp_path):
    lines = '[project]\ndependencies = ["torch>=2", "not-there>=1"]\n'
    (tmp_path / "pyproject.toml").write_text(lines)
    monkeypatch.setattr(machine, "_SOURCE", tmp_path)
    found = status_of(machine.check_installation())
    assert found["dph-rl"] == "note" and found["torch"] == "ok" and found["not-there"] == "broken"


# Processors ---------------------------------------------------------------------------------------------------------


def test_gpus_are_tried(monkeypatch):
    import torch

    gib = 1 << 30
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Card")
    real, broken_card = torch.ones, RuntimeError("CUDA error: no kernel image\nCUDA kernel errors might be …")
    monkeypatch.setattr(torch, "ones", lambda *size, device: real(*size))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (70 * gib, 80 * gib))
    assert machine.check_processors()[1] == ok("GPU 0", "Card, 70 of 80 GiB free")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (gib, 80 * gib))
    assert machine.check_processors()[1].status == "note"
    monkeypatch.setattr(torch, "ones", lambda *size, device: 2 * real(*size))
    assert machine.check_processors()[1].detail == "computes wrong results"

    def fail(index):
        raise broken_card

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert machine.check_processors()[1].detail == "cannot compute: CUDA error: no kernel image"


def test_what_each_gpu_can_do_is_said(monkeypatch):
    """Two equal cards: types of both, attention and rate of one of them."""
    import torch

    card = SimpleNamespace(name="Card", total_memory=80 << 30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Card")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(gpu, "abilities", lambda device: [ok(str(device), "tried")])
    types = ok("GPU 0: types", "Card, 80 GiB, compute capability 9.0, bf16")
    assert gpu.check_gpus() == [types, ok("cuda:0", "tried"), replace(types, name="GPU 1: types")]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert gpu.check_gpus()[0].advice == "use --model.precision fp32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.check_gpus() == []


def test_the_abilities_of_a_device_are_tried_and_measured(monkeypatch):
    """A CPU plays the GPU: it has no kernel for variable lengths, and FlexAttention has no gradient there."""
    import torch

    monkeypatch.setattr(gpu, "matrix_rate", lambda device, dtype, width: 2.5e12)
    narrow, single, rate = gpu.abilities(torch.device("cpu"))
    assert narrow.name == "cpu: attention over shared prompts in bf16" and narrow.status == "note"
    assert narrow.detail.startswith("gather; varlen cannot be used: ") and "; flex cannot be used: " in narrow.detail
    assert single.detail.startswith("gather; flex cannot be used: ")
    assert rate == ok("cpu: matrix products in bf16", "2.5 TFLOP/s, measured at width 4096")


def test_a_measured_rate_is_what_the_clock_says(monkeypatch):
    """A product of 512 × 64 by 64 × 256 takes 2·512·64·256 = 16.8 million operations; a clock of 1 s a call."""
    import torch

    ticks = iter(range(100))
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: float(next(ticks)))
    assert gpu.matrix_rate(torch.device("cpu"), torch.float32, 64) == 2 * 512 * 64 * 256


def test_a_gpu_that_torch_cannot_use(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for there, words in (
        ("/usr/bin/nvidia-smi", "the driver is installed, but torch"),
        (None, "none; only small models"),
    ):
        monkeypatch.setattr(shutil, "which", lambda name, there=there: there)
        assert machine.check_processors()[1].status == "note"
        assert machine.check_processors()[1].detail.startswith(words)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "Apple" in machine.check_processors()[1].detail


# Memory and disk ----------------------------------------------------------------------------------------------------


def test_memory_is_what_the_container_still_allows(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_LIMITS", (str(tmp_path / "max"), str(tmp_path / "none")))
    monkeypatch.setattr(memory, "_USED", (str(tmp_path / "current"), str(tmp_path / "none")))
    whole = memory.free_memory()
    assert whole is not None and whole > 1 << 24
    (tmp_path / "max").write_text("5000\n")
    (tmp_path / "current").write_text("2000\n")
    assert memory.free_memory() == 3000
    assert machine.check_room(tmp_path)[0].status == "broken"
    (tmp_path / "max").write_text("max\n")
    assert (memory.free_memory() or 0) >= 1 << 24
    for free, status in ((2 << 30, "note"), (9 << 30, "ok"), (None, "note")):
        monkeypatch.setattr(machine, "free_memory", lambda free=free: free)
        assert machine.check_room(tmp_path)[0].status == status


def test_places_that_cannot_be_written_or_are_full(monkeypatch, tmp_path):
    def places():
        return status_of(machine.check_room(tmp_path / "not" / "yet" / "there")[1:])

    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    assert set(places()) == {"run directories", "cache", "temporary files"} and "broken" not in places().values()
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    usage = shutil.disk_usage(tmp_path)
    for free, status in ((1 << 20, "broken"), (1 << 30, "note"), (9 << 30, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert places()["cache"] == status

    def refuse(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(machine.tempfile, "TemporaryFile", refuse)
    found = machine.check_room(tmp_path)[2]
    assert found.status == "broken" and found.detail.endswith("cannot be written (Read-only file system)")
    assert "DPH_CACHE" in found.advice


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert machine.check_room(tmp_path / "runs")[1].status == "broken"
    finally:
        tmp_path.chmod(0o700)


# Sandbox ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce all limits")
def test_linux_enforces_every_limit():
    assert sandbox.enforced_limits() == {"memory": True, "files": True, "processor time": True}
    assert sandbox._limits().status == "ok"


def test_limits_that_are_missing_are_named_with_what_is_not_promised(monkeypatch):
    monkeypatch.setattr(sandbox, "enforced_limits", lambda: {"memory": False, "files": True, "processor time": False})
    found = sandbox._limits()
    assert found.status == "note" and "use Linux" in found.advice
    assert "memory: a response may use more memory" in found.detail and "processor time: a worker may" in found.detail
    assert "second line of defence" not in found.detail


def test_a_probe_that_hits_no_limit_says_so(monkeypatch):
    """The oracle of the probe: without the calls that set limits it must find none."""
    assert sandbox._PROBE.count("resource.setrlimit(") == 2
    monkeypatch.setattr(sandbox, "_PROBE", sandbox._PROBE.replace("resource.setrlimit(", "len("))
    probe = sandbox._PROBE.replace("(resource.RLIMIT_AS, (size, size))", "('')")
    monkeypatch.setattr(sandbox, "_PROBE", probe.replace("(resource.RLIMIT_FSIZE, (0, 0))", "('')"))
    monkeypatch.setattr(sandbox, "_PROBE_CPU", "pass")
    assert sandbox.enforced_limits() == {"memory": False, "files": False, "processor time": False}


def test_attacks_are_stopped():
    found = sandbox._attacks()
    assert status_of(found) == dict.fromkeys(["SQL verifier", *sandbox._ATTACKS], "ok")


class Careless:
    """Verifiers that run whatever they are given in this very process."""

    def __init__(self, options):
        self.lasting = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def verify(self, items):
        return [self._judge(*item) for item in items]

    def _judge(self, problem, response):
        if problem.verifier == "math":
            return Verdict(Outcome.WRONG, 0.0)
        connection = sqlite3.connect(problem.meta["db"], isolation_level=None)
        sql = response.removeprefix("```sql\n").removesuffix("\n```")
        if "RECURSIVE" in sql:
            return Verdict(Outcome.CORRECT, 1.0)
        connection.execute(sql.replace("stolen", f"{problem.meta['db']}-stolen")).fetchall()
        connection.close()
        return Verdict(Outcome.ERROR if "SELECT" not in sql else Outcome.CORRECT, 1.0)


def test_a_sandbox_that_lets_something_through_is_found_out(monkeypatch):
    monkeypatch.setattr(sandbox, "Verifiers", Careless)
    found = {finding.name: finding for finding in sandbox._attacks()}
    assert found["a write"].status == found["an endless query"].status == found["a memory bomb"].status == "broken"
    assert "files changed" in found["a write"].detail
    assert sandbox._math().status == "broken"
    monkeypatch.setattr(Careless, "_judge", lambda self, problem, response: Verdict(Outcome.ERROR, 0.0, "no"))
    assert sandbox._attacks() == [broken("SQL verifier", "a correct answer was judged error (no)", sandbox._REPORT)]


# Smoke run ----------------------------------------------------------------------------------------------------------


def test_every_stage_runs_quietly_and_leaves_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(smoke.tempfile, "tempdir", str(tmp_path))
    [found] = smoke.check_smoke("cpu")
    assert found.status == "ok", found
    assert "every stage ran; greedy accuracy 0." in found.detail
    assert capsys.readouterr() == ("", "") and not list(tmp_path.glob("dph-*"))


def test_a_smoke_run_that_fails_says_why(monkeypatch):
    assert "the device 'abacus' cannot be used here" in smoke.check_smoke("abacus")[0].detail

    def fail(folder, model):
        raise KeyError("kv")

    monkeypatch.setattr(smoke, "_run", fail)
    assert smoke.check_smoke("cpu")[0].detail == "KeyError: 'kv'"


def test_training_that_gives_nonsense_is_found_out(monkeypatch):
    monkeypatch.setattr(smoke, "read_metrics", lambda path: [{"loss": float("nan")}, {"loss": 1.0}])
    found: list[Finding] = smoke.check_smoke("cpu")
    assert found[0].status == "broken" and "gave the losses [nan, 1.0]" in found[0].detail


def test_the_doctor_raises_after_it_has_printed(checks, capsys):
    checks["check_installation"] = [broken("torch", "gone", "install it")]
    with pytest.raises(UserError, match="needed, but broken: torch"):
        dph.doctor.doctor(dph.doctor.DoctorConfig())
    assert "→ install it" in capsys.readouterr().out
