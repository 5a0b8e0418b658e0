"""Which model a path means, for `dph interpolate` and `dph push`."""

import shutil

import pytest

from dph.errors import RunError
from dph.runs.directory import FoundModel, find_model
from dph.stages.train import train
from helpers import base_run, presampled, train_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of `dph train` of two steps, with a checkpoint after each."""
    return train(train_config(tmp_path_factory.mktemp("find") / "run", settings={"checkpoint_every": 1}))


def test_the_model_that_a_path_means(trained, tmp_path, monkeypatch):
    newest = trained / "checkpoints" / "step-00000002"
    assert find_model(str(trained)) == FoundModel(str(trained / "model"), trained)
    for name in (trained / "model", newest, newest / "model"):
        model = name if name.name == "model" else name / "model"
        assert find_model(str(name)) == FoundModel(str(model), trained)
    assert find_model("HuggingFaceTB/SmolLM2-135M") == FoundModel("HuggingFaceTB/SmolLM2-135M")
    assert find_model(str(presampled())) == FoundModel(str(base_run() / "model"), presampled())
    shutil.copytree(trained / "model", tmp_path / "model")
    assert find_model(str(tmp_path / "model")) == FoundModel(str(tmp_path / "model"))
    monkeypatch.chdir(trained)
    found = find_model("model")
    assert found.model == "model" and found.run == trained.resolve()


def test_an_unfinished_run_has_its_newest_checkpoint(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run", ignore=lambda folder, names: ["model"] if folder == str(trained) else [])
    newest = tmp_path / "run" / "checkpoints" / "step-00000002" / "model"
    assert find_model(str(tmp_path / "run")) == FoundModel(str(newest), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(RunError, match="of `dph train` has no model"):
        find_model(str(tmp_path / "run"))
