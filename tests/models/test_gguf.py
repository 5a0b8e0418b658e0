"""Models in GGUF files and in the cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gpu.toy_model import write_toy
from dph.cli.main import main
from dph.config import ModelConfig
from dph.errors import ModelError
from dph.models.loading import folder_of, model_folder
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
    with pytest.raises(ModelError, match="cannot read a model from the GGUF file"):
        folder_of(file)
    assert list((cache / "models").iterdir()) == []
    with pytest.raises(ModelError, match="cannot read the model file"):
        model_folder(str(tmp_path / "absent.gguf"))


def test_adapters_beside_a_file_are_not_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds adapters too; move"):
        folder_of(tmp_path / "tiny.gguf")


def test_a_file_keeps_no_note_of_how_its_tokenizer_was_loaded(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "tiny.gguf")
    assert "local" not in (folder_of(tmp_path / "tiny.gguf") / "tokenizer_config.json").read_text()


def test_other_paths_stay_as_they_are() -> None:
    assert model_folder("runs/base/model") == "runs/base/model"
    assert model_folder("org/name") == "org/name"


def test_a_name_in_the_cache_is_a_model_path_unless_a_folder_has_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_folder("mine") == "mine"
    (cache / "models" / "mine").mkdir(parents=True)
    assert model_folder("mine") == str(cache / "models" / "mine")
    assert [model_folder(path) for path in ("", "../mine")] == ["", "../mine"]
    (tmp_path / "mine").mkdir()
    assert model_folder("mine") == "mine"


def test_a_missing_gguf_file_is_named(tmp_path, capsys):
    missing = tmp_path / "absent.gguf"
    with pytest.raises(SystemExit) as stopped:
        main(["eval", "--model.path", str(missing), "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert f"there is no model directory {missing}" in capsys.readouterr().err.replace("\n", "")
