"""Settings from flags. What tyro prints in a box about a mistake becomes one sentence; plain flags need no tyro."""

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import TypeVar

from dph.cli.plain import read_plain
from dph.errors import UserError

T = TypeVar("T")


def parse_flags(command: str, default: T, words: Sequence[str], description: str) -> T:
    """The settings of a command: a default, changed by flags. Raises UserError for flags that cannot be read."""
    plain = read_plain(default, words)
    if plain is not None:
        return plain
    import tyro  # slow to load

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(type(default), prog=command, description=description, default=default, args=words)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise UserError(f"{_sentence(said.getvalue())}; `{command} --help` lists all flags") from end


def _sentence(box: str) -> str:
    """The first paragraph of tyro's box, and the flags that its second paragraph suggests."""
    lines = [line for line in re.sub(r"\x1b\[[\d;]*m", "", box).splitlines() if line[:1] not in "╭╰"]
    paragraphs = re.split(r"^[│ ─-]*[─-]{3}[│ ─-]*$", "\n".join(lines), flags=re.MULTILINE)
    if "╭" not in box:  # without UTF-8 the title stands above a line of its own
        del paragraphs[0]
    problem, more = [*paragraphs, "", ""][:2]
    similar = re.findall(r"^[│ ] {5}(--[^\s,]+)", more, re.MULTILINE) if "Perhaps you meant" in more else []
    hint = f"; perhaps you meant {' or '.join(dict.fromkeys(similar))}" if similar else ""
    return " ".join(problem.replace("│", " ").split()).rstrip(".") + hint
