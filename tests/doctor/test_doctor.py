"""`dph doctor`: it finds what is broken, says what to do, and returns an exit status."""

import json
import os
import shutil
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from dph import doctor as module
from dph.cli.main import main
from dph.doctor import Finding
from dph.errors import UserError
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
    findings = {
        "check_installation": [Finding("Python", "ok", "3")],
        "check_processors": [],
        "check_room": [],
        "check_sandbox": [Finding("limits", "note", "none", "use Linux")],
    }
    for name in findings:
        monkeypatch.setattr(module, name, lambda *_, name=name: findings[name])
    monkeypatch.setattr(module, "check_training", lambda device: [Finding("training", "ok", device)])
    return findings


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
    checks["check_room"] = [
        Finding("cache", "broken", "full", "set DPH_CACHE"),
        Finding("memory", "broken", "0", "buy"),
    ]
    status, out, err = run(capsys)
    assert status == 2 and "  broken cache: full\n           → set DPH_CACHE" in out
    assert err.startswith("dph: ") and "cache, memory" in err and err.count("\n") == 1
    assert "Smoke run" in out  # the other checks still ran


def test_json_is_all_that_stands_on_standard_output(checks, capsys):
    checks["check_room"] = [Finding("cache", "broken", "cannot be written", "set DPH_CACHE")]
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

    monkeypatch.setattr(module, "check_processors", fail)
    status, out, err = run(capsys)
    assert status == 2 and "  broken processors: ZeroDivisionError: oh" in out and "Smoke run" in out
    assert "Traceback" not in err


@pytest.mark.slow
def test_on_this_machine(tmp_path, capsys, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 40))  # a full disk is not our fault
    status, out, err = run(capsys, "--json", "--device", "cpu", "--out", str(tmp_path / "runs"))
    findings = json.loads(out)["findings"]
    assert status == 0, err
    assert not (tmp_path / "runs").exists()
    assert {f["name"] for f in findings if f["status"] == "ok"} >= {"torch", "SQL verifier", "training", "cache"}


# Installation -------------------------------------------------------------------------------------------------------


def test_packages_that_are_missing_old_or_damaged(monkeypatch, tmp_path):
    versions = {"dph-rl": "1", "numpy": "2.4", "sqlglot": "1.0", "damaged-one": "3"}

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    requires = ["numpy>=2", "sqlglot>=27", "nothing>=1", "damaged-one", 'trl; extra == "trl"']
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: requires)
    (tmp_path / "damaged_one.py").write_text("raise OSError('libcudart.so is missing')")
    monkeypatch.syspath_prepend(str(tmp_path))
    findings = {finding.name: finding for finding in list(module.check_installation())}
    assert status_of(findings.values()) == {
        **{"Python": "ok", "dph-rl": "ok", "numpy": "ok", "optional packages": "ok"},
        **{"sqlglot": "broken", "nothing": "broken", "damaged-one": "broken"},
    }
    assert findings["sqlglot"].detail.startswith("1.0") and "'sqlglot>=27'" in findings["sqlglot"].advice
    assert "libcudart.so is missing" in findings["damaged-one"].detail


def test_every_requirement_is_looked_at_and_extras_are_not_needed():
    found = status_of(list(module.check_installation()))
    assert {"Python", "dph-rl", "torch", "transformers", "pyarrow", "optional packages"} <= found.keys()
    assert set(found.values()) == {"ok"} and "pytest" not in found


