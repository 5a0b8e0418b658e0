"""The contract that all engines keep: the native engine reproduces it however it cuts and packs the batch."""

import itertools

import pytest

from contract.fixture import CASES, FILE, TEMPERATURE, TOLERANCE, case_name, native, read, relative_error
from dph.models.batch import by_prompt
from dph.models.policy import Policy
from dph.objective import Objective
from dph.training.rows import batches
from dph.training.update import count_rows
from helpers import shares, tiny_policy

CONTRACT = read()


def test_the_contract_is_what_is_written_today():
    assert [case.config for case in CONTRACT.cases] == CASES and CONTRACT.temperature == TEMPERATURE
    assert FILE.stat().st_size < 400_000
    assert {row.is_rehearsal for row in CONTRACT.rows} == {True, False}
    model = CONTRACT.make_model()
    losses, gradients = [], []
    for case in CONTRACT.cases:
        again = native(model, CONTRACT.rows, case.config, CONTRACT.temperature)
        assert again.loss == pytest.approx(case.loss, rel=TOLERANCE)
        assert relative_error(again.gradient, case.gradient) < TOLERANCE
        losses.append(round(case.loss, 6))
        gradients.append(case.gradient)
    assert len(set(losses)) == len(CASES)  # every case says something of its own
    assert all(relative_error(a, b) > 0.01 for a, b in itertools.pairwise(gradients))


@pytest.mark.parametrize("case", CONTRACT.cases, ids=lambda case: case_name(case.config))
@pytest.mark.parametrize(("budget", "shared"), [(10_000, True), (45, True), (40, False)])
def test_the_native_engine_keeps_it(case, budget, shared):
    policy = Policy(CONTRACT.make_model(), tiny_policy().tokenizer, shared_prefix=shared)
    assert shares(policy, CONTRACT.rows) is shared
    parts = list(batches(policy, by_prompt(CONTRACT.rows), budget))
    assert len(parts) == 1 if budget == 10_000 else len(parts) > 1
    counts = count_rows(CONTRACT.rows)
    total = 0.0
    for _, batch in parts:
        loss, _ = Objective(case.config)(policy.logprobs(batch, CONTRACT.temperature)[0], batch, counts)
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(case.loss, rel=TOLERANCE)
    gradient = {name: x.grad for name, x in policy.model.named_parameters()}
    assert relative_error(gradient, case.gradient) < TOLERANCE
