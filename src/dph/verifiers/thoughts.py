r"""What a response says outside of the model's thoughts: only that is judged.

<think>Maybe \boxed{5}.</think> It is \boxed{6}.   →   It is \boxed{6}.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAMES = (
    r"(?:think(?:ing)?|thoughts?|reason(?:ing)?)(?:[ _-](?:process|steps?|trace|block))?|reflect(?:ion|ing)?|"
    r"scratch_?pad|analysis|rationale|cot|plan(?:ning)?|chain[ _-]?of[ _-]?thoughts?|"
    r"(?:inner|internal)(?:[ _-]?(?:monologue|thoughts?|reasoning|notes?))?|monologue|deliberation|brainstorm(?:ing)?|"
    r"draft|(?:scratch|rough)[ _-]?(?:work|notes?)?|work(?:ing|ings|space)?"
)
_TAG = re.compile(
    rf"""(?<![`'"“])(?:
        [<◁][|｜]?\s?(?:(?P<end>/|end[ _▁](?:of[ _▁])?)|(?:begin|start)[ _▁](?:of[ _▁])?)?
            (?:[a-z]+[:_])?(?P<name>{_NAMES})(?:_(?:start|begin|(?P<ended>end)))?(?:\s[^<>]{{0,80}})?[|｜]?[>▷]
      |\[(?P<shut>/)?(?P<capital>(?-i:THINK(?:ING)?|THOUGHTS?))\]
      |<\|channel\|?>\s*(?P<channel>analysis|commentary|thought)
      |(?P<final><\|channel\|>\s*final(?:[^<\n]{{0,40}}<\|message\|>)?|<channel\|>)
      |<\|im_start\|>\s*(?P<turn>think)\b
      |(?P<answered><\|im_start\|>\s*answer\b)
    )""",
    re.I | re.X,
)
"""Marks before and after a thought: DeepSeek's and Qwen's <think>, <thinking>, Seed's <seed:think>, OpenThinker's
<|begin_of_thought|>, Cohere's <|START_THINKING|>, Kimi's ◁think▷, Magistral's [THINK], gpt-oss's and Gemma's channels,
s1's turns, and the tags that prompts for reasoning ask for. A mark in quotes is only spoken of."""
_FENCED = re.compile(
    r"^[ \t]*(?P<fence>```|~~~)[ \t]*(?:think(?:ing)?|thoughts?|reason(?:ing)?)[ \t]*\n"
    r"(?:.*?^[ \t]*(?P=fence)[ \t]*$|.*\Z)",
    re.S | re.I | re.M,
)
"""A thought in a fence of its own, ```think, up to the fence's end or the response's."""
_UNUSED = re.compile(r"<unused\d+>\s*thought\b.*?(?:<unused\d+>|\Z)", re.S | re.I)
"""A thought between two tokens that a tokenizer left unused: Gemma's and MedGemma's."""
_UNSEEN = re.compile(
    r"<!--.*?-->|<(?P<struck>del|s|strike)>.*?</(?P=struck)>|~~(?=\S)[^~\n]*\S~~|"
    r"<details>\s*<summary>[^<]{0,40}(?:think|thought|reason)[^<]{0,40}</summary>.*?(?:</details>|\Z)",
    re.S | re.I,
)
"""What a reader does not see, or sees struck out: comments of HTML, deleted text, a folded thought."""
_SHUT = re.compile(rf"\[/({_NAMES})\]", re.I)
"""The end of a thought in square brackets, [SCRATCHPAD]…[/SCRATCHPAD]."""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,80}\}){0,80}\}){0,80}\}){0,80}\}"
_NOT_PRINTED = re.compile(
    rf"\\(?:[hv]?phantom|iffalse(?![a-z])|if0)\s*(?:(?<=phantom){_BRACES}|(?<!phantom).*?(?:\\fi(?![a-z])|\Z))|"
    r"\\begin\s*\{comment\}.*?(?:\\end\s*\{comment\}|\Z)|^[ \t]*%[^\n]*$|(?<=[^\\\d\s}$])[ \t]+%[^\n]*box[^\n]*$|"
    rf"\\(?:textcolor\s*\{{white\}}|color\s*\{{white\}}\s*(?=\{{)|transparent\s*(?=\{{))\s*{_BRACES}|"
    r"\{\s*\\color\s*\{white\}[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|"
    r"<(?P<hidden>\w+)\b[^<>]*(?:display\s*:\s*none|visibility\s*:\s*hidden|\bhidden\b)[^<>]*>.*?(?:</(?P=hidden)>|\Z)",
    re.S | re.I | re.M,
)
"""What LaTeX or a browser does not print: comments, \\phantom, white and hidden text."""
_ESCAPED = re.compile(rf"&lt;(/?\s?(?:{_NAMES})\s?)&gt;", re.I)
_CODE = re.compile(r"^[ \t>]*(```+|~~~+)[ \t]*sql.*?^[ \t>]*\1", re.S | re.I | re.M)
"""A query, in whose comments and texts a mark is none."""
_IN_WORDS = re.compile(
    r"\A\s*Here is my thought process:.*?\n\s*Here is my response:"
    r"|\A\s*Here are my reasoning steps:.*?\[BEGIN FINAL RESPONSE\]"
    r"|\A\s*\#\# Thinking\n.*?\n\#\# Final Response\n"
    r"|\Aanalysis(?=[A-Z]).*?(?:assistantfinal|\Z)",  # gpt-oss without its special tokens
    re.S,
)
"""Thoughts between headings: Granite's, Apriel's, HuatuoGPT's."""
_LAST_WORD = re.compile(
    r"<(?:\|begin_of_)?(answer|solution|final(?:_answer)?|output|response|conclusion)\|?>"
    r"(?:(?!<(?:\|begin_of_)?\1\|?>).)*<(?:/|\|end_of_)\1\|?>\s*(?:<\|?[\w▁]{1,20}\|?>\s*)?\Z",
    re.S | re.I,
)
"""An answer in tags at the very end ends a thought that was not closed."""
_MAY_BE_UNSEEN = ("%", "phantom", "\\iff", "\\if0", "{comment}", "white", "transparent", "none", "hidden")

