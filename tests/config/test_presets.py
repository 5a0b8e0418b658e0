"""The presets against the paper's Tables 5 to 7 and against each other for equal budgets."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from dph.config import STAGES, from_dict, merge_settings, preset_names
from dph.config.sampling import sampling_facts
from dph.errors import SettingsError
from helpers import METHODS, OTHER_METHODS

PAPER = ("llama_sql", "omnisql_32b", "llama_math", "qwen_math")


def settings(stage, *presets):
    return from_dict(STAGES[stage], merge_settings(stage, presets, []))


# method: (prompts, clip high, divergence, estimator, η, KL, β, dynamic sampling)
TABLE = {
    "grpo": ("all", 0.2, None, None, 0, "none", 0, False),
    "grpo_kl": ("all", 0.2, None, None, 0, "k3", 0.01, False),
    "rkl": ("all", 0.28, None, None, 0, "k3", 0.01, False),
    "rkl_true": ("all", 0.28, None, None, 0, "k2", 0.01, False),
    "dapo": ("all", 0.28, None, None, 0, "none", 0, True),
    "exp_only": ("explore", 0.28, None, None, 0, "none", 0, False),
    "alpha": ("explore", 0.28, "alpha", "generator", 0.01, "none", 0, False),
    "dph_f": ("explore", 0.28, "forward_kl", "generator", 0.01, "none", 0, False),
    "dph_js": ("explore", 0.28, "js", "generator", 0.2, "none", 0, False),
    "dph_js_def": ("explore", 0.28, "js", "definition", 0.2, "none", 0, False),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_those_of_the_paper(method):
    prompts, high, divergence, estimator, eta, kl, beta, dynamic = TABLE[method]
    config = settings("train", method)
    loss = config.loss
    found = (config.method, config.prompt_set, loss.clip_low, loss.clip_high, loss.eta)
    assert found == (method, prompts, 0.2, high, eta)
    assert (loss.kl, loss.kl_coef, config.dynamic_sampling.enabled) == (kl, beta, dynamic)
    assert (loss.aggregation, loss.reduction, loss.entropy_coef, loss.official) == ("token", "per_set", 0, False)
    assert config.stored_rows == (256 if eta else 0)  # of 128 × 16 rollouts
    if eta:
        assert (loss.divergence, loss.estimator) == (divergence, estimator)
    assert (config.overlong.buffer > 0) == (method == "dapo")


# preset: (task, lr, max response, max prompt, validation temperature, threshold, drop unsolved,
#          clip high of grpo, clip high of the others)
SETUPS = {
    "llama_sql": ("bird", 1e-6, 4096, 16000, 1.0, 6, False, 0.2, 0.28),
    "omnisql_32b": ("bird", 1e-6, 4096, 16000, 1.0, 7, False, 0.2, 0.28),
    "llama_math": ("dapo_math_17k", 2e-7, 2048, 2048, 0.6, 6, True, 0.2, 0.2),
    "qwen_math": ("dapo_math_17k", 2e-7, 2048, 2048, 0.6, 7, True, 0.2, 0.28),
}
# epochs · prompts to explore / prompts a step:
# 4·6710/128 = 209.7, 4·5169/128 = 161.5, 8·4599/128 = 287.4, 8·7009/128 = 438.1
STEPS = {"llama_sql": 209, "omnisql_32b": 161, "llama_math": 287, "qwen_math": 438}


@pytest.mark.parametrize("setup", PAPER)
@pytest.mark.parametrize("method", METHODS)
def test_setups_are_those_of_tables_6_and_7(setup, method):
    task, lr, response, prompt, validation, threshold, drop, grpo_high, high = SETUPS[setup]
    config, sampled, scored = settings("train", setup, method), settings("presample", setup), settings("eval", setup)
    for stage in (config, sampled, scored):
        assert stage.task.name == task and stage.model.precision == "bf16"
        assert (stage.rollout.max_tokens, stage.rollout.max_prompt_tokens, stage.rollout.top_p) == (
            response,
            prompt,
            0.95,
        )
    assert (config.rollout.prompts, config.rollout.n, config.rollout.temperature) == (128, 16, 1.0)
    assert (sampled.rollout.n, sampled.threshold, sampled.drop_unsolved) == (8, threshold, drop)
    assert sampled.refine == "move" and sampled.rollout.temperature == 1.0
    assert (scored.rollout.temperature, scored.rollout.n) == (validation, 32)
    optim = config.optim
    assert (optim.lr, optim.weight_decay, optim.grad_clip, optim.minibatches) == (lr, 0.01, 1.0, 2)
    assert (optim.schedule, config.loss.reduction, config.steps) == ("constant", "pooled", STEPS[setup])
    assert config.loss.clip_high == (grpo_high if method in ("grpo", "grpo_kl") else high)
    assert config.loss.eta == TABLE[method][4] and config.stored_rows == (256 if config.loss.eta else 0)


@pytest.mark.parametrize("world", [name for name in preset_names() if name not in METHODS + OTHER_METHODS])
def test_every_method_has_the_same_budget_in_a_world(world):
    """Equal prompts, rollouts, optimizer steps and rates; only the objective differs."""
    budgets = set()
    for method in METHODS + OTHER_METHODS:
        config = settings("train", world, method)
        budgets.add((config.steps, config.rollout, config.optim, config.loss.reduction))
        own = {"dr_grpo": "dr_grpo", "gspo": "sequence"}
        assert config.loss.aggregation == own.get(method, "token")
        assert config.loss.dr_grpo_length == config.rollout.max_tokens or method != "dr_grpo"
        assert config.stored_rows > 0 or config.loss.eta == 0
    assert len(budgets) == 1
    config = settings("train", world, "dph_js")
    # as many stored responses as the paper has for its rollouts (256 to 2048), or twice as many at most
    assert 1 / 8 <= config.stored_rows / (config.rollout.prompts * config.rollout.n) <= 1 / 4


def test_models_of_presets_agree_between_stages():
    for name in preset_names():
        paths = {settings(stage, name).model.path for stage in ("presample", "train", "eval")}
        assert len(paths) == 1, name


def test_every_method_of_llama_math_has_its_clip():
    """The preset says so: the paper reports instability with a higher one."""
    alone = {method: settings("train", method).loss.clip_high for method in (*METHODS, *OTHER_METHODS)}
    usual = [method for method, clip in alone.items() if clip in (0.2, 0.28) and "cov" not in method]
    assert "grpo_sft" in usual and "dapo_wise" in usual
    assert {settings("train", "llama_math", method).loss.clip_high for method in usual} == {0.2}


def test_mara_has_one_beta():
    mara = settings("train", "mara")
    assert mara.advantage_options == {"beta": "0.1"}
    weaker = replace(mara, loss=replace(mara.loss, kl_coef=0.01))
    assert weaker.advantage_options == {"beta": "0.01"}
    two = replace(weaker, advantage=replace(mara.advantage, options={"beta": "0.1"}))
    with pytest.raises(SettingsError, match="one β for both"):
        _ = two.advantage_options


@pytest.mark.parametrize("method", ["dph_js", "dph_f", "dph_js_def", "alpha", "grpo"])
def test_refill_adds_dynamic_sampling_to_a_method_and_nothing_else(method):
    for stage in ("train", "verl"):
        alone, refilled = settings(stage, "llama_sql", method), settings(stage, "llama_sql", method, "refill")
        assert refilled.dynamic_sampling.enabled and not alone.dynamic_sampling.enabled
        assert replace(refilled, dynamic_sampling=alone.dynamic_sampling) == alone


def test_the_authors_settings_are_those_of_their_scripts():
    ours = {method: settings("train", "llama_sql_authors", method) for method in METHODS}
    for method in ("dph_js", "dph_f", "dph_js_def", "alpha"):
        config = ours[method]
        assert (config.stored_rows, config.loss.eta, config.loss.dual_clip, config.steps) == (256, 0.01, 3.0, 5 * 52)
        assert (config.verifier.comparator, config.verifier.reward) == ("paper_bird", "paper")
        assert config.rollout.top_p == 0.9 and config.loss.clip_high == 0.28
    assert ours["dph_f"].loss.official and ours["dph_js_def"].loss.js_scale == 2.0
    dapo = ours["dapo"]
    assert (dapo.loss.kl, dapo.loss.kl_coef, dapo.dynamic_sampling.enabled, dapo.overlong.buffer) == (
        "k3",
        0.01,
        False,
        0,
    )
    sampled = settings("presample", "llama_sql_authors")
    assert ours["grpo"].loss.clip_high == 0.2 and (sampled.threshold, sampled.refine) == (8, "discard")


def test_stored_responses_are_drawn_as_training_draws():
    """Training refuses a rehearsal set that was sampled with other parameters, so a preset has the same in both."""
    for name in preset_names():
        stored, trained = settings("presample", name).rollout, settings("train", name).rollout
        assert sampling_facts(stored) == sampling_facts(trained), name


def test_every_page_that_a_preset_names_exists():
    root = Path(__file__).parents[2]
    named = {page for file in files("dph.presets").iterdir() if file.name.endswith(".toml")
             for page in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8"))}  # fmt: skip
    assert named and [page for page in named if not (root / page).is_file()] == []
