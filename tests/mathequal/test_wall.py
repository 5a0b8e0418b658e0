"""`mathequal` is a package of its own: what it imports, what it loads, and its public names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mathequal
from dph.types import UNPARSED

HOME = Path(mathequal.__path__[0])
STANDARD = sys.stdlib_module_names


def imported(source: Path) -> set[str]:
    """The top-level packages that a file imports, anywhere in it."""
    names = set[str]()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_it_imports_only_itself_mpmath_and_the_standard_library():
    outside = {name for file in HOME.rglob("*.py") for name in imported(file)} - STANDARD
    assert outside == {"mathequal", "mpmath"}


def loaded_by(statement: str) -> set[str]:
    """The modules of `mathequal`, and mpmath, that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.partition(".")[0] in ("mathequal", "mpmath", "dph")}


def test_a_name_loads_its_own_module_only():
    assert loaded_by("import mathequal; mathequal.RULES_VERSION") == {"mathequal"}
    of_extract = loaded_by("from mathequal import find_answer")
    assert "mathequal.extract" in of_extract and not {"mpmath", "mathequal.judge", "dph"} & of_extract


@pytest.mark.parametrize("name", mathequal.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(mathequal, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mathequal.nothing  # noqa: B018


def test_dph_calls_answers_that_are_not_read_as_the_judge_does():
    assert mathequal.UNPARSED == UNPARSED
    assert mathequal.compare("1", r"\frac{") == (False, "not read", UNPARSED)
