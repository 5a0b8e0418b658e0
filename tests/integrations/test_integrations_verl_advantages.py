# pyright: reportMissingImports=false
"""The advantages that verl's trainer computes against the native engine's, on the same groups."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dph.config import OverlongConfig
from dph.integrations.verl.settings import DPHSettings
from dph.objective import Advantage
from dph.training.rollouts import Shaping
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict
from helpers import needs

pytestmark = needs("verl")

OUTCOMES = ("correct", "wrong", "infra_error", "correct", "wrong", "correct", "wrong", "wrong")
TEXTS = ("3 4", "5", "6", "7 8 9", "5", "3 4", "2", "9 9")
GROUPS = (0, 1, 0, 0, 1, 1, 0, 1)
TOKENS = [[int(word) for word in text.split()] for text in TEXTS]
LOGPROBS = [[-0.5 - 0.1 * index * step for step, _ in enumerate(ids, 1)] for index, ids in enumerate(TOKENS)]


def reference(ids: list[int]) -> list[float]:
    """log π_ref of each token."""
    return [-0.3 * token for token in ids]


def rollout_of(index: int) -> Rollout:
    verdict = Verdict(Outcome(OUTCOMES[index]), float(OUTCOMES[index] == "correct"))
    return Rollout(Completion(TOKENS[index], LOGPROBS[index], "stop"), TEXTS[index], verdict)


def in_verl(advantage: Advantage) -> list[Any]:
    """Advantages of all rows, as our trainer in verl computes them."""
    from dph.integrations.verl.judged import JudgedResponse, judged_advantages

    judged = [
        JudgedResponse(
            group=f"g{GROUPS[index]}",
            rollout=rollout_of(index),
            outcome=outcome,
            reference=reference(TOKENS[index]),
            own=torch.ones(len(TOKENS[index]), dtype=torch.bool),
            mask=torch.ones(len(TOKENS[index]), dtype=torch.int64),
        )
        for index, outcome in enumerate(OUTCOMES)
    ]
    values = judged_advantages(advantage, judged, DPHSettings(), 8)
    assert [value is None for value in values] == [outcome == "infra_error" for outcome in OUTCOMES]
    return [value for value in values if value is not None]


def in_the_native_engine(advantage: Advantage) -> list[Any]:
    """The same in the order of the rows."""

    def live(rows):
        return [reference(list(row.response_ids)) for row in rows]

    shaping = Shaping(advantage, OverlongConfig(), 8, False, lambda *_: None, live)
    found = {}
    for group in set(GROUPS):
        members = [index for index, own in enumerate(GROUPS) if own == group]
        rollouts = list(map(rollout_of, members))
        (rows,) = shaping.rows([Group(Problem("p", "q", "a", "exact"), [1], rollouts)])
        found |= {index: row.advantage for index, row in zip(members, rows, strict=True) if row is not None}
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in ("group", "maxrl", "w_reinforce", "f_grpo", "rs_grpo")),
        *((name, {}) for name in ("unlikeliness", "diff_smoothing")),
        ("passk", {"k": "2"}),
        ("mara", {"beta": "0.1"}),
        ("uniqueness", {"by": "text"}),
    ],
)
def test_advantages_are_those_of_the_native_engine(method: str, options: dict[str, str]) -> None:
    """Two groups whose rows are mixed, and one response whose judging failed."""
    advantage = Advantage(method, options)
    native = in_the_native_engine(advantage)
    assert in_verl(advantage) == pytest.approx(native)
    assert max(map(abs, native)) > 0.01


def test_results_of_tools_count_for_no_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tokens of the model, two of a tool's result between them."""
    from dph.integrations.verl import trainer

    columns = {
        "uid": ["g"],
        "responses": [torch.tensor([3, 4, 5, 6, 7])],
        "loss_mask": [torch.tensor([1, 0, 0, 1, 1])],
        "response_mask": [torch.tensor([1, 0, 0, 1, 1])],
        "rm_scores": [torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])],
        "extra_fields": [{"reward_extra_info": {"outcome": "correct"}}],
        "old_log_probs": [torch.tensor([-1.0, -9.0, -9.0, -2.0, -3.0])],
        "ref_log_prob": [torch.tensor([-1.5, -9.0, -9.0, -2.5, -3.5])],
    }
    monkeypatch.setattr(trainer.tq, "kv_batch_get", lambda select_fields, **_: {n: columns[n] for n in select_fields})
    batch = trainer.KVBatchMeta(keys=["g_0_0"], tags=[{}], partition_id="train")
    tokenizer = SimpleNamespace(eos_token_id=7, decode=lambda ids, **_: " ".join(map(str, ids)))
    (row,) = trainer.read_judged(batch, 8, tokenizer, reference=True)
    completion = row.rollout.completion
    assert (completion.token_ids, completion.logprobs, row.reference) == ([3, 6, 7], [-1, -2, -3], [-1.5, -2.5, -3.5])
    assert row.rollout.text == "3 4 5 6 7"
    assert trainer.per_token([0.5, 0.25, 1.0], row.own).tolist() == [0.5, 0, 0, 0.25, 1.0]
    assert trainer.per_token(2.0, row.own).tolist() == [2, 0, 0, 2, 2] and not trainer.per_token(None, row.own).any()
