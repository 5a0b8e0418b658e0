"""The FLOP model by hand, and the training benchmarks run once at their smallest sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig

from benchmarks._support import flops
from benchmarks.memory import resident
from dph.training.rows import Row, collate

ROOT = Path(__file__).parents[2]


def test_memory_of_logits_by_hand():
    # two tensors of 6 × 10, 4 bytes a number; in chunks two of 2 × 10, and three gradients of 10 × 3
    assert resident.logit_bytes(6, 10, 3, 0) == 4 * 2 * 60 == 480
    assert resident.logit_bytes(6, 10, 3, 2) == 4 * (2 * 20 + 3 * 30) == 520


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_memory_of_logits_is_measured():
    """24 MiB of logits: all of them and their gradient take 42 MiB more than chunks of 128 tokens, of 3 MiB each."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory.resident",
        "--logits",
        "1024",
        "--vocabulary",
        "6144",
        "--hidden",
        "8",
    ]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said[3:]]
    assert [name for name, *_ in rows] == ["all, kept", "chunks of 341", "chunks of 128"]
    assert float(rows[0][2]) - float(rows[2][2]) > 42 - 12


def test_work_of_batches_by_hand():
    rows = [Row([5, 6, 7], [8, 9], ()), Row([5, 6, 7], [4, 3, 2], ())]
    # two rows padded to 6 tokens, each with 6·7/2 pairs; 5 tokens are predicted
    assert flops.Work.of(collate(rows)) == flops.Work(12, 42, 5)
    # prompt 3, suffixes of 1 and 2 tokens; pairs 1+2+3, 4, and 4+5; the last token of the prompt predicts two of the 5
    assert flops.Work.of(collate(rows, shared=True)) == flops.Work(6, 19, 4)


def test_operations_by_hand():
    config = LlamaConfig(
        vocab_size=10, hidden_size=4, intermediate_size=6, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    # a layer: queries and output 2·4·4, keys and values 2·2·4, gate, up and down 3·6·4: 120 weights;
    # pairs: 2 products over 4 dimensions; logits: 4·10
    expected = 2 * (2 * 120 * 7 + 2 * 2 * 4 * 20) + 2 * 40 * 3
    assert flops.forward_flops(config, flops.Work(7, 20, 3)) == expected
    assert flops.training_flops(config, flops.Work(7, 20, 3)) == 3 * expected
    assert flops.matmul_rate(config, 8, repeats=1) > 0


@pytest.mark.timeout(400)  # imports of torch in three processes, on a machine that may be busy
@pytest.mark.parametrize(("name", "files"), [("methods", 1), ("scaling", 2)])
def test_a_benchmark_runs(tmp_path, name, files):
    command = [sys.executable, "-m", f"benchmarks.speed.{name}", "--smoke", "--threads", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == files
    found = json.loads((tmp_path / f"{name}.json").read_text())
    if name == "scaling":
        assert all(line["shared"] > 0 for lines in found["sweeps"].values() for line in lines)
    else:  # 3 rollouts of 2 prompts: repeated, RKL passes 4/3 of GRPO's work, and DPH-JS two of eight rows more
        model = {line["method"]: line["flop_model"] for line in found["table"] if not line["shared"]}
        assert model["GRPO"] == pytest.approx(3 / 4) and model["DPH-JS"] == pytest.approx(8 / 6 * 3 / 4)
