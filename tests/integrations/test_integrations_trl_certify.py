# pyright: reportMissingImports=false
"""Certificates in TRL: a GRPO trainer with the callback, checked against `dph certify` of what it saved."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl", reason="TRL is not installed")
    from dph.integrations.trl import CertifyCallback, VerifierReward, exploration_set

from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from dph.config import AsideConfig, CertifyConfig, CertifyStageConfig, ModelConfig, TaskConfig
from dph.errors import UserError
from dph.models.policy import Policy
from dph.runs.coverage import CERTIFICATE, read_visits
from dph.stages.certify import certify
from dph.stages.presample import presample
from dph.training.callbacks import certifier as module
from helpers import base_run, presample_config

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of TRL, accelerate and datasets, about themselves
]


@pytest.fixture(scope="module")
def kept_aside(tmp_path_factory):
    task = TaskConfig(name="toy", options={"problems": "120"})
    out = tmp_path_factory.mktemp("presample") / "run"
    return presample(presample_config(out, task=task, certify=AsideConfig(share=0.7, samples=2)))


def trained(kept_aside, out, model="", **certified):
    """Four steps of TRL's own trainer; returns it."""
    config = CertifyConfig(**{"set": str(kept_aside), "epsilon": 0.1, "every": 2} | certified)
    args = GRPOConfig(
        output_dir=str(out), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True, save_strategy="no",
        per_device_train_batch_size=4, num_generations=4, max_completion_length=4, max_steps=4,
    )  # fmt: skip
    path = model or str(base_run() / "model")
    tokenizer = AutoTokenizer.from_pretrained(str(base_run() / "model"))
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(path),
        reward_funcs=VerifierReward(),
        args=args,
        train_dataset=exploration_set(kept_aside, tokenizer),
        processing_class=tokenizer,
        callbacks=[CertifyCallback(config)],
    )
    trainer.train()
    return trainer


def test_a_trainer_of_trl_is_certified(kept_aside, tmp_path):
    trainer = trained(kept_aside, tmp_path)
    logged = [line for line in trainer.state.log_history if "certify/bound" in line]
    assert [(line["step"], line["certify/certified"]) for line in logged] == [(2, 1), (4, 1)]
    assert list(read_visits(tmp_path, CERTIFICATE)) == [0, 2, 4]
    config = CertifyStageConfig(
        base=str(kept_aside),
        checkpoints=(str(tmp_path / "certified"),),
        certify=CertifyConfig(epsilon=0.1),
        model=ModelConfig(device="cpu"),
    )
    assert certify(config)[0].bound == logged[-1]["certify/bound"]


def test_a_failure_ends_the_training_if_it_is_to(kept_aside, tmp_path, monkeypatch):
    real = module.solved
    nothing = lambda *given: {id: (0, n) for id, (_, n) in real(*given).items()}  # noqa: E731
    monkeypatch.setattr(module, "solved", nothing)
    assert trained(kept_aside, tmp_path / "stop", stop=True).state.global_step == 2
    assert trained(kept_aside, tmp_path / "report").state.global_step == 4
    assert not (tmp_path / "report" / "certified").exists()


def test_another_model_is_refused(kept_aside, tmp_path):
    policy = Policy.load(ModelConfig(str(base_run() / "model"), device="cpu"))
    with torch.no_grad():
        next(policy.model.parameters()).add_(0.01)
    policy.save(tmp_path / "model")
    with pytest.raises(UserError, match="does not fit this run"):
        trained(kept_aside, tmp_path / "run", model=str(tmp_path / "model"))
