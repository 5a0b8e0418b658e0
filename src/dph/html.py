"""One self-contained HTML page: no script, nothing loaded from elsewhere, every text from outside escaped.

A content security policy forbids scripts and outside loads besides, so that a completion that slipped through could
still do nothing.
"""

import base64
from collections.abc import Sequence
from html import escape

_LONGEST = 4000

_CSS = """
:root { color-scheme: light dark; --ink: #1d2125; --soft: #5d6670; --line: #d9dde2; --page: #fff; --card: #f5f6f8;
  --good: #17663a; --bad: #a3262a; --none: #6b5a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --soft: #9aa4ae; --line: #3a424a; --page: #15181b;
  --card: #1f2428; --good: #6fcf97; --bad: #f28b82; --none: #e0c65a } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.2rem 1rem 4rem; max-width: 70rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .4rem 0 1rem }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem }
p { max-width: 46rem } .soft { color: var(--soft); font-size: .9rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap }
th { font-weight: 600; color: var(--soft) } th:first-child, td:first-child { text-align: left; font-weight: 600 }
td small { display: block; color: var(--soft); font-size: .76rem }
figure { margin: 1rem 0 } img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; padding: 6px }
details { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; background: var(--page) }
summary { cursor: pointer; padding: .5rem .8rem; overflow-wrap: anywhere }
summary span { color: var(--soft); font-size: .86rem; margin-left: .6rem }
.prompt { margin: 0 .8rem .6rem }
.runs { display: grid; gap: .8rem; padding: 0 .8rem .8rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)) }
.runs h3 { font-size: .95rem; margin: 0 0 .4rem }
.answer { background: var(--card); border-radius: 6px; padding: .4rem .6rem; margin-bottom: .4rem }
.answer div { font-size: .8rem; color: var(--soft) }
.answer b { font-weight: 600 } .correct { color: var(--good) } .wrong, .error, .timeout { color: var(--bad) }
.no_answer, .infra_error, .gold_error { color: var(--none) }
pre { margin: .2rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .8rem/1.4 ui-monospace, Menlo, monospace }
"""

_OUTCOMES = frozenset({"correct", "wrong", "no_answer", "error", "timeout", "infra_error", "gold_error"})


def safe(text: str) -> str:
    """Text for HTML: escaped, unprintable characters (but line ends and tabs) made visible, and cut when very long.

    Unprintable are control characters, but also those that reorder text: a completion shows what it is.
    """
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … ({len(text)} characters in all)"
    return escape("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], note: str = "") -> str:
    """A table; each entry is (text, small print under it)."""
    head = "".join(f"<th>{safe(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_entry, row))}</tr>" for row in rows)
    after = f'<p class="soft">{safe(note)}</p>' if note else ""
    return (
        f"<h2>{safe(title)}</h2><div class=wide><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{after}"
    )


def _entry(entry: tuple[str, str]) -> str:
    text, small = entry
    return f"<td>{safe(text)}{f'<small>{safe(small)}</small>' if small else ''}</td>"


def figure(png: bytes, description: str) -> str:
    """An image within the page."""
    data = base64.b64encode(png).decode()
    return f'<figure><img alt="{safe(description)}" src="data:image/png;base64,{data}"></figure>'


def answer(text: str, outcome: str, style: str, note: str) -> str:
    """One completion with its verdict."""
    kind = outcome if outcome in _OUTCOMES else "wrong"
    facts = "".join(f" · {safe(part)}" for part in (style, note) if part)
    verdict = f'<b class="{kind}">{safe(outcome.replace("_", " "))}</b>'
    return f"<div class=answer><div>{verdict}{facts}</div><pre>{safe(text)}</pre></div>"


def problem(name: str, facts: str, prompt: str, runs: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A problem that unfolds: its prompt, and for each run a heading and its completions (HTML of `answer`)."""
    shown = f"<div class=prompt><pre>{safe(prompt)}</pre></div>" if prompt else ""
    columns = "".join(f"<div><h3>{safe(label)}</h3>{''.join(answers)}</div>" for label, answers in runs)
    summary = f"<summary>{safe(name)}<span>{safe(facts)}</span></summary>"
    return f"<details>{summary}{shown}<div class=runs>{columns}</div></details>"


def page(title: str, sections: Sequence[str]) -> str:
    """The whole page from sections of HTML."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{_CSS}</style></head>\n"
        f"<body><h1>{safe(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )
