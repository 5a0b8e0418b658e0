"""Settings: presets, files and flags in their order, errors that name the key, and TOML that reads back. Checks of
settings that were filled in Python: bounds, and what a stage does not read.
"""

import dataclasses
import tomllib
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dph.cli.main import parse
from dph.config import (
    STAGES,
    AdamWConfig,
    AsideConfig,
    CertificateConfig,
    CertifyConfig,
    EvalConfig,
    EvaluatedModelConfig,
    LossConfig,
    ModelConfig,
    MonitorConfig,
    MonitorSet,
    OptimConfig,
    PresampleConfig,
    ReportConfig,
    RolloutConfig,
    SamplerConfig,
    SamplingConfig,
    SftConfig,
    TaskConfig,
    TrainConfig,
    VerlConfig,
    differences,
    every_setting,
    field_docs,
    flatten,
    from_dict,
    load_settings,
    merge_settings,
    preset_names,
    read_settings,
    to_dict,
    to_toml,
)
from dph.errors import SettingsError
from dph.objective import Objective
from helpers import METHODS, OTHER_METHODS


def merged(stage, presets=(), **files):
    return from_dict(STAGES[stage], merge_settings(stage, presets, list(files.values())))


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# The order of layers ------------------------------------------------------------------------------------------------


def test_preset_then_file_then_flags(tmp_path):
    file = write(tmp_path / "a.toml", "[train.loss]\neta = 0.45\n[train.optim]\nlr = 0.5\n")
    assert merged("train", ["dph_js"]).loss.eta == 0.2  # Table 6
    assert merged("train", ["dph_js"], file=file).loss.eta == 0.45
    words = ["--preset", "dph_js", "--loss.eta", "0.9", "--config", str(file), "--out=x"]
    config, common = parse("train", words)
    assert (config.loss.eta, config.optim.lr, config.out) == (0.9, 0.5, "x")
    assert (common.presets, common.files) == (["dph_js"], [file])
    assert common.settings == {"loss": {"eta": 0.9}, "out": "x"}


def test_later_presets_and_files_go_before_earlier_ones(tmp_path):
    assert merged("train", ["dph_js", "dph_f"]).loss.divergence == "forward_kl"
    assert merged("train", ["dph_f", "dph_js"]).loss.divergence == "js"
    first, second = write(tmp_path / "a.toml", "seed = 1\n"), write(tmp_path / "b.toml", "seed = 2\n")
    assert merged("train", a=first, b=second).seed == 2
    assert merged("train", b=second, a=first).seed == 1


def test_a_stage_table_goes_before_the_top_level_of_its_file(tmp_path):
    file = write(tmp_path / "a.toml", "[rollout]\nn = 3\nmax_tokens = 9\n[train.rollout]\nn = 5\n")
    assert (merged("train", a=file).rollout.n, merged("train", a=file).rollout.max_tokens) == (5, 9)
    assert merged("eval", a=file).rollout.n == 3


def test_what_a_stage_does_not_know_is_not_its_business(tmp_path):
    file = write(tmp_path / "a.toml", "steps = 7\n[rollout]\nn = 3\n[eval]\nlabel = 'x'\n")
    assert merged("train", a=file).steps == 7
    assert merged("eval", a=file).label == "x"  # eval has no steps
    assert merged("sft", a=file).steps == 7  # sft has no rollout


def test_settings_for_a_method_apply_to_that_method_alone(tmp_path):
    file = write(tmp_path / "a.toml", "[train.for.dph_js.loss]\neta = 0.6\n[for.dph_f.loss]\neta = 0.4\n")
    assert merged("train", ["dph_js"], a=file).loss.eta == 0.6
    assert merged("train", ["dph_f"], a=file).loss.eta == 0.4
    assert merged("train", ["alpha"], a=file).loss.eta == 0.01


@pytest.mark.parametrize("order", [["countdown", "dph_js"], ["dph_js", "countdown"]])
def test_a_world_says_what_a_method_needs_in_it_in_either_order(order):
    config = merged("train", order)
    assert (config.method, config.loss.eta, config.rehearsal.rows, config.rollout.n) == ("dph_js", 0.6, -1, 16)
    assert config.loss.reduction == "per_set"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[loss]\neta = 0.45\n[rollout]\nn = 4\n", (0.45, 4)),
        ("[train.loss]\neta = 0.45\n[train.rollout]\nn = 4\n", (0.45, 4)),
    ],
)
def test_a_file_goes_before_all_that_presets_say(tmp_path, text, expected):
    """Also where a preset says it for this stage or this method."""
    config = merged("train", ["countdown", "dph_js"], a=write(tmp_path / "a.toml", text))
    assert (config.loss.eta, config.rollout.n) == expected


def test_a_runs_own_settings_read_back_over_its_presets(tmp_path):
    config, _ = parse("train", ["--preset", "countdown", "--preset", "dph_js", "--loss.eta", "0.3", "--rollout.n", "2"])
    file = write(tmp_path / "config.toml", to_toml(config))
    assert parse("train", ["--config", str(file)])[0] == config
    assert parse("train", ["--preset", "countdown", "--preset", "dph_js", "--config", str(file)])[0] == config


def test_flags_of_every_type():
    config, _ = parse("train", ["--task.options", "path", "a b.jsonl", "split", "x", "--dynamic-sampling.enabled"])
    assert config.task.options == {"path": "a b.jsonl", "split": "x"} and config.dynamic_sampling.enabled is True
    report, _ = parse("report", ["--runs", "a", "b", "--out", "c"])
    assert report.runs == ("a", "b")


# Errors -------------------------------------------------------------------------------------------------------------

BAD = {
    "sedd = 1": "'sedd'; perhaps you meant seed; known .*seed",
    "[rollout]\nk = 1": "'rollout' has an unknown key 'k'; known",
    "[train.rollout]\nk = 1": "under 'rollout' have an unknown key 'k'",
    "[train]\nsedd = 1": "unknown key 'sedd'",
    "seed = '1'": "'seed' must be of type int, not '1'",
    "seed = true": "'seed' must be of type int, not True",
    "seed = 1.5": "'seed' must be of type int, not 1.5",
    "[optim]\nlr = 'small'": "'optim': 'lr' must be of type float",
    "[optim]\nlr = true": "'lr' must be of type float, not True",
    "[dynamic_sampling]\nenabled = 1": "'enabled' must be of type bool, not 1",
    "prompt_set = 'some'": "'prompt_set' must be one of 'all', 'expl",
    "prompt_set = ['all']": r"'prompt_set' must be one of .* not \['all'\]",
    "rollout = 3": "'rollout' must be a table, not 3",
    "train = 3": "a.toml: 'train' must be a table, not 3",
    "verify = 3": "a.toml: 'verify' must be a table, not 3",  # of another stage than the one that reads it
    "for = 3": "a.toml: 'for' must be a table",
    "method = 'x'\n[for]\nx = 3": "a.toml: 'for.x' must be a table, not 3",
    "[task]\noptions = 'x'": "'options' must be a table, not 'x'",
    "seed = ": r"a\.toml is not a valid TOML file",
    "method = 'x'\n[for.x]\nsedd = 1": "unknown key 'sedd'",
}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_in_a_file_is_named(tmp_path, text):
    with pytest.raises(SettingsError, match=BAD[text]):
        merged("train", a=write(tmp_path / "a.toml", text))


@pytest.mark.parametrize("text", [text for text in BAD if text != "seed = "])
def test_the_same_mistake_in_yaml_is_named_by_the_same_words(tmp_path, text):
    with pytest.raises(SettingsError, match=BAD[text].replace("toml", "yaml")):
        merged("train", a=write(tmp_path / "a.yaml", yaml.safe_dump(tomllib.loads(text))))


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_a_stages_settings_are_the_same_in_yaml(tmp_path, ending):
    config, _ = parse("train", ["--preset", "countdown", "--preset", "dph_js", "--optim.lr", "1e-6", "--plugin", "a"])
    file = write(tmp_path / f"a.{ending}", yaml.safe_dump(tomllib.loads(to_toml(config))))
    assert merged("train", a=file) == config
    assert merged("train", [str(file)]) == config
    assert parse("train", ["--config", str(file), "--plugin", "a"])[0] == config


def test_numbers_and_quoted_words_in_yaml(tmp_path):
    """1e-6 is a text for YAML 1.1; here it is the number that everybody means."""
    text = "optim: {lr: 1e-6}\ntask: {split: 'no', options: {path: '1:30', n: \"010\"}}\nseed: -3\n"
    config = merged("train", a=write(tmp_path / "a.yaml", text + "rollout: {temperature: 1}\n# a comment\n"))
    assert (config.optim.lr, config.task.split, config.seed, config.rollout.temperature) == (1e-6, "no", -3, 1.0)
    assert config.task.options == {"path": "1:30", "n": "010"}
    assert merged("train", a=write(tmp_path / "empty.yaml", "# nothing\n")) == TrainConfig()


