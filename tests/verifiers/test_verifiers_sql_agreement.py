"""The SQL verifier gives the verdicts of the official evaluators, on fixed samples of published predictions.

`python -m benchmarks.verifiers.agreement_sql DATA` judges them all.
"""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.verifiers import agreement_sql
from dph.types import Outcome

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not (DATA / "spider").is_dir(), reason="the public predictions are not on this machine")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    with tarfile.open(DATA / "spider" / "test_suite_database.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("files", "every", "least"),
    [
        (("din_sql_gpt4", "codes_1b_sft", "c3_chatgpt"), 17, 160),  # Spider
        (("codes_15b", "codes_7b_evidence", "gpt-4"), 4, 60),  # BIRD
    ],
)
def test_agreement(files: tuple[str, ...], every: int, least: int, suite: Path):
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
