"""scripts/map: every package is counted, and no arrow points upward. `scripts/size`: what counts as a line of code,
and that it runs.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from _size import LONGEST, code_lines, long_files

ROOT = Path(__file__).resolve().parents[2]


def test_the_map_holds_every_package(tmp_path):
    picture = tmp_path / "map.png"
    command = [sys.executable, str(ROOT / "scripts" / "_map.py"), "--out", str(picture)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    sizes = {cells[1].strip(): int(cells[2]) for cells in (line.split("|") for line in said[2:]) if len(cells) > 3}
    package = ROOT / "src" / "dph"
    files = {path.stem: 1 for path in package.glob("*.py") if path.stem != "__init__"}
    folders = {path.parent.name: len(list(path.parent.rglob("*.py"))) for path in package.glob("*/__init__.py")}
    assert sizes == files | folders
    assert said[-1] == "arrows that point upward: none"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_blank_lines_comments_and_docstrings_are_not_code():
    text = '''"""Module,

over three lines."""
# a comment

import os  # 1: a comment beside code is no line of its own


class A:  # 2
    """Docstring."""

    x = 1  # 3
    """Below an attribute."""
    y = """text
    that is a value"""  # 4, 5

    def f(self):  # 6
        return (  # 7
            os  # 8
        )  # 9
'''
    assert code_lines(text) == 9


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tracked files are counted by git")
def test_sizes_are_printed_and_long_files_give_a_reason(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "_size.py")], capture_output=True, text=True)
    printed = [line[:32].strip() for line in done.stdout.splitlines()]
    assert {"lines of src/dph", "words of docs and README", "tracked files"} <= {*printed}
    assert done.returncode == bool([*long_files()])
    package = tmp_path / "src" / "own"
    package.mkdir(parents=True)
    for name, first in (("plain.py", '"""Long."""'), ("told.py", '"""Long (long: a table of units)."""')):
        (package / name).write_text(f"{first}\n" + "x = 1\n" * LONGEST)
    assert [path.name for path, _ in long_files(tmp_path)] == ["plain.py"]
