"""Examples in docstrings are blocks of code on the documentation site (an extension of griffe; see mkdocs.yml).

Without the fences Markdown reads `[["a"]]` in an example as a link.
"""

import re
from typing import Any

import griffe  # pyright: ignore[reportMissingImports]

_EXAMPLE = re.compile(r"(?:^[ \t]*\n|\A)((?:>>> .*\n)(?:.*\S.*(?:\n|\Z))*)", re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring with fences around each example: the lines from `>>> ` to the next empty line."""
    return _EXAMPLE.sub(lambda found: f"\n```pycon\n{found[1].rstrip()}\n```\n", text + "\n").rstrip()


class FencedExamples(griffe.Extension):  # pyright: ignore[reportUntypedBaseClass]
    """Fences the examples of every docstring that griffe collects."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each object; an alias shares the docstring of its target."""
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
