"""Freed memory goes back to the system, and little is kept for later."""

import os
import subprocess
import sys

import pytest

from dph.cli.main import main
from dph.process import memory

_PLAIN = {name: value for name, value in os.environ.items() if name not in ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts resident pages as Linux reports them")
def test_freed_memory_between_blocks_in_use_is_returned_when_a_process_has_grown() -> None:
    if not hasattr(memory.ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("this C library does not say what it holds")

    def fragment() -> list[bytearray]:
        """Leave 400 MB of gaps between blocks that are kept."""
        blocks = [bytearray(b"1") * 100_000 for _ in range(4000)]  # too small for pages of their own
        return blocks[::50]

    freed, kept = memory.FreedMemory(), fragment()
    freed.after_step()
    freed.after_step()
    first = memory.resident()
    for _ in range(memory._STEPS_BETWEEN):
        freed.after_step()
    assert memory.resident() > first - (1 << 24), "a process that does not grow keeps them, because they will be used"
    hole = [bytearray(b"1") * 100_000 for _ in range(4000)]  # fills the gaps
    kept += fragment()
    grown = memory.resident()
    assert grown > first + 300_000_000 and memory.held_free() > 300_000_000
    freed.after_step()
    assert memory.resident() < grown - 300_000_000
    assert len(hole) == 4000 and all(block[0] == block[-1] == ord("1") for block in kept)


_GAPS = """
from dph.process import memory

freed = memory.FreedMemory({weights}, {activation})
block = bytearray(b"1") * (1 << 23)
del block  # from here on glibc would take smaller blocks from its heap
pairs = [(bytearray(b"1") * (1 << 21), bytearray(b"1") * 100_000) for _ in range(100)]
before = memory.resident()
kept = [small for _, small in pairs]
del pairs
print(before - memory.resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts resident pages as Linux reports them")
@pytest.mark.parametrize(
    ("weights", "activation", "environment", "returned"),
    [
        (memory._LARGE_MODEL, 0, {}, True),
        (memory._LARGE_MODEL, 2 * memory._LARGE_BLOCK, {}, True),
        (memory._LARGE_MODEL, 2 * memory._LARGE_BLOCK + 1, {}, False),  # the blocks of 2 MiB are such activations
        (memory._LARGE_MODEL - 1, 0, {}, False),
        (memory._LARGE_MODEL, 0, {"MALLOC_MMAP_THRESHOLD_": "33554432"}, False),
        (memory._LARGE_MODEL, 0, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432"}, False),
    ],
)
def test_large_blocks_are_returned_at_once_with_a_large_model_unless_the_environment_sets_a_size(
    weights: int, activation: int, environment: dict[str, str], returned: bool
) -> None:
    if not hasattr(memory.ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library has no such setting")
    script = [sys.executable, "-c", _GAPS.format(weights=weights, activation=activation)]
    ran = subprocess.run(script, capture_output=True, text=True, check=True, env={**_PLAIN, **environment})
    assert (int(ran.stdout) > 150 << 20) is returned


def test_little_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(memory, "held_free", lambda: memory._WORTH_RETURNING)
    monkeypatch.setattr(memory, "resident", lambda: looked.append("resident") or 0)
    freed = memory.FreedMemory()
    for _ in range(3 * memory._STEPS_BETWEEN):
        freed.after_step()
    assert looked == [], "the memory of the process is read only where there is something to return"


@pytest.mark.parametrize(("before", "after"), [(None, "16"), ("300", "300")])
def test_commands_keep_few_kernels_unless_the_environment_says_how_many(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, before or "")
    if before is None:
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        main(["no-such-command"])
    assert os.environ[name] == after
