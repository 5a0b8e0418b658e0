"""DPH-RL: reinforcement learning with verifiable rewards that keeps a policy's diversity (arXiv 2509.07430).

Importing this package loads neither torch nor transformers; the submodules that need them load them themselves.
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("dph-rl")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