def test_a_package_that_runs_from_its_source(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert status_of(list(module.check_installation())) == {"Python": "ok", "dph-rl": "ok", "optional packages": "ok"}


# Processors ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(monkeypatch):
    """Two GPUs: free GiB of each, and whether they have bf16."""
    import torch

    said = SimpleNamespace(free=70, bf16=True)
    card = SimpleNamespace(name="Card", total_memory=80 << 30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (said.free << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: said.bf16)
    return said


def test_what_each_gpu_can_do_is_said(cards):
    findings = {finding.name: finding for finding in list(module.check_processors())}
    for index in range(2):
        card = findings[f"GPU {index}"]
        assert card.status == "ok" and card.detail.startswith("Card, 70 of 80 GiB free") and "9.0" in card.detail
    cards.free = 1
    assert "nvidia-smi" in list(module.check_processors())[1].advice
    cards.free, cards.bf16 = 70, False
    assert "bf16: no" in list(module.check_processors())[1].detail


def test_a_gpu_that_cannot_compute(cards, monkeypatch):
    import torch

    def fail(index):
        raise RuntimeError("CUDA error: no kernel image\nCUDA kernel errors might be …")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    _, first, second = list(module.check_processors())
    assert first.status == second.status == "broken" and first.detail.endswith("no kernel image")


def test_a_gpu_that_torch_cannot_use(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for path, words in (("/usr/bin/nvidia-smi", "the driver is installed"), (None, "none; only small models")):
        monkeypatch.setattr(shutil, "which", lambda name, path=path: path)
        assert list(module.check_processors())[1].status == "note"
        assert list(module.check_processors())[1].detail.startswith(words)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "Apple" in list(module.check_processors())[1].detail


# Memory and disk ----------------------------------------------------------------------------------------------------


def test_little_free_memory(monkeypatch, tmp_path):
    for free, status in ((3000, "broken"), (2 << 30, "ok")):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        assert next(iter(module.check_room(tmp_path))).status == status


def test_places_that_cannot_be_written_or_are_full(monkeypatch, tmp_path):
    def places():
        return status_of(list(module.check_room(tmp_path / "not" / "yet" / "there"))[1:])

    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    assert set(places()) == {"run directories", "cache", "temporary files"} and "broken" not in places().values()
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    usage = shutil.disk_usage(tmp_path)
    for free, status in ((1 << 20, "broken"), (1 << 30, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert places()["cache"] == status

    def refuse(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", refuse)
    cache = list(module.check_room(tmp_path))[2]
    assert cache.status == "broken" and "Read-only file system" in cache.detail and "DPH_CACHE" in cache.advice


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert list(module.check_room(tmp_path / "runs"))[1].status == "broken"
    finally:
        tmp_path.chmod(0o700)


# Sandbox ------------------------------------------------------------------------------------------------------------


def test_the_sandbox_works_here():
    findings = list(module.check_sandbox())
    assert len(findings) == 3
    assert {f.name for f in findings if f.status != "ok"} <= ({"limits"} if sys.platform != "linux" else set())


class Wrong:
    """Verifiers that accept nothing."""

    def __init__(self, options):
        """Takes no options."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Holds nothing."""

    def verify(self, items):
        return [Verdict(Outcome.ERROR, 0.0, "no") for _ in items]


def test_verifiers_that_refuse_right_answers_are_found_out(monkeypatch):
    monkeypatch.setattr(module, "Verifiers", Wrong)
    findings = {finding.name: finding for finding in list(module.check_sandbox())}
    assert findings["mathematics"].status == findings["SQL verifier"].status == "broken"
    assert "expected correct" in findings["SQL verifier"].detail


def test_limits_that_the_system_does_not_enforce_are_a_note(monkeypatch):
    class Limited(Wrong):
        def verify(self, items):
            module.warnings.warn("no limit of memory", RuntimeWarning, stacklevel=1)
            return super().verify(items)

    monkeypatch.setattr(module, "Verifiers", Limited)
    assert (
        "no limit of memory" in {f.name: f for f in list(module.check_sandbox()) if f.status == "note"}["limits"].detail
    )


# Smoke run ----------------------------------------------------------------------------------------------------------


def test_every_stage_runs_quietly_and_leaves_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    [training] = module.check_training("cpu")
    assert training.status == "ok", training
    assert capsys.readouterr() == ("", "") and not list(tmp_path.glob("dph-*"))


def test_a_smoke_run_that_fails_says_why():
    [training] = module.check_training("abacus")
    assert training.status == "broken" and "'abacus'" in training.detail


def test_training_that_gives_nonsense_is_found_out(monkeypatch):
    monkeypatch.setattr(module, "read_metrics", lambda path: [{"loss": float("nan")}, {"loss": 1.0}])
    [training] = module.check_training("cpu")
    assert training.status == "broken" and "[nan, 1.0]" in training.detail


def test_the_doctor_raises_after_it_has_printed(checks, capsys):
    checks["check_installation"] = [Finding("torch", "broken", "gone", "install it")]
    with pytest.raises(UserError, match="torch"):
        module.doctor(module.DoctorConfig())
    assert "→ install it" in capsys.readouterr().out
