"""Print how large the repository is (scripts/size), and name the files that are long without a reason.

| number | what it counts |
|---|---|
| lines, code | of src/**/*.py; code is lines that hold a token besides comments and docstrings |
| files | Python files in src |
| words | of README.md and docs/**/*.md, split at white space |
| tracked files | `git ls-files` |
| dependencies | in pyproject.toml, without extras |

None of these numbers has a limit. A file of more than `LONGEST` lines says why in its first line, with "(long: …)".
"""

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 400
"""Lines of a Python file without a reason."""
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(text: str) -> int:
    """Lines of a Python file without blank lines, comments and docstrings, those below an attribute included."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    documentation = {line for node in strings for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def sizes(root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """The names of the numbers, with their values."""
    for package in sorted(path.parent for path in (root / "src").glob("*/__init__.py")):
        sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
        name = package.relative_to(root)
        yield f"lines of {name}", sum(len(text.splitlines()) for text in sources)
        yield f"lines of code in {name}", sum(map(code_lines, sources))
        yield f"files in {name}", len(sources)
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    yield "words of docs and README", sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    yield "tracked files", tracked.count("\0")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield "required dependencies", len(project["dependencies"])


def long_files(root: Path = ROOT) -> Iterator[tuple[Path, int]]:
    """Files of the source with more than `LONGEST` lines whose first line gives no reason, with their lines."""
    for path in sorted((root / "src").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > LONGEST and "(long: " not in lines[0]:
            yield path.relative_to(root), len(lines)


def main() -> None:
    for name, value in sizes():
        print(f"{name:32}{value:8,}")
    long = [*long_files()]
    for path, lines in long:
        print(f"{path} has {lines} lines; divide it, or say in its first line why it is long: (long: reason)")
    sys.exit(bool(long))


if __name__ == "__main__":
    main()
