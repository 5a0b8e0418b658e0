"""`dph audit` samples, compares and can be resumed; evaluations and verdicts are judged samples like any other."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dph.config import AuditConfig, CertifyConfig, ModelConfig, RewardConfig, RolloutConfig, TaskConfig
from dph.errors import UserError
from dph.measure import read_samples
from dph.runs.directory import RunDir
from dph.stages.audit import audit
from helpers import base_run


def config(out: Path, **changes: object) -> AuditConfig:
    model, task = str(base_run() / "model"), TaskConfig("toy", split="test")
    rollout = RolloutConfig(n=4, max_tokens=4)
    plain = AuditConfig(str(out), model=ModelConfig(model, device="cpu"), task=task, rollout=rollout, after=model)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_model_against_itself_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = shutil.copytree(base_run() / "model", tmp_path / "twin")
    out = audit(config(tmp_path / "audit", average=0.5, after=str(twin)))
    found = json.loads((out / "audit.json").read_text())
    assert [scores["name"] for scores in found["scores"]] == ["before", "after", "average"]
    for change in found["changes"]:
        assert change["lost"] == change["gained"] == []
        assert all(difference["estimate"] == 0 for difference in change["differences"].values())
    shown = capsys.readouterr()
    assert "pass@4 did not change measurably" in shown.out
    assert "not certified: with 95 %" in shown.out  # ten problems say little
    assert "<svg" in (out / "index.html").read_text()
    one = read_samples(out / "before")
    scores = json.loads((out / "before/scores.json").read_text())["splits"]["test"]
    assert len(one.problems) == scores["problems"]
    assert (one.c / one.n).mean() == pytest.approx(scores["metrics"]["mean@4"]["mean"])


def test_what_a_model_masters_is_certified_to_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "any.py").write_text(
        "def easy(prompt, completion, **_):\n    return 1.0\n\n\ndef hard(prompt, completion, **_):\n    return 0.0\n"
    )
    easy, hard = (RewardConfig(f"{tmp_path / 'any.py'}:{name}") for name in ("easy", "hard"))
    out = audit(config(tmp_path / "audit", certify=CertifyConfig(epsilon=0.99), reward=easy))
    checked = json.loads((out / "audit.json").read_text())["certificate"]
    assert checked["loss"] == 0 and checked["epsilon"] == 0.99 and checked["lost"] == []
    assert f"problems like these {checked['problems']} is at most" in capsys.readouterr().out
    out = audit(config(tmp_path / "nothing", reward=hard))
    assert json.loads((out / "audit.json").read_text())["certificate"] is None
    assert "there is no certificate: " in capsys.readouterr().err


def test_a_page_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(UserError, match=r"index\.html is there already and would be replaced"):
        audit(config(tmp_path))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("index.html", "mine")]
    (tmp_path / "index.html").rename(tmp_path / "audit.json")
    with pytest.raises(UserError, match=r"audit\.json is there already and would be replaced"):
        audit(config(tmp_path))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("audit.json", "mine")]


def test_an_interrupted_audit_samples_only_what_is_missing(tmp_path: Path) -> None:
    out = audit(config(tmp_path / "audit"))
    kept = (out / "before/completions.parquet").stat().st_mtime_ns
    for file in (out / "after").iterdir():
        file.unlink()
    (out / "after").rmdir()
    with pytest.raises(UserError, match="--resume"):
        audit(config(tmp_path / "audit"))
    audit(config(tmp_path / "audit"), resume=True)
    assert (out / "before/completions.parquet").stat().st_mtime_ns == kept and RunDir.open(out / "after").complete
