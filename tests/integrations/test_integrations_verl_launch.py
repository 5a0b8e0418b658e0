"""Launches for verl: what is written, what is refused, and the layout that the estimates of memory lead to."""

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dph.cli.main import parse
from dph.config import (
    ClusterConfig,
    EvalConfig,
    ModelConfig,
    OptimConfig,
    PresampleConfig,
    ReferenceModelConfig,
    RolloutConfig,
    TrainConfig,
    VerlConfig,
    from_dict,
    narrowed,
)
from dph.errors import RunError, UserError
from dph.integrations.verl import installed, preset_launch, run_launch, write_launch
from dph.integrations.verl import launch as module
from dph.integrations.verl.installed import check_registered
from dph.integrations.verl.launch import launch_yaml, verl
from dph.integrations.verl.layout import ModelShape, plan, read_shape, training_bytes
from dph.runs.files import write_atomically

LLAMA_8B = ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128)
QWEN_32B = ModelShape(32_763_876_352, 5120, 64, 152_064, 40, 8, 128)
SQL = VerlConfig(
    rollout=RolloutConfig(max_prompt_tokens=16000, max_tokens=4096, n=16),
    optim=OptimConfig(tokens_per_microbatch=16384),
    cluster=ClusterConfig(gpus=32),
)


def launch(folder: Path, *presets: str, shape: ModelShape = LLAMA_8B, **settings: Any) -> Path:
    settings = {"model": {"path": "some/model"}, "cluster": {"gpus": 32}, **settings}
    return preset_launch(presets, folder / "launch", settings, shape).path


def settings_of(folder: Path, name: str, cls: type[Any]) -> Any:
    return from_dict(cls, tomllib.loads((folder / f"{name}.toml").read_text()))


def verls(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "launch.yaml").read_text())


# What is written ---------------------------------------------------------------------------------------------------


def test_the_papers_run_as_a_launch(tmp_path: Path) -> None:
    """Tables 6 and 7: 128 prompts × 16, 256 stored responses, mini-batches of 64 prompts, learning rate 1e-6."""
    config = verls(launch(tmp_path, "llama_sql", "dph_js"))
    actor, rollout = config["actor_rollout_ref"]["actor"], config["actor_rollout_ref"]["rollout"]
    assert config["trainer"]["nnodes"] * config["trainer"]["n_gpus_per_node"] == 32
    assert (config["data"]["train_batch_size"], rollout["n"], actor["ppo_mini_batch_size"]) == (128, 16, 64)
    assert (config["data"]["max_prompt_length"], config["data"]["max_response_length"]) == (16000, 4096)
    assert (actor["optim"]["lr"], actor["grad_clip"], actor["optim"]["weight_decay"]) == (1e-6, 1.0, 0.01)
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["use_kl_loss"]) == (0.2, 0.28, False)
    assert (config["dph"]["divergence"], config["dph"]["eta"], config["dph"]["rows"]) == ("js", 0.2, 256)
    assert (rollout["temperature"], rollout["top_p"], config["trainer"]["total_training_steps"]) == (1.0, 0.95, 209)


def test_mathematics_is_validated_at_its_own_temperature(tmp_path: Path) -> None:
    folder = launch(tmp_path, "qwen_math", "dph_f")
    assert verls(folder)["actor_rollout_ref"]["rollout"]["val_kwargs"]["temperature"] == 0.6
    assert settings_of(folder, "eval", EvalConfig).rollout.temperature == 0.6
    assert settings_of(folder, "train", TrainConfig).rollout.temperature == 1.0


