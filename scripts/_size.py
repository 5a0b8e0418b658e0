"""Print how large the repository is, beside what it may be: scripts/size fails if a number is above its limit.

| number | what it counts |
|---|---|
| lines, code | of src/dph/**/*.py; code is lines that hold a token besides comments and docstrings |
| files | Python files in src/dph |
| words | of README.md and docs/**/*.md, split at white space |
| tracked files | `git ls-files` |
| dependencies | in pyproject.toml, without extras |
"""

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {
    "lines of src": 27_000,
    "lines of code in src": 19_000,
    "files in src": 210,
    "words of docs and README": 45_000,
    "tracked files": 650,
    "required dependencies": 14,
}
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


def sizes(root: Path = ROOT) -> dict[str, int]:
    """The numbers by name, in the order of `LIMITS`."""
    sources = [path.read_text(encoding="utf-8") for path in (root / "src" / "dph").rglob("*.py")]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    values = (
        sum(len(text.splitlines()) for text in sources),
        sum(map(code_lines, sources)),
        len(sources),
        sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
        tracked.count("\0"),
        len(project["dependencies"]),
    )
    return dict(zip(LIMITS, values, strict=True))


def main() -> None:
    over = 0
    for name, value in sizes().items():
        over += value > LIMITS[name]
        print(f"{name:26}{value:8,}  of at most {LIMITS[name]:7,}{'' if value <= LIMITS[name] else '  too many'}")
    sys.exit(over > 0)


if __name__ == "__main__":
    main()
