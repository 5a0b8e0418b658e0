# pyright: reportMissingImports=false
"""Whether verl is installed, and whether it can import our plug-in."""

import warnings
from importlib.util import find_spec

from dph.errors import UserError, how_to_install


def check_registered() -> None:
    """Raises UserError, with what to install, if verl is missing or cannot import our plug-in; verl itself logs such an
    error at debug level only."""
    install = f"make a separate environment and run there: {how_to_install('verl')}"
    if find_spec("verl") is None:
        raise UserError(f"verl is not installed; {install}")
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # for each engine that is not installed
            import dph.integrations.verl.plugin  # noqa: F401
    except Exception as error:  # of verl, or of what verl imports
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"the plug-in for verl cannot be imported ({reason}); {install}") from error
