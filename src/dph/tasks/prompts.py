"""Prompts of rows: text, messages with their parts, messages as text, and the variables of the chat template."""

import ast
import contextlib
import re
from collections.abc import Mapping
from typing import Any

from dph.columns import is_empty, is_named, media_mark
from dph.config.checks import template_variables
from dph.config.text import parse_json
from dph.errors import DataError, SettingsError
from dph.types import TEMPLATE_COLUMN, Message, as_text

_MESSAGES = re.compile(r"""(?:\[\s*)?\{\s*['"](role|content|from|value)['"]\s*:""")  # as text
_ASKING = ("user", "system", "developer")  # roles that may end a prompt
_MOST_CHARACTERS = 1_000_000
"""Of a prompt: more than any model's context holds."""
_TEXT_PARTS = ("text", "input_text", "output_text")
_OF_CALLS = ("tool_calls", "function_call")


def read_prompt(prompt: Any, where: str, unread: dict[str, None] | None = None) -> str | tuple[Message, ...]:
    """A prompt of a row: text, messages, or messages as text, which CSV files have. unread: gets the names of fields of
    messages that nothing reads. Raises UserError for another value, for messages that end with a turn of the model or
    of a tool, and for what a text cannot hold: pictures, sounds, calls of tools.

    >>> read_prompt([{"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]}], "row 1")
    ({'role': 'user', 'content': '1 + 1?'},)
    >>> read_prompt("[{'role': 'user', 'content': '1 + 1?'}]", "row 1")
    ({'role': 'user', 'content': '1 + 1?'},)
    """
    prompt = messages_in(prompt, where)
    if not isinstance(prompt, str):
        messages = prompt if isinstance(prompt, list) else []
        read = [_message(message, where, unread if unread is not None else {}) for message in messages]
        if not read or None in read:
            raise DataError(f"{where}: the prompt must be text or a list of messages with 'role' and 'content'")
        prompt = tuple(message for message in read if message is not None)
        if (role := prompt[-1]["role"]) not in _ASKING:
            whose = "the assistant's turn" if role == "assistant" else f"a turn of {role!r}, not of 'user'"
            raise DataError(
                f"{where}: the prompt ends with {whose}, which may hold the answer; leave this turn out, "
                "or name another column"
            )
    text = as_text(prompt)
    if len(text) > _MOST_CHARACTERS:
        raise DataError(
            f"{where}: the prompt has {len(text)} characters, and at most {_MOST_CHARACTERS} are read; shorten it, or "
            "leave the row out"
        )
    if mark := media_mark(text):
        raise DataError(
            f"{where}: the prompt holds {mark}, the place of a picture, film or sound, which the model does not get; "
            "leave the row out, or the mark if the text says it all"
        )
    return prompt


def _message(value: Any, where: str, unread: dict[str, None]) -> Message | None:
    """A message with its text; None for what is not one."""
    if not isinstance(value, dict) or not isinstance(role := value.get("role"), str):
        return None
    if called := next((name for name in _OF_CALLS if not is_empty(value.get(name))), ""):
        raise DataError(f"{where}: a message has {called}, which prompts cannot hold; leave the row out")
    if (content := _content(value.get("content"), where)) is None:
        return None
    for name in value.keys() - {"role", "content", "name"}:
        if is_named(name, "media") and not is_empty(value[name]):
            raise DataError(f"{where}: a message has {name}, and a prompt is text alone; leave the row out")
        if not is_empty(value[name]):
            unread[f"{name} of messages"] = None
    if isinstance(name := value.get("name"), str) and name:
        return Message(role=role, content=content, name=name)
    return Message(role=role, content=content)


def _content(value: Any, where: str) -> str | None:
    """The text of a message's content, its parts joined; None for another value. Raises DataError for parts that are
    not text."""
    if isinstance(value, str) or not isinstance(value, list):
        return value if isinstance(value, str) else None
    texts: list[str] = []
    for part in value:
        of = part if isinstance(part, dict) else {"text": part}
        further = [name for name, inner in of.items() if name not in ("type", "text") and not is_empty(inner)]
        kind = of.get("type") or ("text" if "text" in of else "")
        if kind not in _TEXT_PARTS or not isinstance(of.get("text"), str) or any(is_named(n, "media") for n in further):
            what = f"of the type {kind!r}" if kind and kind not in _TEXT_PARTS else "that is not text"
            raise DataError(f"{where}: a message has a part {what}, and a prompt is text alone; leave the row out")
        texts.append(of["text"])
    return "".join(texts) if texts else None


def row_variables(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The variables of the chat template that a row sets, as JSON in a file of texts; null sets none, as Parquet fills
    in what other rows name. Raises DataError for what is no table of them.

    >>> row_variables({"chat_template_kwargs": '{"enable_thinking": false}'}, "row 1")
    {'enable_thinking': False}
    """
    value = row.get(TEMPLATE_COLUMN)
    if isinstance(value, str) and value.strip():
        with contextlib.suppress(ValueError):
            value = parse_json(value)
    if value in (None, ""):
        return {}
    if not isinstance(value, Mapping):
        raise DataError(
            f"{where}: {TEMPLATE_COLUMN} must hold variables of the chat template by name, such as "
            f'{{"enable_thinking": false}}, not {value!r:.100}'
        )
    try:
        return template_variables(
            {name: setting for name, setting in value.items() if setting is not None}, TEMPLATE_COLUMN
        )
    except SettingsError as error:
        raise DataError(f"{where}: {error}") from error


def messages_in(value: Any, where: str) -> Any:
    """A value, or the messages that it holds as text, in JSON or as Python writes them. Raises DataError for messages
    that cannot be read."""
    if not isinstance(value, str) or not (begin := _MESSAGES.match(value.lstrip())):
        return value
    for read in (parse_json, ast.literal_eval):
        try:
            found = read(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        messages = found if isinstance(found, list) else [found]
        return messages if all(map(_is_turn, messages)) else value
    if begin[1] in ("role", "content") and re.search(r"['\"]role['\"]\s*:", value):
        raise DataError(f"{where}: the prompt holds messages as text that is not JSON; write them as JSON")
    return value


def _is_turn(message: Any) -> bool:
    return isinstance(message, dict) and bool(message.keys() & {"role", "from"})
