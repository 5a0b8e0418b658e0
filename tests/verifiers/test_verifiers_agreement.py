"""The verifiers agree with published verdicts, on fixed samples: of SQL predictions by the official evaluators, and of
mathematics by published gradings. The rows known to differ are named here; docs/concepts/verifiers.md has the reasons.

`python -m benchmarks.verifiers.agreement_sql DATA` and `agreement_math` judge them all.
"""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.verifiers import agreement_math, agreement_sql
from dph.types import Outcome

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"

# the Qwen evaluation takes the last number of a response that was cut off, and lists in one order only
LLAMA_BOXED = {9, 25, 37, 97, 136, 213, 255, 257, 333, 379, 456, 464, 480, 489}
KNOWN = {
    ("llama31_8b_instruct_math500_qwen_boxed", "qwen"): set(),
    ("llama31_8b_instruct_math500_qwen_boxed", "math_verify"): LLAMA_BOXED,
    ("llama31_8b_instruct_math500_qwen_boxed", "typed"): {8, 9, 25, 37, 85, 97, 136, 213, 257, 333, 456, 464, 480, 489},
    ("qwen25math_example_math_cot_100", "qwen"): set(),
    ("qwen25math_example_math_cot_100", "math_verify"): {72},
    ("qwen25math_example_math_cot_100", "typed"): {3, 72},
    # MathCoder's own grading allows 0.01 in absolute terms and compares lists and products by text
    ("mathcoder_l_7b_deepmind_mathematics", "qwen"): {102, 223, 433, 461, 666, 671, 683, 744, 822, 891},
    ("mathcoder_l_7b_deepmind_mathematics", "math_verify"): {102, 223, 433, 461, 744},
    # 671, 683, 738: the golds list numbers between blanks
    ("mathcoder_l_7b_deepmind_mathematics", "typed"): {102, 223, 433, 461, 671, 683, 738, 744},
    # cases whose verdict rests on an argument of the library's own test
    ("answer_equivalence_cases", "math_verify library"): {6, 31, 32, 133, 139, 186, 250},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    with tarfile.open(DATA / "spider" / "test_suite_database.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.skipif(not (DATA / "spider").is_dir(), reason="the public predictions are not on this machine")
@pytest.mark.parametrize(
    ("files", "every", "least"),
    [
        (("din_sql_gpt4", "codes_1b_sft", "c3_chatgpt"), 17, 160),  # Spider
        (("codes_15b", "codes_7b_evidence", "gpt-4"), 4, 60),  # BIRD
    ],
)
def test_verdicts_of_queries_are_the_official_ones(files: tuple[str, ...], every: int, least: int, suite: Path):
    found = list(agreement_sql.agreements(DATA, every=every, files=files, suite=suite))
    counts: Counter[str] = Counter()
    for agreement in found:
        assert agreement.different == []
        counts[agreement.rule.label] += len(agreement.rows)
        labels = {label for _, _, label in agreement.rows}
        assert len(labels) > 1  # a sample of which all were right would show little
        assert not {v.outcome for v in agreement.verdicts} & {Outcome.INFRA_ERROR, Outcome.GOLD_ERROR}
    expected = {rule.label for rule in agreement_sql.SPIDER} if "c3_chatgpt" in files else {"ex", "ex_gold2023"}
    assert set(counts) == expected and counts["ex"] >= least


def test_no_row_differs_but_the_known_ones():
    if not (DATA / "math" / "graded_outputs").exists():
        pytest.skip("the graded outputs are not on this machine")
    judged = 0
    for agreement in agreement_math.agreements(DATA, every=6):
        different = {int(case.name.split()[0].split(".")[0]) for case, _ in agreement.different}
        assert different <= KNOWN[agreement.file, agreement.policy], agreement.line
        judged += len(agreement.cases)
    assert judged >= 1200


def test_a_disagreement_is_named(tmp_path, capsys):
    folder = tmp_path / "math" / "graded_outputs"
    folder.mkdir(parents=True)
    rows = [r'{"gt": "1", "pred": "1.0", "correct": true}', r'{"gt": "2", "pred": "3", "correct": true}']
    (folder / "mathcoder_l_7b_deepmind_mathematics.jsonl").write_text("\n".join(rows))
    agreement_math.main([str(tmp_path)])
    told = capsys.readouterr().out
    assert told.count("1 of     2   50.00 %") == 3 and "1: labelled correct, wrong: '2'" in told
    with pytest.raises(SystemExit, match="no graded outputs"):
        agreement_math.main([str(tmp_path / "math")])
