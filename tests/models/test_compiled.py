"""Compiled functions of logits: used where their check succeeds, and as exact as uncompiled."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dph.models import logprobs as module
from dph.models.logprobs import compiled, softmax_sums, weighted_softmax

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    module.compiles.cache_clear()
    yield
    module.compiles.cache_clear()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize(("function", "per_row"), [(softmax_sums, 0), (weighted_softmax, 3)])
def test_the_compiler_gives_what_the_function_gives(function: Callable[..., Any], per_row: int) -> None:
    assert module.compiles(function, per_row, CPU, torch.bfloat16, 5000)
    assert module.compiles(function, per_row, CPU, torch.float32, 300)


def test_a_compiler_that_fails_or_is_wrong_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no compiler\nfor this card")

    monkeypatch.setattr(module, "kernel", lambda function: fails)
    assert not module.compiles(softmax_sums, 0, CPU, torch.bfloat16, 50)
    assert "logits are not read by compiled kernels on cpu: no compiler for this card" in capsys.readouterr().err
    monkeypatch.setattr(module, "kernel", lambda function: lambda *given: function(*given) * 1.001)
    assert not module.compiles(weighted_softmax, 3, CPU, torch.bfloat16, 50)
    assert "their results differ" in capsys.readouterr().err
    monkeypatch.setattr(module, "kernel", lambda function: function)
    assert module.compiles(weighted_softmax, 3, CPU, torch.bfloat16, 51)


def test_a_cpu_and_few_logits_need_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compiles", lambda *_: True)
    monkeypatch.setattr(module, "kernel", lambda function: function)
    few, many = (torch.empty(rows, 1 << 20, device="meta") for rows in (1, 32))
    assert compiled(softmax_sums, torch.empty(2, 3)) is None

    class OnGpu:
        device, dtype = torch.device("cuda"), torch.bfloat16

        def __init__(self, like: torch.Tensor) -> None:
            self.shape, self.numel = like.shape, like.numel

    assert compiled(softmax_sums, OnGpu(few)) is None  # type: ignore[arg-type]
    assert compiled(softmax_sums, OnGpu(many)) is softmax_sums  # type: ignore[arg-type]


def test_a_kernel_that_takes_masked_tokens_for_others_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(logits: torch.Tensor, *given: Any) -> Any:
        return softmax_sums(logits.clamp(min=-4), *given)

    monkeypatch.setattr(module, "kernel", lambda function: forgets)
    assert not module.compiles(softmax_sums, 0, CPU, torch.float32, 50)


def test_memory_that_runs_out_is_not_taken_for_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module, "kernel", lambda function: fails)
    with pytest.raises(torch.OutOfMemoryError):
        module.compiles(softmax_sums, 0, CPU, torch.bfloat16, 52)
