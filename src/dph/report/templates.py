"""The base of every page: templates that make each text visible and escape it, and files that come with a package."""

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

MAX_TEXT = 4000
"""Characters of one text in the page."""


def visible(text: str) -> str:
    """A text, cut if very long, with unprintable and reordering characters, but line ends and tabs, made visible."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]} … ({len(text)} characters in all)"
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def template_text(package: str, *path: str) -> str:
    """A text file that comes with a package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


TEMPLATES = Environment(
    loader=PackageLoader("dph.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: visible(value) if type(value) is str else value,  # Markup is our own
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
