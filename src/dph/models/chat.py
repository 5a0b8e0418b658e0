"""From the prompt of a problem to the text and the tokens that a model reads, by the chat template of the tokenizer.

Chat templates are programs that come with a model. transformers runs them in a sandbox, which forbids access to this
process and its machine. This module turns any error of a template, and a template that does not end, into one sentence.

A template may take variables (`enable_thinking`). It may also write the date of today (`strftime_now`), so that prompts
would change from day to day. Here the date is a setting, and the same text is rendered on every day.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from dph.config import EvaluatedModelConfig
from dph.config.checks import template_variables
from dph.errors import ModelError, one_line, reason_of
from dph.models.faults import is_panic
from dph.process.distributed import World
from dph.process.progress import say
from dph.process.user_code import TimeLimitReached, time_limit
from dph.runs.directory import RunDir
from dph.types import TEMPLATE_COLUMN, Message, Problem, as_messages, as_text

LONGEST_SECONDS = 10.0
"""The time limit of a chat template for one prompt. Real templates take less than a thousandth of it."""
MOST_ADDED = 1_000_000
"""The number of characters that a template may add to one prompt. Splitting hundreds of megabytes into tokens takes
minutes."""
_NOW = "strftime_now"
"""The name under which transformers offers templates the function that formats the current time."""
_MACRO, _AFTER = f"{{% macro {_NOW}(format) %}}", "{% endmacro %}\n"
"""The texts before and after the date in front of a template."""
_CODES = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ"
"""The letters of the codes of strftime: %d, or %-d without leading zeros."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The inputs of a chat template besides the messages."""

    date: str = EvaluatedModelConfig.date
    """The date, as YYYY-MM-DD, that a template writes in place of the date of today."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The variables of the template, for every prompt. A problem may override them."""

    @classmethod
    def of(cls, config: EvaluatedModelConfig) -> "Rendering":
        """The date and the variables in the settings of a model."""
        return cls(config.date, template_variables(config.chat_template_kwargs))

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any]) -> "Rendering":
        """The date and the variables that the manifest of a run records (see `facts`)."""
        return cls(manifest.get("chat_template_date") or cls().date, manifest.get("chat_template_kwargs") or {})

    def facts(self, tokenizer: Any) -> dict[str, Any]:
        """The entries of a manifest about the prompts that the template of a tokenizer renders: the variables, if there
        are any, and the date, if the template writes it."""
        facts: dict[str, Any] = {"chat_template_kwargs": dict(self.variables)} if self.variables else {}
        return facts | ({"chat_template_date": self.date} if writes_date(tokenizer) else {})


PLAIN = Rendering()


def noted_rendering(run: RunDir, policy: Any, world: World) -> dict[str, Any]:
    """Record how the policy of a stage renders prompts, and return the record (`Rendering.facts`). The leading process
    writes the record into the manifest of the run. If prompts hold a date, it also says in one line which date."""
    facts = policy.rendering.facts(policy.tokenizer)
    if world.leads and facts:
        run.update(**facts)
        if "chat_template_date" in facts:
            say(date_sentence(policy.rendering))
    return facts


def date_sentence(rendering: Rendering, origin: str = "model.date names another") -> str:
    """The line for a user whose chat template writes the date. origin: where the date that is written comes from."""
    return f"the chat template writes a date into prompts: {rendering.date} on every day ({origin})"


