"""Data parallelism over several processes, which torchrun starts. Each process holds the whole policy, and gradients
are summed over all processes."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dph.errors import SharedUserError, UserError, reason_of
from dph.process.interrupts import launched_processes

T = TypeVar("T")

TIMEOUT = timedelta(hours=6)
"""The longest time for which a process waits for another one. A process may write a checkpoint of 120 GB to a slow disk
and read it again, or sample for long, and the limits of torch itself, 10 minutes (NCCL) and 30 minutes (gloo), would
then end a run. A process that dies is noticed long before, because torchrun ends the others."""


class _Mistake(str):
    """The message of a UserError, which a process sends in the place of a value."""


@dataclass(frozen=True, slots=True)
class World:
    """This process and the group of processes that train together."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, timeout: timedelta = TIMEOUT) -> "World":
        """Join the process group that torchrun describes in the environment. Without torchrun, the group is this single
        process.

        Gradients on a GPU are summed by NCCL. Everything else is exchanged by gloo, because a process that waits there
        needs no GPU. A default group that the caller has made is used as it is. timeout: the longest time for which an
        operation waits for the other processes.
        """
        if launched_processes() == 1:
            return cls()
        if not dist.is_initialized():
            on_gpu = torch.cuda.is_available()
            if on_gpu:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timeout)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """The indices of the pieces of work that belong to this process, out of `count` pieces."""
        return range(self.rank, count, self.size)

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes, in one all-reduce.

        A parameter without a gradient in any process keeps none, so that the optimizer skips it, as in a single
        process.
        """
        if self.size == 1:
            return
        device = parameters[0].device
        present = torch.tensor([float(p.grad is not None) for p in parameters], device=device)
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters] + [present]
        )
        with self._meeting():
            dist.all_reduce(flat)
        *sums, present = flat.split([*(p.numel() for p in parameters), len(parameters)])
        for parameter, summed, count in zip(parameters, sums, present.tolist(), strict=True):
            parameter.grad = summed.view_as(parameter).clone() if count else None

    def sum_values(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sums of named numbers over all processes. Every process must pass the same names."""
        if self.size == 1:
            return dict(values)
        names = sorted(values)
        numbers = torch.tensor([values[name] for name in names], dtype=torch.float64)
        with self._meeting():
            dist.all_reduce(numbers)
        return dict(zip(names, numbers.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the order of their ranks. Raises UserError if a process has ended, or failed
        in `together`."""
        if self.size == 1:
            return [value]
        gathered: list[Any] = [None] * self.size
        with self._meeting():
            dist.all_gather_object(gathered, value)
        if mistakes := [part for part in gathered if isinstance(part, _Mistake)]:
            raise SharedUserError(mistakes[0])
        return gathered

    def joined(self, values: Tensor) -> Tensor:
        """The one-dimensional tensors of all processes, concatenated in the order of their ranks, on the CPU. Their
        lengths may differ."""
        return torch.cat(self.gather(values.cpu()))

    def together(self, action: Callable[[], T]) -> T:
        """Run `action` in every process and return its result in each.

        A UserError in one process is raised in all of them, so that no process waits for a process that has stopped,
        not even in a `gather` or `decided` of the action.
        """
        if self.size == 1:
            return action()
        result, mistake = None, None
        try:
            result = action()
        except SharedUserError:  # the other processes raise it too, and do not come here any more
            raise
        except UserError as error:
            mistake = _Mistake(error)
        self.gather(mistake)
        return result  # type: ignore[return-value]

    def decided(self, action: Callable[[], T]) -> T:
        """Run `action` in the leading process, and return its result in all processes. A UserError is raised in all of
        them."""
        return self.gather(self.together(lambda: action() if self.leads else None))[0]

    def wait(self) -> None:
        """Wait until every process has called this."""
        self.gather(None)

    @contextmanager
    def _meeting(self) -> Iterator[None]:
        """Context of an operation in which all processes take part. Raises UserError if another process ended or did
        not answer."""
        try:
            yield
        except RuntimeError as error:
            reason = f"{reason_of(error)}; --resume continues from what is saved"
            raise SharedUserError(f"another of the {self.size} processes ended or did not answer: {reason}") from error

    def leave(self) -> None:
        """Leave the process group."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
