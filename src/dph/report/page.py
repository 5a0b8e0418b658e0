"""One self-contained HTML page: it loads nothing from elsewhere and escapes every text from outside.

Text that a model wrote reaches the page in two ways: escaped by the template (`assets/page.html`), or inside compressed
data that the page's own script shows as text, never as markup. A content security policy lets only that script run and
forbids loads from elsewhere, so that even a completion that slipped through could do nothing.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dph.report.table import Table

_LONGEST = 4000


def visible(text: str) -> str:
    """The text with every unprintable character but line ends and tabs made visible, and cut when it is very long.

    Control characters are unprintable, and so are those that reorder text: a completion shows what it is.
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … ({len(text)} characters in all)"
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


@dataclass(frozen=True, slots=True)
class Image:
    """A figure of the page."""

    png: bytes
    description: str

    @property
    def data(self) -> str:
        """The image as text within a page."""
        return base64.b64encode(self.png).decode()


def render(
    title: str,
    data: Mapping[str, Any],
    *,
    tables: Sequence[Table],
    images: Sequence[Image],
    settings: Sequence[tuple[str, str]],
) -> str:
    """The whole page.

    data: what the page's script shows (`dph.report.page_data`), as JSON takes it. settings: a heading and a long text
    that it unfolds, for each run.
    """
    packed, library = _compressed(json.dumps(data, ensure_ascii=False, allow_nan=False)), _compressed(_plotting())
    return _templates.get_template("page.html").render(
        title=title,
        # A hash of the data, so that no text in the page can have been written to match it.
        nonce=hashlib.blake2b(packed.encode(), digest_size=16).hexdigest(),
        tables=tables,
        images=images,
        settings=settings,
        styles=len(data["styles"]),
        training=bool(data["training"]),
        timelines=bool(data.get("timelines")),
        css=Markup(_asset("report.css")),
        script=Markup(_asset("report.js")),
        data=Markup(packed),
        library=Markup(library),
    )


def _visible_text(value: object) -> object:
    return visible(value) if type(value) is str else value  # Markup is our own


_templates = Environment(
    loader=PackageLoader("dph.report", "assets"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_visible_text,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def _compressed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), mtime=0)).decode()


def _asset(name: str) -> str:
    return (resources.files("dph.report") / "assets" / name).read_text(encoding="utf-8")


def _plotting() -> str:
    """The source of the plotting library, Plotly's."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