BAD_YAML = {
    "steps: [": "is not a valid YAML file: ",
    "seed: 1\ntask: {split: no}": "line 2: put no into quotes",
    "dynamic_sampling: {enabled: ON}": "line 1: put ON into quotes",
    "task: {options: {n: 010}}": "put 010 into quotes",
    "task: {options: {at: 1:30}}": "put 1:30 into quotes",
    "optim: &a {lr: 1}\nmodel: *a": "references",
    "&a [*a]": "references",
    "model: !!python/object/apply:os.system [ls]": "could not determine a constructor",
    "steps: 1\n--- \nsteps: 2": "expected a single document",
    "just a text": "must hold settings by name",
    "- steps": "must hold settings by name",
    "steps:": "'steps' must be of type int, not None",
    "[1, 2]: 3": "unhashable key",
}


@pytest.mark.parametrize("text", BAD_YAML)
def test_what_is_wrong_in_yaml_alone(tmp_path, text):
    with pytest.raises(SettingsError, match=BAD_YAML[text]):
        merged("train", a=write(tmp_path / "a.yaml", text))


def test_a_missing_file_an_unreadable_one_and_an_unknown_preset(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot read .*nothing\.toml"):
        read_settings(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"label = '\xfc'")
    with pytest.raises(SettingsError, match="not a valid TOML file"):
        read_settings(tmp_path / "latin.toml")
    with pytest.raises(SettingsError, match="no preset is named 'dph-js'"):
        merge_settings("train", ["dph-js"], [])


def test_lists_in_files(tmp_path):
    assert merged("report", a=write(tmp_path / "a.toml", "runs = ['a', 'b']")) == ReportConfig(runs=("a", "b"))
    for text in ("runs = 'a'", "runs = [1]"):
        with pytest.raises(SettingsError, match="'runs' must be"):
            merged("report", a=write(tmp_path / "a.toml", text))


OUT_OF_RANGE = {
    "rollout.n": (0, -1),
    "rollout.prompts": (0,),
    "rollout.max_tokens": (0,),
    "rollout.max_prompt_tokens": (0,),
    "rollout.temperature": (-0.5, float("nan")),
    "rollout.top_p": (0.0, -0.1, 1.5),
    "sampler.rows": (-1,),
    "optim.minibatches": (0,),
    "optim.lr": (-1.0, float("inf")),
    "steps": (-1,),
    "checkpoint_every": (0,),
    "task.limit": (-1,),
    "rehearsal.rows": (-2,),
    "dynamic_sampling.max_attempts": (0,),
    "monitor.n": (0,),
    "verifier.workers": (0,),
    "verifier.timeout": (0.0,),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in OUT_OF_RANGE.items() for value in values])
def test_numbers_out_of_range_are_named(key, value):
    words = [f"--{key.replace('_', '-')}", str(value)]
    with pytest.raises(SettingsError, match=rf"^{key} is {value}; it must"):
        parse("train", words)


@pytest.mark.parametrize("stage", STAGES)
def test_every_default_lies_in_its_range(stage):
    STAGES[stage]()


