"""One self-contained HTML page: nothing loaded from elsewhere, every text from outside escaped.

Text that a model wrote reaches the page in two ways: escaped (`safe`), or inside compressed data that the page's own
script shows as text, never as markup. A content security policy lets that script run and no other, and forbids loads
from elsewhere, so that a completion that slipped through could still do nothing.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

_LONGEST = 4000


def visible(text: str) -> str:
    """Text with unprintable characters (but line ends and tabs) made visible, and cut when very long.

    Unprintable are control characters, but also those that reorder text: a completion shows what it is.
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … ({len(text)} characters in all)"
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def safe(text: str) -> str:
    """Text for HTML: `visible` and escaped."""
    return escape(visible(text))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], note: str = "") -> str:
    """A table; each entry is (text, small print under it). Long texts are broken into lines."""
    head = "".join(f"<th>{safe(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_entry, row))}</tr>" for row in rows)
    after = f'<p class="soft">{safe(note)}</p>' if note else ""
    return (
        f"<h2>{safe(title)}</h2><div class=wide><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{after}"
    )


def _entry(entry: tuple[str, str]) -> str:
    text, small = entry
    opening = "<td class=text>" if len(text) > 40 else "<td>"
    return f"{opening}{safe(text)}{f'<small>{safe(small)}</small>' if small else ''}</td>"


def figure(png: bytes, description: str) -> str:
    """An image within the page."""
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{safe(description)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{safe(description)}</figcaption></figure>"
    )


def unfolding(heading: str, text: str) -> str:
    """A heading that unfolds a long plain text."""
    return f"<details><summary>{safe(heading)}</summary><pre>{safe(text)}</pre></details>"


def page(title: str, sections: Sequence[tuple[str, str]], data: Any) -> str:
    """The whole page.

    sections: name (a single word, which the navigation links to) and HTML of each section; they hold the elements that
    the script fills (see `assets/report.js`). data: what the script shows, as JSON takes it.
    """
    packed, library = _compressed(json.dumps(data, ensure_ascii=False, allow_nan=False)), _compressed(_plotting())
    # The nonce is known only after everything in the page is: nothing in it can have been written to match.
    nonce = hashlib.blake2b(packed.encode(), digest_size=16).hexdigest()
    policy = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'"
    links = "".join(f'<a href="#{name}">{name.capitalize()}</a>' for name, _ in sections)
    body = "\n".join(f'<section id="{name}">\n{text}\n</section>' for name, text in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{_asset('report.css')}</style></head>\n"
        f"<body><h1>{safe(title)}</h1>\n<nav>{links}</nav>\n"
        "<noscript><p>Charts and the browser of completions need scripts; the tables do not.</p></noscript>\n"
        f"{body}\n"
        f'<script type="text/plain" id="data">{packed}</script>\n'
        f'<script type="text/plain" id="plotly">{library}</script>\n'
        f'<script nonce="{nonce}">{_asset("report.js")}</script>\n</body></html>\n'
    )


def _compressed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), mtime=0)).decode()


def _asset(name: str) -> str:
    return (resources.files("dph.report") / "assets" / name).read_text(encoding="utf-8")


def _plotting() -> str:
    """The source of the plotting library's bundle, Plotly's."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
