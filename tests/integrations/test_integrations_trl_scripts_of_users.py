# pyright: reportMissingImports=false
"""Scripts as users of TRL write them: what does not fit is found at construction, or after the first batches; prompts
hold one date, and stored responses are those of the prompts and of the distribution that are trained on.

It runs in an environment with the extra `trl`: scripts/test-trl
"""

import shutil
import sqlite3
import warnings
from datetime import datetime

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl", reason="TRL is not installed")
    from dph.integrations.trl import DPHConfig, DPHTrainer, SharedPrefixMixin, VerifierReward, exploration_set
    from dph.integrations.trl.sampling import drawn_by, reshaped

from types import SimpleNamespace

from datasets import Dataset
from transformers import AutoTokenizer, GenerationConfig
from transformers.utils import chat_template_utils
from trl import GRPOConfig, GRPOTrainer

from dph.config import ModelConfig, TaskConfig
from dph.config.sampling import SamplingParams
from dph.errors import UserError
from dph.rewards import reward_function
from dph.runs.directory import RunDir
from dph.stages.presample import presample
from helpers import base_run, presample_config, presampled, rollout

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of TRL, accelerate and datasets, about themselves
]
SMALL = {
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "per_device_train_batch_size": 4,
    "num_generations": 4,
    "max_completion_length": 4,
}
"""Everything else is TRL's default, bf16 included."""


class Trainer(SharedPrefixMixin, GRPOTrainer):
    """As docs/guides/trl.md shows it."""


def plain(cls, folder, rows, reward, **changes):
    args = {GRPOTrainer: GRPOConfig, Trainer: GRPOConfig, DPHTrainer: DPHConfig}[cls]
    settings = {**SMALL, **({"rehearsal_rows": 0} if cls is DPHTrainer else {}), **changes}
    return cls(
        model=str(base_run() / "model"),
        reward_funcs=reward,
        args=args(str(folder), **settings),
        train_dataset=Dataset.from_list(rows),
    )


def rehearsing(folder, run=None, model=None, **changes):
    run, model = run or presampled(), str(model or base_run() / "model")
    return DPHTrainer(
        model=model,
        reward_funcs=VerifierReward(),
        args=DPHConfig(str(folder), **{**SMALL, **changes}),
        train_dataset=exploration_set(run, AutoTokenizer.from_pretrained(model)),
        rehearsal_set=run,
    )


# Rewards ------------------------------------------------------------------------------------------------------------


def test_a_database_that_does_not_exist_ends_the_training(tmp_path):
    rows = [{"prompt": f"easy {i}", "answer": "SELECT 1", "db": str(tmp_path / "nobody.sqlite")} for i in range(8)]
    trainer = plain(GRPOTrainer, tmp_path, rows, reward_function("sql"), max_steps=20)
    with pytest.raises(UserError, match=r"no response of 2 batches .* \(gold_error: no database file at .*nobody"):
        trainer.train()
    for cls in (Trainer, DPHTrainer):
        with pytest.raises(UserError, match=r"train_dataset does not fit .* none of the first 8 rows .* no database"):
            plain(cls, tmp_path, rows, reward_function("sql"))
    sqlite3.connect(tmp_path / "nobody.sqlite").close()
    trainer = plain(Trainer, tmp_path, rows, reward_function("sql"), max_steps=3, logging_steps=1)
    trainer.train()
    assert all(line["rewards/sql/mean"] == 0 for line in trainer.state.log_history if "rewards/sql/mean" in line)


def test_rows_of_another_task_are_no_failures(tmp_path):
    """Of two tasks in one data set, each reward function judges its own rows; the others have no answer for it."""
    rows = [{"prompt": f"easy {i}", "answer": None, "words": "yes"} for i in range(8)]
    judges = [reward_function("math"), reward_function("exact", answer_column="words")]
    trainer = plain(Trainer, tmp_path, rows, judges, max_steps=4, logging_steps=1)
    trainer.train()
    assert any(line.get("rewards/exact/mean", 0) > 0 for line in trainer.state.log_history)


OWN_DATA = {
    "a text column problem": {"prompt": "easy 1", "problem": "What is 1 + 1?", "answer": "2"},
    "no column problem": {"prompt": "easy 1", "answer": "2"},
    "a table": {"prompt": "easy 1", "problem": {"id": "1"}, "answer": "2"},
}


