# pyright: reportMissingImports=false
"""The bank in TRL's trainer: `trainer.train()` admits what it generates and rehearses it, and TRL's resume goes on.

It runs in an environment with the extra `trl`: scripts/test-trl
"""

import subprocess
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl", reason="TRL is not installed")
    from dph.integrations.trl import DPHConfig, DPHTrainer, VerifierReward, exploration_set

from datasets import Dataset

from dph.errors import RunError, SettingsError, UserError
from dph.rehearsal import bank_files
from dph.rehearsal.bank import even_weights
from helpers import base_run, presampled, tiny_policy, weights

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of TRL, accelerate and datasets, about themselves
]


def short(completions, **_):
    """Any response of at most two words is right."""
    return [float(len(text.split()) <= 2) for text in completions]


def made(folder, rewards=short, **changes):
    given = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "max_steps": 4,
        "temperature": 3.0,  # at which the toy's model answers in many ways
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "rehearsal_rows": 6,
        "bank": "text",
        "seed": 3,
    }
    own = {name: changes.pop(name) for name in ("peft_config", "rehearsal_set", "train_dataset") if name in changes}
    data = Dataset.from_dict({"prompt": [f"easy {i}" for i in range(5)] + [f"hard {i}" for i in range(5)]})
    return DPHTrainer(
        model=str(base_run() / "model"),
        reward_funcs=rewards,
        args=DPHConfig(**{**given, **changes}),
        **{"train_dataset": data, **own},
    )


def noting(trainer):
    """Note the rows of each step, with the weights that the loss has."""
    taken, compute = [], trainer._compute_loss

    def noted(model, inputs):
        loss = compute(model, inputs)
        if not taken or taken[-1][0] != trainer.state.global_step:
            taken.append((trainer.state.global_step, [*trainer._step_rows]))
        return loss

    trainer._compute_loss = noted
    return taken


def admitted(folder):
    found = defaultdict(list)
    for file in sorted((folder / "bank").iterdir()):
        for row in pq.read_table(file).to_pylist():
            found[row["found"]].append(row)
    return found


def tokens(row):
    return (*row["prompt_ids"], *row["response_ids"])


def banked(trainer):
    return [entry for entry in trainer.state.log_history if "bank/modes" in entry]


def logged(trainer):
    """Metrics of each step that do not depend on where the process began."""
    same = ("bank/", "pef/", "loss", "grad_norm", "reward")
    return [{name: value for name, value in line.items() if name.startswith(same)} for line in banked(trainer)]


def test_train_admits_and_rehearses(tmp_path):
    trainer = made(tmp_path)
    taken = noting(trainer)
    trainer.train()
    found, lines = admitted(tmp_path), banked(trainer)
    assert trainer._bank is not None
    assert [line["bank/new"] for line in lines] == [len(found[step]) for step in range(1, 5)] and found[1]
    assert lines[-1]["bank/modes"] == len(trainer._bank.bank) == sum(map(len, found.values()))
    assert all(short([row["text"]]) == [1.0] for rows in found.values() for row in rows)
    assert all(row["mode"] == " ".join(row["text"].split()) for rows in found.values() for row in rows)
    eos = trainer._tokenizer.eos_token_id
    assert all(row["response_ids"][-1] == eos for rows in found.values() for row in rows)  # cut off ones stay out
    assert "pef/tokens" not in lines[0] and all(line["pef/tokens"] > 0 for line in lines[1:])
    assert [step for step, _ in taken] == [0, 1, 2, 3] and taken[0][1] == []
    for step, rows in taken[1:]:
        before = {tokens(row): row for earlier in range(1, step + 1) for row in found[earlier]}
        keys = [(*row.prompt_ids, *row.response_ids) for row in rows]
        assert len(rows) == len({*keys}) == min(6, len(before)) and {*keys} <= before.keys()
        ids = [before[key]["problem_id"] for key in keys]
        assert [row.weight for row in rows] == even_weights(ids)


def test_stored_logprobs_are_those_of_the_policy_that_drew_them(tmp_path):
    """Without updates u = 1 when they are rehearsed."""
    trainer = made(tmp_path, learning_rate=0.0, divergence="forward_kl")
    trainer.train()
    for line in banked(trainer)[1:]:
        assert line["pef/tokens"] > 0 and abs(line["pef/log_ratio"]) < 1e-5 and line["pef/divergence"] < 1e-5


