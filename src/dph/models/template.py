"""Chat templates. They are programs that come with a model: transformers runs them in a sandbox, which forbids access
to this process and its machine; here any error is one sentence, and so is a template that does not end."""

from collections.abc import Sequence
from typing import Any

from dph.errors import UserError, reason_of
from dph.process.user_code import TimeLimitReached, time_limit
from dph.types import Message, as_messages

LONGEST_SECONDS = 10.0
"""Time for one prompt; real templates take less than a thousandth of it."""
MOST_ADDED = 1_000_000
"""Characters that a template may add to one prompt: splitting hundreds of megabytes into tokens takes minutes."""


def render_prompt(tokenizer: Any, prompt: str | Sequence[Message]) -> str:
    """The text of a prompt by a tokenizer's chat template, up to where the response begins.

    Raises UserError if the template fails, does not end, or adds over `MOST_ADDED` characters.
    """
    messages = [dict(message) for message in as_messages(prompt)]
    try:
        with time_limit(LONGEST_SECONDS):
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TimeLimitReached as error:
        raise UserError(
            f"the tokenizer's chat template did not end within {LONGEST_SECONDS:g} s for one prompt; use another "
            "template"
        ) from error
    except Exception as error:  # whatever the template's code raises
        raise UserError(f"the tokenizer's chat template rejects the prompt: {reason_of(error)}") from error
    if len(text) > len(str(messages)) + MOST_ADDED:
        raise UserError(
            f"the tokenizer's chat template makes one prompt {len(text)} characters long; use another template"
        )
    return text