@pytest.mark.parametrize("name", OWN_DATA)
def test_a_data_set_of_ones_own_is_told_which_reward_function_reads_it(name, tmp_path):
    rows, wanted = [OWN_DATA[name]] * 8, r'use dph\.rewards\.reward_function\("math"\), which reads the column `answer`'
    for cls in (Trainer, DPHTrainer):
        with pytest.raises(UserError, match=wanted):
            plain(cls, tmp_path, rows, VerifierReward())
    with pytest.raises(UserError, match=wanted):
        plain(GRPOTrainer, tmp_path, rows, VerifierReward()).train()
    trainer = plain(Trainer, tmp_path, rows, reward_function("math"), max_steps=1, logging_steps=1)
    trainer.train()
    assert any("rewards/math/mean" in line for line in trainer.state.log_history)


def test_columns_are_tried_at_construction(tmp_path):
    rows = [{"prompt": "easy 1", "solution": "2"}] * 8
    with pytest.raises(UserError, match=r"train_dataset does not fit .* needs a column 'answer' .* has: solution"):
        plain(Trainer, tmp_path, rows, reward_function("math"))
    plain(Trainer, tmp_path, rows, reward_function("math", answer_column="solution"))
    with pytest.raises(UserError, match="has no database path under 'db'"):
        plain(Trainer, tmp_path, [{"prompt": "easy 1", "answer": "SELECT 1"}] * 8, reward_function("sql"))


def test_data_sets_of_evaluation_are_tried_too(tmp_path):
    good, bad = [{"prompt": "easy 1", "answer": "2"}] * 4, [{"prompt": "easy 1", "gold": "2"}] * 4
    for name, given in (("eval_dataset", Dataset.from_list(bad)), ("held", {"held": Dataset.from_list(bad)})):
        with pytest.raises(UserError, match=f"{name}.* does not fit its reward function"):
            Trainer(
                model=str(base_run() / "model"),
                reward_funcs=reward_function("math"),
                args=GRPOConfig(str(tmp_path), **SMALL),
                train_dataset=Dataset.from_list(good),
                eval_dataset=given,
            )


# The distribution that is sampled from --------------------------------------------------------------------------------


RESHAPING = [
    {"top_k": 5},
    {"min_p": 0.1, "top_p": 0.9},
    {"repetition_penalty": 1.2},
    {"generation_kwargs": {"no_repeat_ngram_size": 2}},
    {"generation_kwargs": {"temperature": 0.5}},
    {"generation_kwargs": {"top_p": 0.5}},
    {"generation_kwargs": {"typical_p": 0.9}},
    {"generation_kwargs": {"suppress_tokens": [3]}},
    {"generation_kwargs": {"min_new_tokens": 3}},
    {"generation_kwargs": {"do_sample": False}},
]


@pytest.mark.parametrize("setting", RESHAPING, ids=str)
def test_a_setting_that_changes_the_distribution_is_refused_with_stored_responses(setting, tmp_path):
    (name, value), *_ = (next(iter(setting.values())) if "generation_kwargs" in setting else setting).items()
    with pytest.raises(UserError, match=rf"was sampled from the model's distribution .* but .*{name}=\[?{value!r}?"):
        rehearsing(tmp_path, **setting)
    rows = [{"prompt": "easy 1", "answer": "2"}] * 8
    plain(DPHTrainer, tmp_path, rows, reward_function("math"), **setting)  # without stored responses it is TRL's


def test_settings_that_change_nothing_are_allowed(tmp_path):
    kwargs = {"num_beams": 1, "typical_p": 1.0, "min_p": 0.0, "no_repeat_ngram_size": 0, "use_cache": True}
    trainer = rehearsing(tmp_path, generation_kwargs=kwargs, max_steps=2, logging_steps=1)
    trainer.train()
    assert any(line.get("pef/tokens", 0) > 0 for line in trainer.state.log_history), "stored responses are trained on"


def test_settings_of_the_models_own_generation_config_are_seen(tmp_path):
    model = shutil.copytree(base_run() / "model", tmp_path / "model")
    GenerationConfig(do_sample=True, no_repeat_ngram_size=2, top_k=20, repetition_penalty=1.1).save_pretrained(model)
    with pytest.raises(UserError, match="no_repeat_ngram_size=2 makes this trainer sample from another"):
        rehearsing(tmp_path / "out", model=model)
    GenerationConfig(do_sample=True, top_k=20, repetition_penalty=1.1).save_pretrained(model)  # TRL replaces these
    rehearsing(tmp_path / "out", model=model)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"generation_kwargs": {"seed": 1, "stop": ["x"], "presence_penalty": 0.0, "logit_bias": None}}, None),
        ({"min_p": 0.05}, None),
        ({"top_k": -1}, None),
        ({"top_k": 40}, "top_k=40"),
        ({"generation_kwargs": {"presence_penalty": 0.5}}, "presence_penalty=0.5"),
        ({"generation_kwargs": {"frequency_penalty": 0.5}}, "frequency_penalty=0.5"),
        ({"generation_kwargs": {"logit_bias": {3: 1.0}}}, "logit_bias={3: 1.0}"),
        ({"generation_kwargs": {"top_p": 0.9}}, "generation_kwargs top_p=0.9"),
        ({"vllm_structured_outputs_regex": "yes|no"}, "vllm_structured_outputs_regex='yes|no'"),
    ],
)
def test_the_same_settings_through_vllm(changes, found):
    usual = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    args = SimpleNamespace(**{"generation_kwargs": None, "vllm_structured_outputs_regex": None, **changes})
    trainer = SimpleNamespace(use_vllm=True, args=args, **{**usual, **{k: v for k, v in changes.items() if k in usual}})
    assert reshaped(trainer) == found


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ({"min_p": 0.1}, r"min_p 0\.0 there, 0\.1 here"),
        ({"generation_kwargs": {"stop_strings": ["x"]}}, r"stop \[\] there, \['x'\] here"),
    ],
)
def test_another_sampling_parameter_than_the_stored_responses_is_refused(setting, found, tmp_path):
    with pytest.raises(UserError, match=f"does not fit this run.*{found}"):
        rehearsing(tmp_path, **setting)


