"""The examples in docstrings say what the code does: each is run, in an empty folder.

An example leaves nothing behind in the process: it registers no name and changes no setting.
"""

import doctest
import importlib
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
ENGINES = {"trl", "verl", "vllm"}
"""Libraries that the environment of these tests lacks."""


def with_examples() -> dict[str, int]:
    """Module → number of examples in its text."""
    counts = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        counts[name] = len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE))
    return {name: count for name, count in counts.items() if count}


EXAMPLES = with_examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ENGINES:
            raise
        pytest.skip(f"{name} needs {error.name}")
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for case in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(case, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert runner.tries == EXAMPLES[name], "an example stands where none is looked for, and was not run"
