"""Chat templates. They are programs that come with a model: transformers runs them in a sandbox, which forbids access
to this process and its machine; here any error is one sentence, and so is a template that does not end."""

from collections.abc import Sequence
from typing import Any

from dph.errors import UserError, reason_of
from dph.process.deadline import TimeLimitReached, time_limit
from dph.types import Message, as_messages

LONGEST_SECONDS = 10.0
"""Time for one prompt; real templates take less than a thousandth of it."""


def render_prompt(tokenizer: Any, prompt: str | Sequence[Message]) -> str:
    """The text of a prompt by a tokenizer's chat template, up to where the response begins.

    Raises UserError if the template fails or does not end.
    """
    messages = [dict(message) for message in as_messages(prompt)]
    try:
        with time_limit(LONGEST_SECONDS):
            return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TimeLimitReached as error:
        raise UserError(
            f"the tokenizer's chat template did not end within {LONGEST_SECONDS:g} s for one prompt; use another "
            "template"
        ) from error
    except Exception as error:  # whatever the template's code raises
        raise UserError(f"the tokenizer's chat template rejects the prompt: {reason_of(error)}") from error