def test_the_sampling_parameters_of_a_trainer_with_vllm():
    args = SimpleNamespace(generation_kwargs={"stop": "x", "seed": 1, "min_p": 0.2})
    trainer = SimpleNamespace(use_vllm=True, args=args, temperature=0.7, top_p=0.9, top_k=0, min_p=None)
    assert drawn_by(trainer) == SamplingParams(temperature=0.7, top_p=0.9, min_p=0.2, stop=("x",))


# Prompts --------------------------------------------------------------------------------------------------------------


TURNS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
DAY = TURNS + "{% for digit in strftime_now('%d%m') %} {{ digit }}{% endfor %}"
THINKING = TURNS + "{% if enable_thinking is defined and enable_thinking is false %} 9{% endif %}"


def chat_run(folder, template, **model):
    """A model with a chat template, and a presample run of it."""
    path = shutil.copytree(base_run() / "model", folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    config = presample_config(
        folder / "run",
        model=ModelConfig(path=str(path), device="cpu", **model),
        task=TaskConfig(name="toy"),
        rollout=rollout(n=8, max_prompt_tokens=16),
        threshold=5,
    )
    return path, presample(config)


def prompts_of(trainer):
    """What TRL makes of the data set's prompts, as text."""
    ids, *_ = trainer._tokenize_prompts(list(trainer.train_dataset["prompt"]))
    return trainer.processing_class.batch_decode(ids)


def test_trl_renders_the_rehearsal_sets_date_on_every_day(tmp_path, monkeypatch, caplog):
    class Today(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 28)

    monkeypatch.setattr(chat_template_utils, "datetime", Today)
    model, run = chat_run(tmp_path, DAY, date="2026-09-07")
    assert RunDir.open(run).manifest["chat_template_date"] == "2026-09-07"
    trainer = rehearsing(tmp_path / "out", run, model, max_steps=2, logging_steps=1)
    assert all(prompt.endswith(" 0 7 0 9") for prompt in prompts_of(trainer))
    assert "the chat template writes a date into prompts: 2026-09-07 on every day" in caplog.text
    trainer.train()
    assert any(line.get("pef/tokens", 0) > 0 for line in trainer.state.log_history)
    assert trainer.processing_class.chat_template == DAY, "what is saved is the model's own"


def test_other_variables_than_the_stored_prompts_are_refused(tmp_path):
    model, run = chat_run(tmp_path, THINKING, chat_template_kwargs={"enable_thinking": "false"})
    with pytest.raises(UserError, match=r"chat_template_kwargs \{'enable_thinking': False\} there, None here"):
        rehearsing(tmp_path / "out", run, model)
    with pytest.raises(UserError, match="True"):
        rehearsing(tmp_path / "out", run, model, chat_template_kwargs={"enable_thinking": True})
    trainer = rehearsing(tmp_path / "out", run, model, chat_template_kwargs={"enable_thinking": False}, max_steps=1)
    assert all(prompt.endswith(" 9") for prompt in prompts_of(trainer))
    trainer.train()


def test_variables_that_the_stored_prompts_lack_are_refused(tmp_path):
    model, run = chat_run(tmp_path, THINKING)
    with pytest.raises(UserError, match=r"chat_template_kwargs None there, \{'enable_thinking': False\} here"):
        rehearsing(tmp_path / "out", run, model, chat_template_kwargs={"enable_thinking": False})
    with pytest.raises(UserError, match="sets 'enable_thinkng', but the tokenizer's chat template does not use it"):
        rehearsing(tmp_path / "out", run, model, chat_template_kwargs={"enable_thinkng": False})
