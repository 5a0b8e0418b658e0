# pyright: reportMissingImports=false
"""Whether verl finds our plug-in. verl logs an error in a plug-in at debug level only, so others have to look."""

from importlib.util import find_spec

from dph.errors import UserError
from dph.integrations.verl.settings import TRAINER_MODE

_INSTALL = "make a separate environment and run there: pip install 'dph-rl[verl]'"


def check_registered() -> None:
    """Raises UserError, with what to install, if verl is missing, or if importing the plug-in does not register our
    trainer."""
    if find_spec("verl") is None:
        raise UserError(f"verl is not installed; {_INSTALL}")
    try:
        import dph.integrations.verl.plugin  # noqa: F401, I001  (first: it names a verl of another version)
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    except Exception as error:  # of verl, or of what verl imports
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"the plug-in for verl cannot be imported ({reason}); {_INSTALL}") from error
    if TRAINER_MODE not in TRAINER_REGISTRY:
        raise UserError(f"verl does not know the trainer {TRAINER_MODE!r}; install dph-rl again in this environment")
