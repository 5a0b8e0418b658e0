"""The memory of this machine and of this process."""

import ctypes
import os
import sys
from pathlib import Path

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
CGROUP_USED = ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
STEPS_BETWEEN = 8
"""The number of steps between two returns of freed memory. Taking the memory from the system again costs up to a tenth
of a step."""


def free_memory() -> int | None:
    """The available memory in bytes: that of the system, or that of the container if its limit leaves less. None if the
    system does not report it."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))  # macOS reports only the total
    for limit, used in zip(CGROUP_LIMITS, CGROUP_USED, strict=True):
        try:
            allowed, taken = Path(limit).read_text(encoding="ascii"), Path(used).read_text(encoding="ascii")
        except OSError:
            continue
        if allowed.strip().isdigit():
            limits.append(max(0, int(allowed) - int(taken)))
    return min(limits) if limits else None


def resident(name: str = "VmRSS") -> int:
    """The memory of this process in bytes, on Linux. VmRSS is the current value, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def peak_memory() -> dict[str, float]:
    """The peak memory of this process so far, in GiB, as the metric `peak_memory_gib`. It is the memory of the GPU if a
    GPU is in use, and the resident memory otherwise."""
    import resource

    import torch  # imported here, because the command line imports this module and must start fast

    if torch.cuda.is_initialized():
        return {"peak_memory_gib": torch.cuda.max_memory_allocated() / (1 << 30)}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / (1 << 30)}


def keep_few_kernels() -> None:
    """Let oneDNN keep its last 16 kernels instead of 1024, unless the environment names another number. It must be
    called before anything is computed.

    On a CPU, oneDNN makes a kernel for each new shape of a matrix product in bf16. Micro-batches of packed rows have
    other shapes each time, so that most of these kernels are used in a single micro-batch. All together they take half
    a GiB.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")


def grow_segments() -> None:
    """Let the memory of torch on a GPU consist of segments that grow, unless the environment configures it. It must be
    called before a GPU is used. Segments of fixed sizes would keep gaps, because tensors have other shapes in each
    micro-batch."""
    if not any(f"PYTORCH_{kind}ALLOC_CONF" in os.environ for kind in ("", "CUDA_", "HIP_")):
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


def return_freed(step: int) -> None:
    """Return freed memory to the system after every eighth step (`STEPS_BETWEEN`), if the C library is glibc.

    glibc keeps freed memory that lies below a block in use. Tensors have other shapes in every step and leave gaps
    between the blocks that stay. So a process would grow for hours, although the memory that it uses stays the same.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and step % STEPS_BETWEEN == 0:
        trim(0)