def test_all_stages_agree_with_training(tmp_path: Path) -> None:
    folder = launch(tmp_path, "qwen_math", "dph_js", task={"options": {"path": "problems"}}, seed=3)
    train = settings_of(folder, "train", TrainConfig)
    before = settings_of(folder, "presample", PresampleConfig)
    after = settings_of(folder, "eval", EvalConfig)
    assert (before.threshold, before.rollout.n, before.drop_unsolved) == (7, 8, True)
    assert before.task == train.task and after.task.options == train.task.options
    assert before.rollout.params() == replace(train.rollout, n=8).params()
    assert before.rollout.max_prompt_tokens == train.rollout.max_prompt_tokens
    assert before.model == narrowed(ReferenceModelConfig, train.model)
    assert before.sampler.engine == after.sampler.engine == "vllm"
    assert train.rehearsal.path == before.out == verls(folder)["dph"]["rehearsal"]
    assert (train.seed, verls(folder)["dph"]["seed"]) == (3, 3)


def test_a_launch_presamples_what_can_be_lost(tmp_path: Path) -> None:
    words = ["--preset", "llama_math", "--preset", "dph_js", "--partition.for-k", "8", "--model.path", "m"]
    config, _ = parse("verl", [*words, "--out", str(tmp_path / "launch")])
    assert config.partition.for_k == 8
    folder = launch(tmp_path, "llama_math", "dph_js", partition={"for_k": 8})
    assert settings_of(folder, "presample", PresampleConfig).for_k == 8
    both, _ = parse(
        "verl", ["--preset", "llama_math", "--preset", "pass32", *words[2:4], "--model.path", "m", "--out", "o"]
    )
    assert (both.partition.for_k, both.partition.n, both.partition.threshold) == (32, 32, 24)


def test_a_method_without_partition_needs_no_presampling(tmp_path: Path) -> None:
    folder = launch(tmp_path, "llama_sql", "grpo")
    assert not (folder / "presample.sh").exists() and not (folder / "presample.toml").exists()
    assert "presample" not in (folder / "README.md").read_text()
    assert verls(folder)["dph"]["rehearsal"] == "" == settings_of(folder, "train", TrainConfig).rehearsal.path


def test_a_bank_begins_with_what_the_launch_presamples_or_empty(tmp_path: Path) -> None:
    folder = launch(tmp_path / "begun", "llama_sql", "bank", task={"options": {"root": "data"}})
    before, block = settings_of(folder, "presample", PresampleConfig), verls(folder)["dph"]
    assert (before.threshold, before.refine, before.stored, before.distinct, before.rollout.n) == (
        1,
        "keep",
        8,
        True,
        32,
    )
    assert block["bank"] == {"key": "style", "capacity": 16, "begun": True} and block["rehearsal"] == before.out
    assert (block["divergence"], block["eta"], block["rows"]) == ("forward_kl_raw", 1.0, 64)
    assert block["task"] == settings_of(folder, "train", TrainConfig).task.name
    assert block["task_options"] == {"root": "data"}
    folder = launch(tmp_path / "online", "llama_sql", "bank_online")
    assert not (folder / "presample.sh").exists() and verls(folder)["dph"]["rehearsal"] == ""
    assert verls(folder)["dph"]["bank"]["begun"] is False and "task" not in verls(launch(tmp_path, "llama_sql", "grpo"))
    with pytest.raises(UserError, match="no bank key is named 'route'"):
        launch(tmp_path / "route", "llama_sql", "bank", bank={"key": "route"})
    with pytest.raises(UserError, match=r"rehearsal\.rows is 0, so nothing is taken from the bank"):
        launch(tmp_path / "none", "llama_sql", "bank", rehearsal={"rows": 0})


def test_a_partition_that_is_there_is_used(tmp_path: Path) -> None:
    folder = launch(tmp_path, "llama_sql", "dph_js", rehearsal={"path": "/runs/presample"})
    assert not (folder / "presample.sh").exists()
    assert verls(folder)["dph"]["rehearsal"] == "/runs/presample"


