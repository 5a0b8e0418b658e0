"""Keyed randomness: it depends only on what is sampled, not on batch layout, process count or call order.

Every response has a 63-bit key derived from (seed, purpose, problem, sample index …). The uniform number for its t-th
token is a hash of (key, t). A resumed run therefore needs no sampler state.
"""

import hashlib
import random

import torch
from torch import Tensor

_MASK_63 = (1 << 63) - 1


def derive_key(seed: int, *parts: str | int) -> int:
    """A 63-bit key from a seed and strings or integers (BLAKE2b; the same on every platform and in every process)."""
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") & _MASK_63


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of an int64 tensor."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


# SplitMix64's three numbers, as int64
_GOLDEN, _MIX_1, _MIX_2 = (x - (1 << 64) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def uniforms(keys: Tensor, positions: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) by SplitMix64: the (positions+1)-th output of the generator seeded with each key.

    Args:
        keys: int64 [N].
        positions: int64 [N] or a scalar tensor, the token's index within its response.
    Returns:
        float64 [N] with 53 random bits; on devices without float64, float32 [N] with 24.
    """
    z = keys + (positions + 1) * _GOLDEN
    z = (z ^ _shift_right(z, 30)) * _MIX_1
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    z = z ^ _shift_right(z, 31)
    dtype = torch.float32 if keys.device.type == "mps" else torch.float64
    bits = 24 if dtype is torch.float32 else 53
    return _shift_right(z, 64 - bits).to(dtype) / float(1 << bits)


class EpochOrder:
    """An endless shuffled order of `size` items: one seeded permutation per epoch.

    The item at a position depends only on (size, seed, purpose, position), so the position is the whole state.
    """

    def __init__(self, size: int, seed: int, purpose: str) -> None:
        if size < 1:
            raise ValueError("cannot order an empty set")
        self._size, self._seed, self._purpose = size, seed, purpose
        self._epoch, self._permutation = -1, list(range(size))

    def item(self, position: int) -> int:
        """Index of the item at this position."""
        epoch, offset = divmod(position, self._size)
        if epoch != self._epoch:
            self._permutation = list(range(self._size))
            random.Random(derive_key(self._seed, self._purpose, epoch)).shuffle(self._permutation)
            self._epoch = epoch
        return self._permutation[offset]

    def take(self, position: int, count: int) -> list[int]:
        """Indices of the items at positions position … position+count−1."""
        return [self.item(p) for p in range(position, position + count)]
