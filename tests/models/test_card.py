"""The model card that a run writes next to its model."""

import json

import pytest
import yaml

from complaints import complaint
from dph.models.card import base_of
from dph.runs.directory import RunDir
from dph.stages.train import train
from helpers import base_run, train_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of `dph train` on the toy task with a monitor."""
    settings = {"monitor": {"every": 2, "limit": 4, "n": 2}}
    return train(train_config(tmp_path_factory.mktemp("card") / "js", "dph_js", settings))


def card_of(folder):
    """Metadata and text of a card."""
    empty, metadata, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(metadata), text


def test_a_trained_model_has_a_card_beside_its_weights(trained):
    metadata, text = card_of(trained / "model")
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["dph-rl", "rlvr", "dph_js"],
    }
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    facts = {row[0]: row[1] for row in rows if len(row) == 2}
    config = RunDir.open(trained, "train").settings()
    assert facts["base"] == "sft" and facts["data"].startswith("toy train")  # the folder of the base model's run
    assert float(facts["optim.lr"]) == config["optim"]["lr"] and facts["rehearsal.rows"] == "6"
    assert facts["torch"] == RunDir.open(trained, "train").manifest["versions"]["torch"]
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert facts["greedy"] == f"{100 * last['eval/greedy']:.1f}" and "After step 2," in text
    assert (trained / "config.toml").read_text() in text


def test_a_supervised_model_has_one_too():
    metadata, text = card_of(base_run() / "model")
    assert metadata["tags"] == ["dph-rl", "rlvr", "sft"]
    assert "Supervised training of a model made from scratch" in text and "data.jsonl" in text


def test_the_command_is_that_of_the_first_start(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/dph", "train", "--preset", "grpo", "--out", "a b"])
    out = train(train_config(tmp_path / "run", settings={"steps": 1}))
    _, text = card_of(out / "model")
    assert "```sh\ndph train --preset grpo --out 'a b'\n```" in text


def test_licence_and_origin_are_passed_on_from_card_to_card(tmp_path):
    (tmp_path / "base" / "model").mkdir(parents=True)
    (tmp_path / "base" / "model" / "README.md").write_text("---\nlicense: mit\nbase_model: a/b\n---\ntext", "utf-8")
    assert base_of(str(tmp_path / "base" / "model")) == ("base", "a/b", "mit")
    assert base_of("meta-llama/Llama-3.2-1B")[1] == "meta-llama/Llama-3.2-1B"
    for broken in ("no front matter", "---\n[\n---\n", "---\njust text\n---\n"):
        (tmp_path / "base" / "model" / "README.md").write_text(broken, "utf-8")
        assert base_of(str(tmp_path / "base" / "model"))[2] == ""


@pytest.mark.parametrize("facts", ["[" * 100_000, "license: !!timestamp x", "license: !!int ''", "license: !!bool x"])
def test_a_card_that_no_reader_of_yaml_expects_counts_as_none(tmp_path, facts):
    (tmp_path / "README.md").write_text(f"---\n{facts}\n---\ntext\n")
    assert base_of(str(tmp_path)) == (tmp_path.name, "", "")


def test_a_manifest_nested_too_deeply_is_one_sentence(tmp_path, capsys):
    (tmp_path / "config.toml").touch()
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    said = complaint(capsys, "interpolate", tmp_path, "--out", tmp_path / "out")
    assert f"{tmp_path / 'manifest.json'} is damaged (it is nested too" in said