def test_a_partition_that_is_still_being_made_is_found_from_other_folders(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = launch(tmp_path, "llama_sql", "dph_js", rehearsal={"path": "runs/presample"})
    assert verls(folder)["dph"]["rehearsal"] == str(tmp_path / "runs" / "presample")
    assert settings_of(folder, "train", TrainConfig).rehearsal.path == str(tmp_path / "runs" / "presample")


def test_the_methods_that_need_a_reference_model_get_one(tmp_path: Path) -> None:
    uses = {}
    for method in ("grpo", "grpo_kl", "dph_js", "dph_js_def"):
        actor = verls(launch(tmp_path / method, "llama_sql", method))["actor_rollout_ref"]["actor"]
        uses[method] = (actor["use_kl_loss"], actor["kl_loss_coef"])
    assert uses == {"grpo": (False, 0), "grpo_kl": (True, 0.01), "dph_js": (False, 0), "dph_js_def": (True, 0)}


def test_paths_that_are_there_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "own.py").touch()
    folder = launch(
        tmp_path, "llama_sql", "grpo", task={"options": {"path": "data"}}, plugins=["own.py"], prompt_set="explore"
    )
    assert settings_of(folder, "train", TrainConfig).task.options["path"] == str(tmp_path / "data")
    assert verls(folder)["dph"]["plugins"] == [str(tmp_path / "own.py")]
    for stage, cls in (("presample", PresampleConfig), ("train", TrainConfig), ("eval", EvalConfig)):
        assert settings_of(folder, stage, cls).plugins == (str(tmp_path / "own.py"),)
    assert settings_of(folder, "train", TrainConfig).model.path == "some/model"


@pytest.mark.parametrize("gpus", [1, 4, 32])
def test_scripts_are_sound_bash(tmp_path: Path, gpus: int) -> None:
    folder = launch(tmp_path / "a folder's name", "llama_sql", "dph_js", cluster={"gpus": gpus})
    names = {path.name for path in folder.glob("*.sh")}
    assert names == {"presample.sh", "data.sh", "train.sh", "eval.sh"} | ({"ray.sh"} if gpus == 32 else set())
    for name in names:
        assert (folder / name).stat().st_mode & 0o111
        subprocess.run(["bash", "-n", folder / name], check=True)