# Round trip ---------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    label=texts,
    options=st.dictionaries(texts, texts, max_size=3),
    lr=st.floats(0, 1e308),
    runs=st.lists(texts, max_size=3),
    flag=st.booleans(),
    count=st.integers(0, 10**12),
)
def test_settings_survive_toml(label, options, lr, runs, flag, count):
    task = TaskConfig(options=options, limit=count)
    for config in (
        TrainConfig(method=label, task=task, optim=OptimConfig(lr=lr), loss=LossConfig(official=flag)),
        EvalConfig(label=label, task=task, greedy=flag, seed=count),
        ReportConfig(runs=tuple(runs), title=label),
    ):
        assert from_dict(type(config), tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize("stage", STAGES)
def test_defaults_survive_toml_and_need_no_merging(stage):
    config = STAGES[stage]()
    assert from_dict(STAGES[stage], tomllib.loads(to_toml(config))) == config == from_dict(STAGES[stage], {})


def test_partial_tables_keep_a_stages_own_defaults():
    config = from_dict(SftConfig, {"optim": {"lr": 1.0}})
    assert config.optim == replace(SftConfig().optim, lr=1.0) and config.optim.beta2 == 0.95


def test_a_table_of_settings_is_not_a_stages_table(tmp_path):
    """`certify` alone is both: its table in a file holds settings, for every stage that has them."""
    for name, kind in STAGES.items():
        assert {item.name for item in dataclasses.fields(kind)} & STAGES.keys() <= {"certify"}, name
    file = tmp_path / "settings.toml"
    file.write_text("[certify]\nshare = 0.5\nepsilon = 0.1\n[eval.rollout]\nn = 3\n[train.certify]\nk = 2\n")
    assert load_settings("presample", files=[file]).certify == AsideConfig(share=0.5)
    assert load_settings("train", files=[file]).certify == CertifyConfig(epsilon=0.1, k=2)
    assert load_settings("certify", files=[file]).certify == CertificateConfig(epsilon=0.1)
    assert load_settings("eval", files=[file]).rollout.n == 3


def test_differences_by_dotted_key():
    old, new = {"a": 1, "b": {"c": [1], "d": {}}}, {"a": 1, "b": {"c": [2], "d": {"e": "x"}}}
    assert flatten(new) == {"a": 1, "b.c": [2], "b.d.e": "x"}
    assert differences(old, new) == ["b.c: [1] → [2]", "b.d.e: None → 'x'"]
    assert differences(new, new) == []


# Presets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("stage", ["sft", "presample", "train", "eval"])
def test_every_preset_builds_every_stage(stage, preset):
    config = merged(stage, [preset])
    assert config == from_dict(type(config), to_dict(config))


WORLDS = [name for name in preset_names() if name not in METHODS + OTHER_METHODS]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("method", METHODS + OTHER_METHODS)
def test_every_method_fits_every_world(method, world):
    for presets in ([world, method], [method, world]):
        config = merged("train", presets)
        assert config.method == method
        replace(config, rehearsal=replace(config.rehearsal, path="somewhere")).check_ready()


def test_tables_of_sets_are_read_joined_and_written_back(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text('[train.monitor.sets.spider]\ntask = "spider"\noptions = {root = "data"}\nlimit = 5')
    second.write_text("[train.monitor.sets.spider]\nn = 2\n[train.monitor.sets.seen]\nsplit = 'train'")
    config = load_settings("train", files=[first, second])
    assert config.monitor.sets == {
        "spider": MonitorSet("spider", {"root": "data"}, limit=5, n=2),
        "seen": MonitorSet(split="train"),
    }
    assert from_dict(TrainConfig, tomllib.loads(to_toml(config))) == config
    assert differences(to_dict(config), to_dict(load_settings("train", files=[first])))[0].startswith("monitor.sets.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 3", "'sets' under 'x' must be a table, not 3"),
        ("x.limt = 3", "unknown key 'limt'"),
        ("x.limit = 0", "monitor.sets.x.limit is 0; it must be at least 1"),
        ("x.limit = 'a'", "'limit' must be of type int, not 'a'"),
        ("'a/b'.limit = 3", "monitor.sets has 'a/b'; a name has only"),
    ],
)
def test_sets_that_cannot_be_meant_are_refused(text, said, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(f"[train.monitor.sets]\n{text}")
    with pytest.raises(SettingsError) as caught:
        load_settings("train", files=[file])
    assert said in str(caught.value)


@pytest.mark.parametrize("stage", STAGES)
def test_no_setting_is_without_its_docstring(stage):
    """`--help` shows the string below each field."""
    settings = list(every_setting(STAGES[stage]()))
    missing = [one.name for one in settings if not field_docs(one.owner).get(one.name.rpartition(".")[2])]
    assert settings and missing == []


# What each stage reads -----------------------------------------------------------------------------------------------


def test_help_lists_what_a_stage_reads():
    """Settings of training alone are not those of the other stages."""
    keys = {stage: set(flatten(to_dict(cls()))) for stage, cls in STAGES.items()}
    assert not any(key.startswith(("model.lora_", "model.gradient")) for key in keys["presample"] | keys["eval"])
    assert {"optim.minibatches", "task.split", "model.shared_prefix"}.isdisjoint(keys["sft"])
    of_steps = {f"rollout.{name}" for name in ("prompts", "old_logprobs", "importance_cap", "mask_truncated")}
    assert of_steps <= keys["train"] and of_steps.isdisjoint(keys["presample"] | keys["eval"])
    assert "tokens_per_microbatch" in keys["presample"] and "model.shared_prefix" in keys["presample"] - keys["eval"]


def test_a_shared_table_reaches_each_stage_as_far_as_it_goes(tmp_path):
    text = (
        "[rollout]\nn = 3\nprompts = 5\n[model]\nlora_rank = 2\nprecision = 'bf16'\n[task]\nsplit = 'x'\nname = 'y'\n"
    )
    file = write(tmp_path / "a.toml", text)
    assert (merged("train", a=file).rollout.prompts, merged("train", a=file).model.lora_rank) == (5, 2)
    assert (merged("eval", a=file).rollout.n, merged("eval", a=file).model.precision) == (3, "bf16")
    assert merged("sft", a=file).task.name == "y"
    with pytest.raises(SettingsError, match="does not read 'prompts'"):
        merged("eval", a=write(tmp_path / "b.toml", "[eval.rollout]\nprompts = 5\n"))


def test_a_preset_may_be_a_file(tmp_path):
    mine = write(tmp_path / "mine.toml", "[train]\nmethod = 'mine'\n[train.loss]\neta = 0.3\n")
    config = merged("train", ["dph_js", str(mine)])
    assert (config.method, config.loss.eta, config.loss.divergence) == ("mine", 0.3, "js")
    world = write(tmp_path / "world.toml", "[train.for.mine.loss]\neta = 0.9\n")
    assert merged("train", [str(mine), str(world)]).loss.eta == 0.9
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*no\.toml"):
        merged("train", [str(tmp_path / "no.toml")])


OUT_OF_BOUNDS = {
    "^steps is -1; it must be 0 or more, and finite": lambda: TrainConfig(steps=-1),
    "^steps is '9'; it must be 0 or more, and finite": lambda: TrainConfig(steps="9"),  # type: ignore[arg-type]
    "^lr is -1.0; it must be 0": lambda: OptimConfig(lr=-1.0),
    "^lr is -2.0; it must be 0": lambda: replace(TrainConfig().optim, lr=-2.0),
    "^beta1 is 1.5": lambda: AdamWConfig(beta1=1.5),
    "^stored is 0; it must be at least 1": lambda: PresampleConfig(stored=0),
    "^gpus is 0": lambda: replace(VerlConfig().cluster, gpus=0),
    "^kl_coef is -1.0; it must be 0": lambda: LossConfig(kl="k3", kl_coef=-1.0),
    "^clip_high is inf": lambda: LossConfig(clip_high=float("inf")),
    "^model.lora_rank is set, but": lambda: EvalConfig(model=ModelConfig("m", lora_rank=2)),
    "^rollout.prompts is set": lambda: PresampleConfig(rollout=RolloutConfig(n=8, prompts=1)),
    "^sampler.tensor_parallel is set": lambda: TrainConfig(sampler=SamplerConfig(tensor_parallel=2)),
    "^optim is 'fast'; it must be of the class OptimConfig": lambda: TrainConfig(optim="fast"),  # type: ignore[arg-type]
    "^monitor.sets has 'a b'; a name has only": lambda: MonitorConfig(sets={"a b": MonitorSet()}),
    "^limit is 0; it must be at least 1": lambda: MonitorSet(limit=0),
    "^loss.dual_clip must be greater than 1": lambda: LossConfig(dual_clip=0.5),
    "^at temperature 0 all 4 responses": lambda: EvalConfig(rollout=SamplingConfig(n=4, temperature=0)),
    "^threshold 9 must lie between 1 and rollout.n = 8": lambda: PresampleConfig(threshold=9),
}
"""Settings that the command line refuses, as a program writes them: there is no such object."""


@pytest.mark.parametrize("message", OUT_OF_BOUNDS)
def test_settings_filled_in_python_are_valid_once_they_exist(message):
    with pytest.raises(SettingsError, match=message):
        OUT_OF_BOUNDS[message]()


def test_a_part_of_a_wider_class_becomes_what_its_stage_reads():
    wide = ModelConfig("m", chat_template_kwargs={"a": "1"}, date="2025-02-03")
    assert EvalConfig(model=wide).model == EvaluatedModelConfig("m", chat_template_kwargs={"a": "1"}, date="2025-02-03")
    narrow: Any = SamplingConfig(n=5, top_p=0.5)
    assert TrainConfig(rollout=narrow).rollout == RolloutConfig(n=5, top_p=0.5)


def test_a_file_may_contradict_itself_if_a_flag_mends_it(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[rehearsal]\nrows = 4\npath = 'x'\n[loss]\neta = 0.0\n")
    with pytest.raises(SettingsError, match=r"^rehearsal.rows is 4 but loss.eta is 0"):
        load_settings("train", files=[file])
    assert parse("train", ["--config", str(file), "--loss.eta", "0.5"])[0].loss.eta == 0.5


def test_a_setting_out_of_bounds_is_named_with_all_of_its_name(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("[monitor.sets.other]\nlimit = 0\n")
    with pytest.raises(SettingsError, match=r"^monitor.sets.other.limit is 0; it must be at least 1"):
        load_settings("train", files=[file])


def test_each_check_runs_once_for_each_object(monkeypatch):
    seen = []
    check = LossConfig.check
    monkeypatch.setattr(LossConfig, "check", lambda config: seen.append(config) or check(config))
    config = TrainConfig(loss=LossConfig(eta=0.5))
    Objective(config.loss)
    replace(config, steps=3)
    assert sum(one is config.loss for one in seen) == 1
