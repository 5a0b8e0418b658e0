"""DPH-RL: reinforcement learning with verifiable rewards that keeps a policy's diversity (arXiv 2509.07430).

Each stage is a function of its settings:

    import dph
    run = dph.train(dph.TrainConfig(out="runs/a", model=…))

`dph.config.load_settings` fills settings from presets and files. Reports have a package of their own:
`dph.report.report`. Importing this package loads neither torch nor transformers; a stage loads them when it is first
used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dph.config import EvalConfig, PresampleConfig, SftConfig, TrainConfig, VerifyConfig
    from dph.stages.evaluate import evaluate
    from dph.stages.presample import presample
    from dph.stages.sft import sft
    from dph.stages.train import train
    from dph.stages.verify import verify

    __version__: str

__all__ = [
    "EvalConfig",
    "PresampleConfig",
    "SftConfig",
    "TrainConfig",
    "VerifyConfig",
    "__version__",
    "evaluate",
    "presample",
    "sft",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'dph' has no attribute {name!r}")
    home = "dph.config" if name.endswith("Config") else f"dph.stages.{name}"
    return getattr(import_module(home), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to load

    try:
        return version("dph-rl")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
