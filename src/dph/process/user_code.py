"""Import Python files of the user, and report the line at which an error occurred (standard library only)."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType


def import_file(path: str | Path) -> ModuleType:
    """Import a Python file as a module named by its stem. Raises whatever its code raises."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def describe(error: BaseException, path: str | Path) -> str:
    """Describe an error as "ValueError in line 7: …", where the line is the last one of `path` in its traceback.

    The line is omitted if the file is not in the traceback, or for a syntax error, whose message includes the line.
    """
    kind = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(path).absolute()]
    if lines and not isinstance(error, SyntaxError):
        kind += f" in line {lines[-1]}"
    return f"{kind}: {error}"
