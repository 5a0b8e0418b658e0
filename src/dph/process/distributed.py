"""Data parallelism over several processes (torchrun): each holds the whole policy; gradients are summed over all."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dph.errors import SharedUserError, UserError
from dph.process.launched import launched_processes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """This process and the group of processes that train together."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> "World":
        """Join the process group that torchrun describes in the environment; a single process otherwise."""
        if launched_processes() == 1:
            return cls()
        if not dist.is_initialized():
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """The indices, out of `count` pieces of work, that belong to this process."""
        return range(self.rank, count, self.size)

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over processes, in one all-reduce.

        A parameter without a gradient in any process keeps none, so that the optimizer skips it, as it does in a
        single process.
        """
        if self.size == 1:
            return
        device = parameters[0].device
        present = torch.tensor([float(p.grad is not None) for p in parameters], device=device)
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters] + [present]
        )
        dist.all_reduce(flat)
        *sums, present = flat.split([*(p.numel() for p in parameters), len(parameters)])
        for parameter, summed, count in zip(parameters, sums, present.tolist(), strict=True):
            parameter.grad = summed.view_as(parameter).clone() if count else None

    def sum_values(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum named numbers over processes; every process must pass the same names."""
        if self.size == 1:
            return dict(values)
        names = sorted(values)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        numbers: Tensor = torch.tensor([values[name] for name in names], dtype=torch.float64, device=device)
        dist.all_reduce(numbers)
        return dict(zip(names, numbers.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in rank order."""
        if self.size == 1:
            return [value]
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def joined(self, values: Tensor) -> Tensor:
        """Concatenate the one-dimensional tensors of all processes in rank order, on the CPU; lengths may differ."""
        if self.size == 1:
            return values
        device = "cuda" if torch.cuda.is_available() else "cpu"
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(values)], device=device))
        longest = max(int(size) for size in sizes)
        own = torch.cat([values.to(device), values.new_zeros(longest - len(values), device=device)])
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own)
        return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)]).cpu()

    def together(self, action: Callable[[], T]) -> T:
        """Run `action` in every process. A UserError in one process is raised in all of them, so that no process waits
        for one that has stopped."""
        if self.size == 1:
            return action()
        result, mistake = None, None
        try:
            result = action()
        except UserError as error:
            mistake = str(error)
        mistakes = [text for text in self.gather(mistake) if text is not None]
        if mistakes:
            raise SharedUserError(mistakes[0])
        return result  # type: ignore[return-value]

    def decided(self, action: Callable[[], T]) -> T:
        """Run `action` in the leading process and return its result in all; a UserError is raised in all."""
        if self.size == 1:
            return action()
        return self.gather(self.together(lambda: action() if self.leads else None))[0]

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        """Leave the process group."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