def test_scripts_start_what_they_say(tmp_path: Path) -> None:
    """With `echo` as the interpreter, each script prints its command."""
    folder = launch(tmp_path / "a folder's name", "llama_sql", "dph_js")

    def command(name: str, *words: str) -> str:
        done = subprocess.run([folder / name, *words], env={"PYTHON": "echo", "PATH": "/usr/bin:/bin"}, check=True,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout.strip()

    assert command("presample.sh") == f"-m dph presample --config {folder}/presample.toml --resume"
    assert command("data.sh") == f"-m dph.integrations.verl.data {folder}"
    wanted = f"--config-dir {folder} --config-name launch hydra.run.dir={folder}/hydra trainer.save_freq=5"
    assert command("train.sh", "trainer.save_freq=5") == f"-m dph.integrations.verl {wanted}"
    assert command("ray.sh", "10.0.0.1").endswith("--address=10.0.0.1:6379 --num-gpus=8")
    merged, scored = command("eval.sh", "40").splitlines()
    assert f"--local_dir {folder}/checkpoints/global_step_40/actor" in merged
    assert f"--model.path {folder}/models/step-40 --out {folder}/eval/step-40" in scored


def test_further_sets_are_validated_and_scored(tmp_path: Path) -> None:
    sets = {"spider": {"task": "spider", "options": {"root": str(tmp_path)}, "limit": 5}, "seen": {"split": "train"}}
    folder = launch(tmp_path, "llama_sql", "dph_js", monitor={"every": 20, "sets": sets})
    assert settings_of(folder, "train", TrainConfig).monitor.sets["spider"].options == {"root": str(tmp_path)}
    spider, seen = (settings_of(folder, f"eval-{name}", EvalConfig).task for name in sets)
    assert (spider.name, spider.split, spider.limit, spider.requires) == ("spider", "dev", 0, "")
    assert (seen.name, seen.split, seen.options) == ("bird", "train", {})
    (folder / "models" / "step-40").mkdir(parents=True)
    (folder / "models" / "step-40" / "config.json").touch()
    done = subprocess.run([folder / "eval.sh", "40", "--seed", "1"], env={"PYTHON": "echo", "PATH": "/usr/bin:/bin"},
                          check=True, capture_output=True, text=True)  # fmt: skip
    for line, name in zip(done.stdout.splitlines(), ("eval-seen", "eval-spider", "eval"), strict=True):
        assert f"--config {folder}/{name}.toml" in line and line.endswith(f"--out {folder}/{name}/step-40 --seed 1")


def test_a_second_start_keeps_what_the_first_logged(tmp_path: Path) -> None:
    folder = launch(tmp_path, "llama_sql", "grpo")
    for step in (1, 2):
        (folder / "metrics.jsonl").write_text(f"{step}\n")  # as verl does, which begins the file anew
        subprocess.run([folder / "train.sh"], env={"PYTHON": "true", "PATH": "/usr/bin:/bin"}, check=True)
    assert (folder / "metrics-before.jsonl").read_text() == "1\n2\n"


def test_yaml_reads_back_as_what_was_meant() -> None:
    tree = {
        "a": {"lr": 1e-06, "big": 1e22, "none": None, "flag": True, "n": 3, "x": 0.28},
        "b": ["1", "it's", "a: b"],
        "c": "on",
        "d": "1e5",
    }
    back = yaml.safe_load(launch_yaml(tree))
    assert {key: back[key] for key in tree} == tree
    assert 'd: "1e5"' in launch_yaml(tree)  # OmegaConf would read a number
    # A backslash keeps OmegaConf from reading it as an interpolation
    assert yaml.safe_load(launch_yaml({"a": "${oc.env:HOME}"}))["a"] == r"\${oc.env:HOME}"


# The command line and repetition -----------------------------------------------------------------------------------


def test_flags_override_the_method_and_the_method_the_model(tmp_path: Path) -> None:
    words = ["--preset", "llama_math", "--preset", "dapo", "--cluster.gpus", "4", "--partition.threshold", "5"]
    config, _ = parse("verl", [*words, "--model.path", "m", "--out", str(tmp_path), "--rollout.prompts", "64"])
    assert (config.method, config.loss.clip_high, config.dynamic_sampling.enabled) == ("dapo", 0.2, True)
    assert (config.partition.threshold, config.partition.drop_unsolved, config.rollout.prompts) == (5, True, 64)
    assert (config.cluster.gpus, config.rollout.max_tokens, config.validation.temperature) == (4, 2048, 0.6)


def test_the_short_flags_of_training_write_a_launch_too(tmp_path: Path) -> None:
    words = ["--task", "records", "--data", str(tmp_path), "--workers", "3", "--out", str(tmp_path / "launch")]
    for stage in ("train", "verl"):
        config, _ = parse(stage, words)
        assert (config.task.name, config.task.options) == ("records", {"path": str(tmp_path)})
        assert config.verifier.workers == 3


def test_a_launch_can_be_written_again_from_its_own_settings(tmp_path: Path) -> None:
    folder = launch(tmp_path, "omnisql_32b", "dph_js_def", shape=QWEN_32B)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    config, _ = parse("verl", ["--config", str(folder / "verl.toml")])
    write_launch(config, QWEN_32B)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_another_launch_is_not_overwritten(tmp_path: Path) -> None:
    launch(tmp_path, "llama_sql", "dph_js")
    with pytest.raises(UserError, match="holds a launch with other settings"):
        launch(tmp_path, "llama_sql", "dph_f")


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch/README.md").write_text("mine")
    with pytest.raises(RunError, match=r"README\.md is there already and would be replaced"):
        launch(tmp_path, "llama_sql", "dph_js")
    assert [path.name for path in (tmp_path / "launch").iterdir()] == ["README.md"]


def test_a_file_of_a_launch_that_was_changed_by_hand_is_not_overwritten(tmp_path: Path) -> None:
    folder = launch(tmp_path, "llama_sql", "dph_js")
    changed = (folder / "launch.yaml").read_text() + "# mine\n"
    (folder / "launch.yaml").write_text(changed)
    with pytest.raises(RunError, match=r"launch\.yaml is there already and would be replaced by another text"):
        launch(tmp_path, "llama_sql", "dph_js")
    assert (folder / "launch.yaml").read_text() == changed


def test_a_launch_that_was_interrupted_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, text: str) -> None:
        write_atomically(path, text)
        if path.name == "launch.yaml":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "write_atomically", write)
        launch(tmp_path, "llama_sql", "dph_js")
    assert (tmp_path / "launch" / "launch.yaml").exists()
    assert (launch(tmp_path, "llama_sql", "dph_js") / "README.md").exists()


