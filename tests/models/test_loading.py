"""Models that are not what they seem: refused with the reason, and nothing in their files is run."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from dph.config import TrainedModelConfig
from dph.errors import UserError
from dph.models.policy import Policy
from helpers import tiny_policy


def load(path, **settings):
    return Policy.load(TrainedModelConfig(path=str(path), device="cpu", **settings))


def complaint(path, **settings):
    with pytest.raises(UserError) as caught:
        load(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path):
    tiny_policy().save(tmp_path)
    return tmp_path


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


class Attack:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "adapter_model.bin"])
def test_pickled_weights_are_refused_and_never_opened(folder, name):
    (folder / name).write_bytes(pickle.dumps(Attack(folder / "ran")))
    if name != "adapter_model.bin":
        load(folder)  # safetensors lie beside them, and are what is read
        (folder / "model.safetensors").unlink()
    message = complaint(folder)
    assert f"the weights of {folder} are pickled ({name})" in message and "convert them to safetensors" in message
    assert not (folder / "ran").exists()
    with pytest.raises(FileExistsError):  # the attack itself works
        (folder / "ran").mkdir()
        pickle.loads((folder / name).read_bytes())


def test_even_tensors_alone_are_not_unpickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "are pickled (pytorch_model.bin)" in complaint(folder)


def test_weights_that_are_missing_are_not_made_up(folder, capsys):
    tensors = load_file(folder / "model.safetensors")
    lost = "model.layers.1.mlp.up_proj.weight"
    save_file({k: v for k, v in tensors.items() if k != lost}, folder / "model.safetensors", {"format": "pt"})
    message = complaint(folder)
    assert f"lack 1 of the weights that its config.json describes, such as {lost}" in message
    save_file(tensors | {"more.weight": torch.ones(1)}, folder / "model.safetensors", {"format": "pt"})
    load(folder)
    assert "1 weights in the files of" in (said := capsys.readouterr().err) and "such as more.weight" in said


def test_a_model_of_another_kind_is_not_filled_with_random_numbers(folder):
    change(folder / "config.json", model_type="gpt2", architectures=["GPT2LMHeadModel"])
    assert "of the weights that its config.json describes" in complaint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(folder, value):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert "the weights model.norm.weight are not all finite" in complaint(folder)


def test_large_finite_weights_are_not_taken_for_infinite_ones(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][:] = 3e38  # their sum is infinite in fp32
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    load(folder)


REMOTE = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}


def test_code_beside_the_weights_runs_only_where_that_was_allowed(folder):
    (folder / "own.py").write_text(f"import os; os.mkdir({str(folder / 'ran')!r})")
    change(folder / "config.json", **REMOTE)
    assert "contains custom code" in complaint(folder)
    assert not (folder / "ran").exists()
    complaint(folder, trust_remote_code=True)  # it has no class Config
    assert (folder / "ran").exists()


@pytest.mark.parametrize(
    ("file", "content", "fragment"),
    [
        ("config.json", "[]", "cannot load a model from"),
        ("tokenizer_config.json", "[]", "cannot load a model from"),
        ("tokenizer.json", "{}", "cannot load a model from"),
        ("model.safetensors", "junk" * 100, "header too large"),
    ],
)
def test_files_of_another_shape(folder, file, content, fragment):
    (folder / file).write_text(content)
    assert fragment in complaint(folder)


def test_settings_of_another_type(folder):
    change(folder / "generation_config.json", eos_token_id="end")
    assert "eos_token_id of the model's generation_config.json is 'end'" in complaint(folder)
    change(folder / "config.json", hidden_size="wide")
    assert "'hidden_size' expected int" in complaint(folder)


def test_a_tokenizer_of_another_model(folder):
    policy = load(folder)
    policy.tokenizer.add_tokens(["beyond"])
    for encode in (policy.encode_prompt, policy.encode_response):
        with pytest.raises(UserError, match=r"gives the token 18, but the model has 18 only"):
            encode("beyond")
        assert encode("yes")


@pytest.mark.parametrize(
    ("template", "fragment"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for", "unexpected 'end of template'"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
    ],
)
def test_chat_templates_run_in_a_sandbox_and_fail_in_one_sentence(folder, template, fragment):
    change(folder / "tokenizer_config.json", chat_template=template)
    with pytest.raises(UserError, match="the tokenizer's chat template does not take a prompt") as caught:
        load(folder).encode_prompt("easy 1")
    assert fragment in str(caught.value)


def test_adapters_for_modules_that_are_not_there(folder):
    assert "model.lora_targets 'nothing' does not suit this model" in complaint(
        folder, lora_rank=2, lora_targets="nothing"
    )


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:99"])
def test_devices_that_cannot_be_used(folder, name):
    with pytest.raises(UserError, match=f"the device '{name}' cannot be used here") as caught:
        Policy.load(TrainedModelConfig(path=str(folder), device=name))
    assert "\n" not in str(caught.value)
