"""scripts/map: every package is counted, and no arrow points upward."""

import subprocess
import sys
from pathlib import Path

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