_LONGEST_LAST = 4000  # characters


def without_thoughts(response: str, prompt: str | Sequence[Mapping[str, Any]] = "") -> str:
    """A response without the model's thoughts, an empty line in place of each.

    A thought begins at its opening mark, or before the response if only its closing mark is there or the prompt ends
    with the opening one. A thought that is never closed was cut off, and has everything after its beginning, except an
    answer in tags at the very end.

    >>> without_thoughts("<think>Maybe 5.</think>It is 6.").strip()
    'It is 6.'
    """
    opened = _opened_by(prompt)
    if heading := _IN_WORDS.match(response):
        response = response[heading.end() :]
    if "&lt;" in response:
        response = _ESCAPED.sub(r"<\1>", response)
    if ("```" in response or "~~~" in response) and not opened:
        response = _FENCED.sub("\n\n", response)
    if "box" in response and any(mark in response for mark in _MAY_BE_UNSEEN):
        response = _NOT_PRINTED.sub(lambda found: "\n\n" if "box" in found[0] else found[0], response)
    if "[/" in response:
        response = _without_brackets(response)
    if not opened and not any(sign in response for sign in ("<", "◁", "~~", "[TH", "[/TH")):
        return response
    if "<unused" in response:
        response = _UNUSED.sub("\n\n", response)
    if any(mark in response for mark in ("<!--", "<del", "<s", "~~", "<d")) and "```" not in response:
        response = _UNSEEN.sub("\n\n", response)
    code = [block.span() for block in _CODE.finditer(response)] if "sql" in response.lower() else []
    kept, at = list[str](), 0
    for mark in _marks(response):
        if not opened and any(
            start < mark.start() < end and _is_told(response[start : mark.start()]) for start, end in code
        ):
            continue
        name = _name(mark)
        if not _closes(mark):
            if not opened:
                kept.append(response[at : mark.start()])
            if name not in opened:  # a thought may speak of its own tag
                opened.append(name)
            continue
        if not opened:  # the prompt began this thought
            kept = []
        opened = opened[: opened.index(name)] if name in opened else []
        at = mark.end()
    if opened:
        last = _LAST_WORD.search(response, max(at, len(response) - _LONGEST_LAST))
        return "\n\n".join([*kept, last[0] if last else ""])
    return "\n\n".join([*kept, response[at:]])


def _without_brackets(response: str) -> str:
    """A response without the thoughts in square brackets that are closed."""
    low = response.lower()
    if len(low) != len(response):
        return response
    kept, at = list[str](), 0
    for shut in _SHUT.finditer(response):
        start = low.find(f"[{shut[1].lower()}]", at, shut.start())
        if start >= 0:
            kept.append(response[at:start])
            at = shut.end()
    return "\n\n".join([*kept, response[at:]])


def _is_told(code: str) -> bool:
    """Whether what follows the beginning of a query is in a comment or in a text of it."""
    line = code.rpartition("\n")[2]
    return "--" in line or line.count("'") % 2 == 1 or code.rfind("/*") > code.rfind("*/")


def _marks(text: str) -> Iterator[re.Match[str]]:
    """The marks of a text; the search for their first character is much faster than that for a whole mark."""
    return filter(None, (_TAG.match(text, sign.start()) for sign in re.finditer(r"[<◁\[]", text)))


def _name(mark: re.Match[str]) -> str:
    """What a mark calls the thought; "" if it only says that it ends."""
    return next(filter(None, mark.group("name", "capital", "channel", "turn")), "").lower()


def _closes(mark: re.Match[str]) -> bool:
    """Whether a thought ends at a mark."""
    return any(mark.group("end", "ended", "shut", "final", "answered"))


def _opened_by(prompt: str | Sequence[Mapping[str, Any]]) -> list[str]:
    """The thought that a prompt leaves open: the name of the tag at its end."""
    last = prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "") if prompt else ""
    end = last[-80:].rstrip()
    marks = [*_marks(end)]
    return [_name(marks[-1])] if marks and marks[-1].end() == len(end) and not _closes(marks[-1]) else []
