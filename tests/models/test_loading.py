"""Bad model files are refused with the reason, and no code in them is run. Models in GGUF files and in the cache."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import dph
from dph.config import ModelConfig
from dph.errors import ModelError, SettingsError, UserError
from dph.models import chat as language_model
from dph.models import loading
from dph.models.loading import model_folder
from dph.models.policy import Policy
from helpers import tiny_policy


def load(path, **settings):
    return Policy.load(ModelConfig(path=str(path), device="cpu", **settings))


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
        load(folder)  # the safetensors file beside it is read instead
        (folder / "model.safetensors").unlink()
    message = complaint(folder)
    assert f"the weights of {folder} are pickled ({name})" in message and "convert them to safetensors" in message
    assert not (folder / "ran").exists()
    with pytest.raises(FileExistsError):  # the attack itself works
        (folder / "ran").mkdir()
        pickle.loads((folder / name).read_bytes())


def test_a_pickle_of_plain_tensors_is_refused_too(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "are pickled (pytorch_model.bin)" in complaint(folder)


def test_missing_weights_are_refused_and_unused_ones_reported(folder, capsys):
    tensors = load_file(folder / "model.safetensors")
    lost = "model.layers.1.mlp.up_proj.weight"
    save_file({k: v for k, v in tensors.items() if k != lost}, folder / "model.safetensors", {"format": "pt"})
    message = complaint(folder)
    assert f"lack 1 of the weights that its config.json describes, such as {lost}" in message
    save_file(tensors | {"more.weight": torch.ones(1)}, folder / "model.safetensors", {"format": "pt"})
    load(folder)
    assert "1 weights in the files of" in (said := capsys.readouterr().err) and "such as more.weight" in said


@pytest.mark.parametrize("here", [True, False])
def test_weights_are_read_onto_the_device_if_accelerate_is_here(folder, monkeypatch, here):
    asked, read = [], transformers.AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM,
        "from_pretrained",
        lambda *args, **named: asked.append(named["device_map"]) or read(*args, **named),
    )
    monkeypatch.setattr(loading, "is_accelerate_available", lambda: here)
    assert load(folder).weight_hash() == tiny_policy().weight_hash()
    assert asked == [torch.device("cpu") if here else None]


def test_weights_of_another_architecture_are_refused(folder):
    change(folder / "config.json", model_type="gpt2", architectures=["GPT2LMHeadModel"])
    assert "of the weights that its config.json describes" in complaint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(folder, value):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert "the weights model.norm.weight are not all finite" in complaint(folder)


def test_large_finite_weights_are_accepted(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][:] = 3e38  # their sum is infinite in fp32
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    loaded = load(folder).model.get_parameter("model.norm.weight")
    assert torch.equal(loaded, tensors["model.norm.weight"]) and loaded.sum().isinf()


def indexed(folder, name, index="model.safetensors.index.json"):
    """An index that says all weights of a model are in one file."""
    weights = dict.fromkeys(load_file(folder / "model.safetensors"), name)
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weights}))


@pytest.fixture
def unpickled(monkeypatch):
    """What `torch.load` was asked for, which should be nothing."""
    asked, load_pickle = [], torch.load
    monkeypatch.setattr(torch, "load", lambda file, **more: asked.append(file) or load_pickle(file, **more))
    return asked


@pytest.mark.parametrize("name", ["evil.bin", "../x.safetensors", "/x.safetensors", "out.safetensors", "a/../../x.pt"])
def test_an_index_names_safetensors_files_of_its_folder_only(folder, tmp_path_factory, unpickled, name):
    outside = tmp_path_factory.mktemp("outside") / "x.safetensors"
    indexed(folder, name)
    torch.save(load_file(folder / "model.safetensors"), folder / "evil.bin")
    (folder / "model.safetensors").rename(outside)
    if name == "out.safetensors":
        (folder / name).symlink_to(outside)
    (folder / "other.safetensors").write_bytes(outside.read_bytes())
    if name == "../x.safetensors":
        (folder.parent / "x.safetensors").write_bytes(outside.read_bytes())
    assert f"name the weights {name!r}" in complaint(folder)
    assert unpickled == []


@pytest.mark.parametrize("name", ["part.safetensors", "parts/1.safetensors"])
def test_an_index_may_name_files_of_its_folder(folder, name):
    indexed(folder, name)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / name)
    assert load(folder).weight_hash() == tiny_policy().weight_hash()


def test_an_index_in_the_hubs_cache_may_lead_to_the_repositorys_blobs(tmp_path):
    stored = tmp_path / "models--some--model"
    snapshot = stored / "snapshots" / "0"
    tiny_policy().save(snapshot)
    indexed(snapshot, "part.safetensors")
    (stored / "blobs").mkdir()
    (snapshot / "model.safetensors").rename(stored / "blobs" / "1")
    (snapshot / "part.safetensors").symlink_to("../../blobs/1")
    assert load(snapshot).weight_hash() == tiny_policy().weight_hash()


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("adapter_model.bin", "adapter_model.bin"),
        ("../x.safetensors", "../x.safetensors"),
        ("mine.safetensors.index.json", "evil.bin"),
        ("../mine.safetensors.index.json", "../mine.safetensors.index.json"),
        ("part.safetensors", ""),
    ],
)
def test_settings_of_a_model_name_safetensors_files_of_its_folder_only(folder, unpickled, name, refused):
    for pickled in ("adapter_model.bin", "evil.bin"):
        torch.save(load_file(folder / "model.safetensors"), folder / pickled)
    (folder / "adapter_model.safetensors").write_bytes(b"")  # otherwise pickled adapters are refused for themselves
    for place in (folder, folder.parent):
        indexed(folder, "evil.bin", place / "mine.safetensors.index.json")
        for file in ("x.safetensors", "part.safetensors"):
            (place / file).write_bytes((folder / "model.safetensors").read_bytes())
    change(folder / "config.json", transformers_weights=name)
    if refused:
        assert f"name the weights {refused!r}" in complaint(folder)
    else:
        assert load(folder).weight_hash() == tiny_policy().weight_hash()
    assert unpickled == []


@pytest.fixture
def adapters(tmp_path):
    """A folder of LoRA adapters, and the model that it names."""
    peft = pytest.importorskip("peft", reason="needs the extra peft")
    tiny_policy().save(tmp_path / "base")
    model = tiny_policy().model
    model.name_or_path = str(tmp_path / "base")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    peft.get_peft_model(model, lora).save_pretrained(tmp_path / "adapters")
    tiny_policy().tokenizer.save_pretrained(tmp_path / "adapters")
    return tmp_path / "adapters"


PEFT_ASKS = "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"


@pytest.mark.filterwarnings(PEFT_ASKS)
def test_adapters_are_loaded_with_their_model(adapters):
    policy = Policy.load(ModelConfig(str(adapters), device="cpu"))  # they can be sampled from, not trained
    delta = policy.model.model.layers[0].self_attn.q_proj.get_delta_weight("default")
    assert delta.shape == (32, 32) and float(delta.abs().max()) > 0


@pytest.mark.filterwarnings(PEFT_ASKS)
@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"peft_type": "PROMPT_TUNING"}, "are of the kind PROMPT_TUNING; only LoRA"),
        ({"peft_type": "XLORA"}, "are of the kind XLORA; only LoRA"),
        ({"megatron_config": {"a": 1}, "megatron_core": "own"}, "are of the kind LORA for Megatron; only LoRA"),
    ],
)
def test_adapters_that_may_import_modules_or_open_other_files_are_refused(
    adapters, monkeypatch, tmp_path, values, fragment
):
    (tmp_path / "own.py").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})")
    monkeypatch.syspath_prepend(tmp_path)
    change(adapters / "adapter_config.json", **values)
    assert fragment in complaint(adapters)
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings(PEFT_ASKS)
@pytest.mark.parametrize("content", ["{}", "[]", '"LORA"', '{"peft_type": "LORA"}'])
def test_adapters_without_a_kind_or_model_are_refused(adapters, content):
    (adapters / "adapter_config.json").write_text(content)
    assert "of which kind and model" in complaint(adapters)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": ["model.safetensors"]}'])
def test_an_index_without_weights_is_refused(folder, content):
    (folder / "model.safetensors.index.json").write_text(content)
    assert "has no weight_map" in complaint(folder)


@pytest.mark.filterwarnings(PEFT_ASKS)
def test_the_model_of_adapters_is_checked_as_any_other(adapters, unpickled):
    base = adapters.parent / "base"
    indexed(base, "evil.bin")
    torch.save(load_file(base / "model.safetensors"), base / "evil.bin")
    (base / "model.safetensors").rename(base / "other.safetensors")
    assert "name the weights 'evil.bin'" in complaint(adapters)
    (base / "other.safetensors").unlink()
    assert f"the weights of {base} are pickled (evil.bin)" in complaint(adapters)
    (adapters / "adapter_model.safetensors").unlink()
    assert "have no file adapter_model.safetensors" in complaint(adapters)
    assert unpickled == []


REMOTE = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}


def test_custom_code_runs_only_if_it_is_trusted(folder):
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
def test_malformed_files_are_refused(folder, file, content, fragment):
    (folder / file).write_text(content)
    assert fragment in complaint(folder)


def test_settings_of_the_wrong_type_are_refused(folder):
    change(folder / "generation_config.json", eos_token_id="end")
    assert "eos_token_id of the model's generation_config.json is 'end', which is not a token id" in complaint(folder)
    change(folder / "config.json", hidden_size="wide")
    assert "'hidden_size' expected int" in complaint(folder)


def test_a_tokenizer_of_another_model_is_refused(folder):
    policy = load(folder)
    policy.tokenizer.add_tokens(["beyond"])
    for encode in (policy.encode_prompt, policy.encode_response):
        with pytest.raises(ModelError, match=r"token id 18 \('beyond'\), but .* only 18 tokens"):
            encode("beyond")
        assert encode("yes")


@pytest.mark.parametrize(
    ("template", "fragment"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for", "unexpected 'end of template'"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ [] | first + 1 }}", "No first item"),
        ("{{ range(1000000) }}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth exceeded"),
        ("(" * 3000 + "{{ " + "(" * 100_000 + " }}", "maximum recursion depth exceeded"),
    ],
)
def test_chat_templates_run_in_a_sandbox_and_fail_with_one_sentence(folder, template, fragment):
    change(folder / "tokenizer_config.json", chat_template=template)
    with pytest.raises(ModelError, match="chat template rejects the prompt") as caught:
        load(folder).encode_prompt("easy 1")
    assert fragment in str(caught.value)


ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(80) }}",
    "for one prompt": "{% if messages[0].content == 'easy 1' %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}{% endif %}",
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_chat_template_that_does_not_end_is_stopped(monkeypatch, name, in_thread):
    monkeypatch.setattr(language_model, "LONGEST_SECONDS", 0.3)
    policy = tiny_policy()
    policy.tokenizer.chat_template = ENDLESS[name]
    if name == "for one prompt":
        assert policy.encode_prompt("easy 2") == []
    start = time.monotonic()
    with ThreadPoolExecutor(1) as threads, pytest.raises(ModelError, match=r"did not end within 0\.3 s for one prompt"):
        threads.submit(policy.encode_prompt, "easy 1").result() if in_thread else policy.encode_prompt("easy 1")
    assert time.monotonic() - start < 20
    policy.tokenizer.chat_template = "{{ messages[0].content }}"
    assert policy.encode_prompt("easy 1") == policy.tokenizer("easy 1")["input_ids"]  # nothing is left of the limit


@pytest.mark.parametrize("value", ["eager", "org/kernel", "org/kernel@main:f", 3, {"": "org/kernel"}])
def test_the_setting_names_the_attention_not_the_files_of_a_model(folder, value):
    names = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation")
    change(folder / "config.json", **dict.fromkeys(names, value))
    for attention in ("sdpa", "eager"):
        model = load(folder, attention=attention).model
        assert (
            model.config._attn_implementation
            == attention
            == model.model.layers[0].self_attn.config._attn_implementation
        )


def test_adapters_for_unknown_modules_are_refused(folder):
    assert "model.lora_targets 'nothing' does not fit this model" in complaint(
        folder, lora_rank=2, lora_targets="nothing"
    )


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:99"])
def test_unusable_devices_are_refused(folder, name):
    with pytest.raises(SettingsError, match=f"device '{name}' cannot be used") as caught:
        Policy.load(ModelConfig(path=str(folder), device=name))
    assert "\n" not in str(caught.value)


@contextmanager
def hub(answer):
    """A hub that answers every request with a status; yields its address and the files that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):  # the name that the library calls
            if "/resolve/" in self.path:  # not what the library asks about itself
                asked.append(self.path)
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_a_hub_that_fails_is_asked_once(tmp_path):
    """A model in its cache is loaded from there; the other one is reported. In a process of its own, because the
    library reads the hub's address when it is imported."""
    stored = tmp_path / "models--some--model"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("0" * 40)
    (stored / "snapshots").mkdir()
    tiny_policy().save(stored / "snapshots" / ("0" * 40))
    code = (
        "from dph.config import ModelConfig; from dph.errors import UserError; from dph.models.policy import Policy\n"
        "print(Policy.load(ModelConfig(path='some/model', device='cpu')).weight_hash())\n"
        "try: Policy.load(ModelConfig(path='nobody/no-such-model', device='cpu'))\n"
        "except UserError as error: print(error)\n"
    )
    with hub(503) as (address, asked):
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "0"}
        environment |= {"PYTHONPATH": str(Path(dph.__file__).parents[1]), "NO_PROXY": "127.0.0.1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, message = done.stdout.splitlines()
    assert loaded == tiny_policy().weight_hash()
    assert message.startswith("cannot load the model 'nobody/no-such-model': there is no such directory, and")
    assert asked == [f"/{name}/resolve/main/config.json" for name in ("some/model", "nobody/no-such-model")]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
