"""docs/guides/troubleshooting.md quotes messages that exist, docs/concepts/security.md tests that exist."""

import ast
import re
from pathlib import Path

import dph
from dph.cli.main import COMMANDS
from dph.config import STAGES, flatten, to_dict

ROOT = Path(__file__).parents[2]
SOURCE = Path(dph.__file__).parent


def strings():
    """Every text in the source, with … where a value is filled in."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def quoted_messages():
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| message \|.*?\n\|---\|---\|\n((?:\|.*\n)+)", page)
    cells = [line.split("|")[1].strip() for table in tables for line in table.splitlines()]
    return [message for cell in cells for message in cell.split("; ")]


def test_the_messages_that_the_page_quotes_are_said():
    known = strings()
    messages = quoted_messages()
    assert len(messages) >= 14
    for message in messages:
        parts = [part.strip() for part in re.split(r"…|\(weight_hash", message) if part.strip(" )")]
        assert any(all(part in text for part in parts) for text in known), message


def test_the_flags_of_the_page_exist():
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    flags = set(re.findall(r"`--([a-z.-]+)", page))
    known = {key.replace("_", "-") for stage in STAGES.values() for key in flatten(to_dict(stage()))}
    assert (
        flags - known <= {"preset", "resume", "no-smoke", "prompts", "task.options", "databases"} and "smoke" in known
    )
    assert "doctor" in COMMANDS and len(flags) > 12


def test_the_tests_that_the_promises_name_exist():
    page = (ROOT / "docs" / "concepts" / "security.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(test_\w+)`", page)) | {"test_bad_input_data", "test_bad_input_runs"}
    assert len(names) >= 10
    assert [name for name in sorted(names) if not list((ROOT / "tests").rglob(f"{name}.py"))] == []