def test_accumulation_admits_and_weighs_the_same(tmp_path):
    whole = made(tmp_path / "a", max_steps=3)
    whole.train()
    parts = made(tmp_path / "b", max_steps=3, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    parts.train()
    names = ("problem_id", "response_ids", "found")
    rows = [
        [[row[name] for name in names] for step in (1, 2, 3) for row in admitted(tmp_path / name)[step]]
        for name in "ab"
    ]
    assert rows[0] == rows[1]
    for (name, x), (_, y) in zip(whole.model.named_parameters(), parts.model.named_parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5, msg=name)  # rounding of tiny gradients


@pytest.mark.parametrize("tokens", [30, 1 << 18], ids=["files", "checkpoint"])
def test_trls_resume_continues_the_bank(tmp_path, monkeypatch, tokens):
    monkeypatch.setattr(bank_files, "TOKENS_OF_A_FILE", tokens)
    saving = {"save_strategy": "steps", "save_steps": 1}
    whole = made(tmp_path / "whole", **saving)
    whole.train()
    first = made(tmp_path / "parts", **saving)
    compute, steps = first._compute_loss, []

    def interrupted(model, inputs):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return compute(model, inputs)

    first._compute_loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        first.train()
    again = made(tmp_path / "parts", **saving)
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))  # step 3 is taken again
    assert logged(again) == logged(whole)
    for folder in ("bank", "checkpoint-4"):
        names = sorted(file.name for file in (tmp_path / "whole" / folder).iterdir() if file.name.startswith(NAMES))
        assert names
        for name in names:
            files = [(tmp_path / run / folder / name).read_bytes() for run in ("whole", "parts")]
            assert files[0] == files[1], name
    models = [weights(tmp_path / run / "checkpoint-4") for run in ("whole", "parts")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


NAMES = ("step-", "bank")


def test_the_bank_begins_with_a_presample_run(tmp_path, capfd):
    reward = VerifierReward()
    data = exploration_set(presampled(), tiny_policy().tokenizer, prompt_set="all")
    assert len(data) > len(exploration_set(presampled(), tiny_policy().tokenizer))
    trainer = made(tmp_path, reward, bank="style", temperature=1.0, train_dataset=data, rehearsal_set=presampled())
    trainer.train()
    reward.close()
    lines, found = banked(trainer), admitted(tmp_path)
    assert len(found[0]) == 6 and lines[0]["pef/tokens"] == 12 and lines[-1]["bank/modes"] > 6
    assert {row["mode"] for rows in found.values() for row in rows} <= {"yes", "no"}
    assert "the bank begins with 6 responses" in capfd.readouterr().err


def test_adapters_and_bf16_train_with_it(tmp_path):
    from peft import LoraConfig

    adapters = LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    for name, how in {"lora": {"peft_config": adapters}, "bf16": {"bf16": True}}.items():
        trainer = made(tmp_path / name, max_steps=3, divergence="forward_kl_raw", eta=1.0, **how)
        before = {key: x.detach().clone() for key, x in trainer.model.named_parameters()}
        trainer.train()
        lines = banked(trainer)
        assert lines[0]["bank/new"] > 0 and lines[-1]["pef/tokens"] > 0, name
        moved = {key for key, x in trainer.model.named_parameters() if not torch.equal(x, before[key])}
        assert moved and (name != "lora" or all("lora_" in key for key in moved))


TWO_PROCESSES = """
import hashlib, sys, torch
from pathlib import Path
sys.path[:0] = {folders!r}
import test_integrations_trl_bank as t
made = t.made(Path({folder!r}), per_device_train_batch_size=4)
made.train()
assert made.accelerator.num_processes == 2
facts = [(e.row.problem_id, e.row.text, [*e.row.ref_logprobs], e.found, e.drawn) for e in made._bank.bank.entries]
weights = hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in made.model.parameters())).hexdigest()
seen = [None, None]
torch.distributed.all_gather_object(seen, (facts, weights))
assert facts and seen[0] == seen[1]
assert t.banked(made)[-1]["pef/tokens"] > 0
print("agrees")
"""


@pytest.mark.timeout(420)
def test_two_processes_hold_one_bank(tmp_path):
    base_run()
    script, here = tmp_path / "two.py", Path(__file__).parent
    script.write_text(TWO_PROCESSES.format(folders=[str(here), str(here.parent)], folder=str(tmp_path / "run")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.count("agrees") == 2, done.stderr[-3000:]
    rows = [row for rows in admitted(tmp_path / "run").values() for row in rows]
    assert len({(row["problem_id"], row["mode"]) for row in rows}) == len(rows) > 4


def test_what_it_cannot_do_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"bank is 'text', but rehearsal_rows is 0"):
        made(tmp_path, rehearsal_rows=0)
    with pytest.raises(SettingsError, match=r"no bank key is named 'route'"):
        made(tmp_path, bank="route")
    with pytest.raises(SettingsError, match=r"bank is 'style', which reads problems, but the data set has no column"):
        made(tmp_path, bank="style")
    with pytest.raises(SettingsError, match=r"this trainer has 2 reward functions; set bank_correct_from"):
        made(tmp_path, [short, short])
    with pytest.raises(UserError, match=r"tell their problems from those of the data set, which lacks"):
        made(tmp_path, rehearsal_set=presampled(), temperature=1.0)

    def graded(completions, **_):
        return [0.5 for _ in completions]

    with pytest.raises(SettingsError, match=r"pays graded rewards \(0\.5\).*set bank_correct_from"):
        made(tmp_path / "graded", graded).train()
    trainer = made(tmp_path / "chosen", graded, bank_correct_from=0.4, max_steps=1)
    trainer.train()
    assert banked(trainer)[0]["bank/new"] > 0


def test_checkpoints_of_another_bank_and_without_one_are_refused(tmp_path):
    made(tmp_path, max_steps=1, save_strategy="steps", save_steps=1).train()
    before = {file: file.read_bytes() for file in (tmp_path / "bank").iterdir()}
    with pytest.raises(RunError, match=r"has checkpoints of another training with a bank \(checkpoint-1\)"):
        made(tmp_path, max_steps=1).train()
    assert before == {file: file.read_bytes() for file in (tmp_path / "bank").iterdir()}
    (tmp_path / "checkpoint-1" / "bank_state.json").unlink()
    with pytest.raises(RunError, match=r"checkpoint-1 has no bank"):
        made(tmp_path, max_steps=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
