"""Freed memory goes back to the system, and little is kept for later."""

import os
import sys
from pathlib import Path

import pytest

from dph.cli.main import main
from dph.process import memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts resident pages as Linux reports them")
def test_freed_memory_between_blocks_in_use_is_returned_now_and_then() -> None:
    if not hasattr(memory.ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library returns nothing")
    blocks = [bytearray(b"1") * 100_000 for _ in range(4000)]  # too small for pages of their own
    blocks = blocks[::50]  # leaves 400 MB of gaps
    held = memory.resident()
    for step in range(1, memory.STEPS_BETWEEN):
        memory.return_freed(step)
    assert memory.resident() > held - (1 << 24), "it is used again, which is faster than to take it from the system"
    memory.return_freed(memory.STEPS_BETWEEN)
    assert memory.resident() < held - 300_000_000
    assert all(block[0] == block[-1] == ord("1") for block in blocks)


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


@pytest.mark.parametrize(
    ("flags", "before", "after"),
    [
        ([], None, "expandable_segments:True"),
        (["--sampler.engine", "vllm"], None, None),
        ([], "max_split_size_mb:512", None),
    ],
)
def test_memory_on_a_gpu_grows_unless_the_engine_or_the_environment_has_its_own(
    flags: list[str], before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        monkeypatch.setenv(name, "")  # so that it is as before after the test
        monkeypatch.delenv(name)
    if before is not None:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", before)
    monkeypatch.setattr("dph.cli.main._call", lambda *_: None)
    main(["eval", "--model.path", "model", "--out", "nowhere", *flags])
    assert os.environ.get("PYTORCH_ALLOC_CONF") == after


def test_free_memory_is_what_the_container_still_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (str(tmp_path / "max"), str(tmp_path / "none")))
    monkeypatch.setattr(memory, "CGROUP_USED", (str(tmp_path / "current"), str(tmp_path / "none")))
    assert (memory.free_memory() or 0) > 1 << 24
    (tmp_path / "max").write_text("5000\n")
    (tmp_path / "current").write_text("2000\n")
    assert memory.free_memory() == 3000
    (tmp_path / "max").write_text("max\n")
    assert (memory.free_memory() or 0) >= 1 << 24