def test_a_step_that_fails_stops_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", "false")
    folder = launch(tmp_path, "llama_sql", "dph_js", cluster={"gpus": 4})
    with pytest.raises(UserError, match=r"presample\.sh ended with status 1"):
        run_launch(
            preset_launch(
                ["llama_sql", "dph_js"], folder, {"model": {"path": "some/model"}, "cluster": {"gpus": 4}}, LLAMA_8B
            )
        )


# What is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"cluster": {"gpus": 12}}, "not a multiple of cluster.per_node"),
        ({"rollout": {"prompts": 127}}, "not a multiple of optim.minibatches"),
        ({"rollout": {"prompts": 2, "n": 4}}, "does not divide over 32 data-parallel ranks"),
        ({"optim": {"schedule": "linear"}}, "no linear learning-rate schedule"),
        ({"rollout": {"old_logprobs": "sampler"}}, "recomputes the log-probabilities"),
        ({"loss": {"policy": "kl_cov"}}, "'kl_cov' selects tokens of the whole mini-batch"),
        ({"loss": {"policy": "cispo", "dual_clip": 3.0}}, "'cispo' has no dual clip"),
        ({"loss": {"kl": "k3_is", "kl_coef": 0.1}}, "k3_is"),
        ({"loss": {"eta": -1.0}}, "loss.eta is -1.0"),
        ({"cluster": {"gpus": 4, "tensor_parallel": 3}}, "tensor_parallel 3 does not divide"),
        ({"cluster": {"gpus": 4, "offload": "none", "memory": 40.0}}, "billion parameters needs"),
        ({"model": {"path": ""}}, "no model was named"),
        ({"rolout": {}}, "rolout"),
    ],
)
def test_what_cannot_run_is_refused(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        launch(tmp_path, "llama_sql", "dph_js", **settings)
    assert not (tmp_path / "launch").exists()


def test_several_nodes_are_not_started_from_here(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--start runs on one node"):
        verl(VerlConfig(out=str(tmp_path), start=True, cluster=ClusterConfig(gpus=32)))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no config"):
        read_shape(str(tmp_path))


# The layout --------------------------------------------------------------------------------------------------------


def test_shape_is_that_of_the_model(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=100, tie_word_embeddings=False,
    ).save_pretrained(tmp_path)  # fmt: skip
    # Embeddings and head 2·100·64; a layer: q and o 2·64², k and v 2·64·16, MLP 3·64·96, norms 2·64; the last norm 64
    parameters = 2 * 100 * 64 + 3 * (2 * 64**2 + 2 * 64 * 16 + 3 * 64 * 96 + 2 * 64) + 64
    assert read_shape(str(tmp_path)) == ModelShape(parameters, 64, 3, 100, 8, 2, 8)


def test_the_estimate_term_by_term() -> None:
    """8B, 20096 tokens on one of 32 GPUs: states 16·8.03/32 = 4.02, two layers 2·2·8.03/32 = 1.00, activations
    20096·4096·(64 + 68) = 10.87, logits 20096·128256·10 = 25.77 GB."""
    assert training_bytes(LLAMA_8B, SQL, 20096, "none") / 1e9 == pytest.approx(4.02 + 1.00 + 10.87 + 25.77, abs=0.02)
    assert training_bytes(LLAMA_8B, SQL, 20096, "cpu") / 1e9 == pytest.approx(1.00 + 10.87 + 25.77, abs=0.02)


@pytest.mark.parametrize(
    ("shape", "gpus", "tensor", "offload"),
    [
        # 8B: states are 128 GB; 4 GPUs hold 32 GB each, but not beside vLLM's 48 of 80; 32 hold 4
        (LLAMA_8B, 1, 1, "cpu"),
        (LLAMA_8B, 4, 1, "between"),
        (LLAMA_8B, 32, 1, "none"),
        # 32B: weights 65.5 GB in bf16 and 2 groups of (16000 + 16·4096) tokens of 262 kB, 43 GB: three GPUs' 48 GB
        (QWEN_32B, 4, 4, "cpu"),
        (QWEN_32B, 32, 4, "none"),
    ],
)
def test_layouts_of_the_papers_models(shape: ModelShape, gpus: int, tensor: int, offload: str) -> None:
    layout = plan(shape, replace(SQL, cluster=ClusterConfig(gpus=gpus, per_node=min(gpus, 8))))
    assert (layout.tensor_parallel, layout.sequence_parallel, layout.offload) == (tensor, 1, offload)
    assert layout.training_gb <= 72 and layout.tokens_per_gpu >= 20096


def test_sequences_are_shared_where_they_do_not_fit() -> None:
    layout = plan(LLAMA_8B, replace(SQL, cluster=ClusterConfig(gpus=8, memory=48.0)))
    assert layout.sequence_parallel == 2 and layout.tokens_per_gpu * 2 >= 20096
    assert layout.training_gb <= 0.9 * 48


def test_weights_that_no_node_can_sample_from_are_refused() -> None:
    with pytest.raises(UserError, match="vLLM needs 66 GB"):
        plan(QWEN_32B, replace(SQL, cluster=ClusterConfig(gpus=1)))


def test_adapters_need_less() -> None:
    adapters = replace(SQL, model=ModelConfig(lora_rank=8))
    saved = training_bytes(LLAMA_8B, SQL, 1, "none") - training_bytes(LLAMA_8B, adapters, 1, "none")
    assert saved == 12 * LLAMA_8B.parameters / 32


# The plug-in, whose errors verl does not report --------------------------------------------------------------------


@pytest.fixture
def broken_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An installed verl of the right version, without the modules that the plug-in imports."""
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").write_text("__version__ = '0.9.1'")
    ours = ("dph.integrations.verl.plugin", "dph.integrations.verl.trainer")
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl" or name in ours]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PYTHON", raising=False)
    yield
    sys.modules.pop("verl", None)


PLUGIN_ERROR = "the plug-in for verl cannot be imported (ModuleNotFoundError: No module named "


def test_an_error_in_the_plugin_is_reported(broken_verl: None) -> None:
    with pytest.raises(UserError) as caught:
        check_registered()
    assert str(caught.value).startswith(PLUGIN_ERROR) and "pip install '.[verl]'" in str(caught.value)


def test_a_launch_says_that_the_plugin_does_not_work(
    broken_verl: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="plug-in for verl cannot be imported"):  # before hours of pre-sampling
        verl(VerlConfig(out=str(tmp_path / "a"), start=True, cluster=ClusterConfig(gpus=1)))
    said: list[str] = []
    monkeypatch.setattr(module, "say", said.append)
    with pytest.raises(UserError, match="no model was named"):
        verl(VerlConfig(out=str(tmp_path / "b")))
    assert said[0].startswith(PLUGIN_ERROR) and said[0].endswith("(this launch may run in another environment)")


def test_a_missing_verl_is_reported_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="verl is not installed; make a separate"):
        check_registered()
