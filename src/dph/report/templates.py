"""The base of every page: templates that make each text visible and escape it, and files that come with a package."""

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

MAX_TEXT = 4000
"""The largest number of characters of one text in a page."""


def visible(text: str) -> str:
    """A text in which unprintable characters, and characters that reorder text, are made visible. Line ends and tabs
    stay. A very long text is cut."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]} … ({len(text)} characters in all)"
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def template_text(package: str, *path: str) -> str:
    """The content of a text file that comes with a package."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


TEMPLATES = Environment(
    loader=PackageLoader("dph.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=lambda value: visible(value) if type(value) is str else value,  # Markup comes from this package
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