def template_of(tokenizer: Any) -> str:
    """The chat template by which a tokenizer renders prompts, without a date that `dated_template` put into it; "" if
    there is none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):  # by name; transformers renders prompts without tools with "default"
        template = template.get("default", "")
    return _undated(str(template or ""))


def writes_date(tokenizer: Any) -> bool:
    """Whether the text of the chat template of a tokenizer asks for the current time."""
    return _NOW in template_of(tokenizer)


@lru_cache
def dated_template(template: str, date: str) -> str:
    """A chat template that takes a date, at midnight, for the current time. A template that does not ask for the time
    is returned unchanged.

    The text of the template itself is changed, because transformers passes no functions to templates.
    """
    if _NOW not in template:
        return template
    template, moment = _undated(template), datetime.fromisoformat(date)
    codes = {f"%{flag}{letter}": moment.strftime(f"%{flag}{letter}") for letter in _CODES for flag in ("", "-")}
    named = {"%%": "\0"} | codes | {"\0": "%"}
    replaced = "".join(f" | replace({json.dumps(code)}, {json.dumps(text)})" for code, text in named.items())
    # The line break belongs to the tag before it (trim_blocks), so the template begins at a line as before
    return f"{_MACRO}{{{{ format{replaced} }}}}{_AFTER}{template}"


def _undated(template: str) -> str:
    """The chat template from which `dated_template` made another; any other text unchanged."""
    return template.partition(_AFTER)[2] if template.startswith(_MACRO) else template


def unused_variables(tokenizer: Any, variables: Mapping[str, Any]) -> list[str]:
    """The names of those variables that do not occur in the chat template of a tokenizer."""
    template = template_of(tokenizer)
    return [name for name in variables if not re.search(rf"\b{re.escape(name)}\b", template)]


def check_variables(tokenizer: Any, rendering: Rendering) -> None:
    """Raise UserError for a variable that does not occur in the chat template. A misspelt name would otherwise change
    nothing."""
    if unused := unused_variables(tokenizer, rendering.variables):
        has = "does not use it" if template_of(tokenizer) else "is missing"
        raise ModelError(
            f"model.chat_template_kwargs sets {unused[0]!r}, but the tokenizer's chat template {has}; correct the "
            "name, or leave it out"
        )


def own_variables(problem: Problem) -> Mapping[str, Any]:
    """The variables of the chat template that a problem sets in its column `chat_template_kwargs`."""
    own = problem.meta.get(TEMPLATE_COLUMN)
    return own if isinstance(own, Mapping) else {}


def refuse_own_variables(problems: Sequence[Problem], engine: str, setting: str) -> None:
    """Raise UserError if a problem sets variables of the chat template, for an engine that renders all prompts with the
    same variables. engine: its name. setting: the setting for these variables, for the message."""
    if own := [problem.id for problem in problems if own_variables(problem)]:
        raise ModelError(
            f"problem {own[0]} sets variables in its column {TEMPLATE_COLUMN}, which {engine} does not read: it "
            f"renders all prompts with the same; leave the column out, and set {setting}"
        )


def encode_problem(tokenizer: Any, problem: Problem, rendering: Rendering = PLAIN, vocabulary: int = 0) -> list[int]:
    """The token ids of the prompt of a problem (see `prompt_ids`), with the variables that the problem sets itself.

    vocabulary: the number of tokens of the model; 0 checks no ids. Raises UserError, with the id of the problem, if the
    template rejects the prompt, the tokenizer cannot encode it, or a token id lies outside the vocabulary.
    """
    try:
        ids = prompt_ids(tokenizer, problem.prompt, rendering, own_variables(problem))
        return known_ids(tokenizer, ids, vocabulary) if vocabulary else ids
    except ModelError as error:
        raise ModelError(f"problem {problem.id}: {error}") from error


def known_ids(tokenizer: Any, ids: list[int], vocabulary: int) -> list[int]:
    """Return the ids if each has an embedding in the model, and raise UserError otherwise. On a GPU, an id outside the
    vocabulary would kill the process without a reason."""
    if ids and (largest := max(ids)) >= vocabulary:
        raise ModelError(
            f"the tokenizer produced token id {largest} ({tokenizer.convert_ids_to_tokens(largest)!r}), but the model "
            f"has only {vocabulary} tokens: they do not belong together"
        )
    return ids


def token_ids(tokenizer: Any, text: str, *, special: bool = False, foreign: bool = False) -> list[int]:
    """The token ids of a text.

    special: whether the tokenizer puts its special tokens around the text. foreign: whether the name of a special token
    in the text is ordinary text. Raises UserError if the tokenizer cannot split the text, for example if the text has
    an unknown word and the tokenizer has no token for unknown words.
    """
    more = {"split_special_tokens": True, "verbose": False} if foreign else {}
    try:
        return tokenizer(text, add_special_tokens=special, **more)["input_ids"]
    except BaseException as error:  # libraries written in Rust raise panics, which are no Exceptions
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelError(
            f"the tokenizer cannot encode {one_line(text, 60)!r}: {reason_of(error)}; correct the tokenizer's files "
            "(one without a token for unknown words rejects them), or use another model"
        ) from error


def text_of(tokenizer: Any, ids: Sequence[int], *, special: bool = True) -> str:
    """The text of token ids. special: whether special tokens are part of the text. Raises UserError if the tokenizer
    cannot join the tokens."""
    try:
        return tokenizer.decode(list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelError(
            f"the tokenizer cannot decode the tokens {list(ids[:5])}: {reason_of(error)}; correct the tokenizer's files"
        ) from error


def prompt_ids(
    tokenizer: Any,
    prompt: str | Sequence[Message],
    rendering: Rendering = PLAIN,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The token ids of a prompt, by the chat template of the tokenizer (see `render_prompt`).

    A tokenizer without a chat template encodes the plain text of the prompt. Special tokens that the tokenizer puts
    before a text (BOS) stay, and those that it appends (EOS) are left out. variables: of this prompt. Raises UserError
    as `render_prompt` and `token_ids` do.
    """
    if getattr(tokenizer, "chat_template", None):
        return token_ids(tokenizer, render_prompt(tokenizer, prompt, rendering, variables))
    ids, bare = (token_ids(tokenizer, as_text(prompt), special=add) for add in (True, False))
    ends = (end for end in range(len(ids), len(bare) - 1, -1) if ids[end - len(bare) : end] == bare)
    return ids[: next(ends, len(ids))]


def render_prompt(
    tokenizer: Any,
    prompt: str | Sequence[Message],
    rendering: Rendering = PLAIN,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """The text of a prompt by the chat template of a tokenizer, up to the beginning of the response.

    variables: of this prompt; they override those of `rendering`. Raises UserError if the template fails, does not end
    within `LONGEST_SECONDS`, or adds more than `MOST_ADDED` characters.
    """
    messages = [dict(message) for message in as_messages(prompt)]
    given = {**rendering.variables, **(variables or {})}
    if writes_date(tokenizer):
        given["chat_template"] = dated_template(template_of(tokenizer), rendering.date)
    try:
        with time_limit(LONGEST_SECONDS):
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **given)
    except TimeLimitReached as error:
        raise ModelError(
            f"the tokenizer's chat template did not end within {LONGEST_SECONDS:g} s for one prompt; use another "
            "template"
        ) from error
    except Exception as error:  # the code of the template may raise anything
        raise ModelError(
            f"the tokenizer's chat template rejects the prompt: {reason_of(error)}; change the prompt's messages, or "
            "use a model whose template takes them"
        ) from error
    if len(text) > len(str(messages)) + MOST_ADDED:
        raise ModelError(
            f"the tokenizer's chat template makes one prompt {len(text)} characters long; use another template"
        )
    return text


def tokenizer_hash(tokenizer: Any) -> str:
    """A hash of everything in a tokenizer that determines how text is tokenised, with the chat template. The date of
    `dated_template` does not change the hash."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    template = getattr(tokenizer, "chat_template", None)
    template = _undated(template) if isinstance(template, str) else template
    return hashlib.blake2b(f"{state}\x1f{template}".encode(), digest_size=16).hexdigest()
