"""What a decoder does, and the test of whether a decoder reproduces a model's own logits."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor

from dph.models.policy import Policy
from dph.models.traits import agree
from dph.models.trial import attempt, with_first_layers

_LONG_TOLERANCE = 1e-3
"""Largest difference of logits after long prompts, as `agree` takes it. A router that chooses another expert for one of
many tokens because of rounding changes them by less."""
_PROMPTS = {True: [[[3, 4, 5, 6, 7], [5, 3]]], False: [[[3, 4, 5, 6, 7], [5, 3, 4, 4, 6]], [[5, 3], [4, 6]]]}
"""Prompts that the test decodes together: of different lengths, or of equal length."""
_TOKENS = ((6, 3, 5, 4), (4, 7, 3), (3, 6, 4))
"""Tokens that the test appends to its rows at each step. In place of the last one of the first step comes the padding
token, which some models treat in a special way."""
_KEPT = (0, 2, 3)  # the rows that are left after the test's first step
PROBED = 5 + len(_TOKENS)
"""Longest row of the test, in tokens."""
_LARGEST_ERROR = 1.5
"""Largest error of a decoder's logits in bf16, as a multiple of the plain pass's."""
_RESPONSES = 16
"""Responses to each prompt from which that multiple is estimated. A single row's varies by a factor of ten, where real
models have outliers; the mean of the logarithm over 96 rows varied by 15 percent with SmolLM2-135M."""
_ROUNDING = 2.0**-9
"""Error relative to the logits that bf16 has in any case: half a unit in the last of its eight places."""


class Decoder(Protocol):
    """R rows in generation: `repeats` responses for each of a few prompts, grouped by prompt."""

    logits: Tensor
    """float32 [R, V]: logits of each row's next token."""

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        ...

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        ...


Start = Callable[[Policy, Sequence[Sequence[int]], int], Decoder]
"""Starts a decoder with a policy, prompts and the number of responses to each prompt."""


@torch.inference_mode()
def why_not(start: Start, policy: Policy, *, ragged: bool, longest: int = PROBED) -> str:
    """Why a model cannot be decoded in a way; empty if it can.

    The test decodes a few tokens of two responses to each of two prompts, drops a row on the way, and compares all
    logits with those of the plain forward pass. So nothing needs to be known about the model's cache, masks and
    positions. It does the same with long prompts. The comparison is made in fp32, where rounding is small. With bf16,
    whose error depends on the model and may be as large as its logits, the decoder's own error must also be like the
    plain pass's. See `dph.models.trial`.

    Args:
        start: starts the decoder.
        ragged: whether prompts of different length are decoded together.
        longest: tokens of the longest row of the test.
    """

    def short() -> str:
        for logits, rows in _trial(start, policy, ragged):
            if not agree(logits, _plain_logits(policy, rows)):
                return "its logits differ from those of its plain forward pass"
        return ""

    def long() -> str:
        logits, rows = _long_trial(start, policy, ragged, longest)
        if agree(logits, _plain_logits(policy, rows), _LONG_TOLERANCE):
            return ""
        return f"its logits differ from those of its plain forward pass in rows of {longest} tokens"

    def coarse() -> str:
        if _error(start, policy, ragged) <= _LARGEST_ERROR:
            return ""
        return f"in {policy.precision} its logits have a larger error than those of its plain forward pass"

    def tried() -> str:
        reason = policy.in_trial(short) or (policy.in_trial(long) if longest > PROBED else "")
        return reason or ("" if policy.precision == "fp32" else with_first_layers(policy.model, coarse))

    with policy.evaluating():
        return attempt(tried)


def _trial(start: Start, policy: Policy, ragged: bool) -> Iterator[tuple[Tensor, list[list[int]]]]:
    """Decode a few tokens; yield the logits and the rows that they continue, at each step."""
    config = policy.model.config.get_text_config()
    vocabulary, padding = config.vocab_size, getattr(config, "pad_token_id", None)
    steps = [_TOKENS[0] if padding is None else (*_TOKENS[0][:-1], padding), *_TOKENS[1:]]
    steps = [[token % vocabulary for token in tokens] for tokens in steps]
    for prompts in _PROMPTS[ragged]:
        rows = [[token % vocabulary for token in prompt] for prompt in prompts]
        decoder = start(policy, rows, 2)
        rows = [row for row in rows for _ in range(2)]
        yield decoder.logits, rows
        for number, tokens in enumerate(steps):
            rows = _appended(decoder, rows, tokens)
            yield decoder.logits, rows
            if number == 0:
                decoder.select(torch.tensor(_KEPT, device=policy.device))
                rows = [rows[row] for row in _KEPT]


def _long_trial(start: Start, policy: Policy, ragged: bool, longest: int) -> tuple[Tensor, list[list[int]]]:
    """Decode a few tokens after prompts of which the longest leave just room for them; return the last logits and the
    rows that they continue."""
    vocabulary, generator = policy.model.config.get_text_config().vocab_size, torch.Generator().manual_seed(1)
    room = longest - len(_TOKENS)
    lengths = sorted({5, room // 4 + 1, room}) if ragged else [room, room]
    prompts = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]
    decoder = start(policy, prompts, 1)
    rows = prompts
    for _ in _TOKENS:
        rows = _appended(decoder, rows, torch.randint(vocabulary, (len(rows),), generator=generator).tolist())
    return decoder.logits, rows


def _appended(decoder: Decoder, rows: Sequence[list[int]], tokens: Sequence[int]) -> list[list[int]]:
    """The rows with a token more each, which the decoder has decoded."""
    decoder.step(torch.tensor(tokens, device=decoder.logits.device))
    return [[*row, token] for row, token in zip(rows, tokens, strict=True)]


def _error(start: Start, policy: Policy, ragged: bool) -> float:
    """Error of a decoder's logits in the policy's precision, as a multiple of the plain pass's: root mean squares over
    the vocabulary, geometric mean over rows of random tokens."""
    decoded = list(_random_trial(start, policy, ragged))
    plain = [_plain_logits(policy, rows) for _, rows in decoded]
    with policy.in_precision("fp32"):
        exact = [_plain_logits(policy, rows) for _, rows in decoded]
    logarithms: list[Tensor] = []
    for (logits, _), own, true in zip(decoded, plain, exact, strict=True):
        least = _ROUNDING**2 * true.square().sum(-1)
        found, usual = (torch.maximum((each - true).square().sum(-1), least) for each in (logits, own))
        logarithms.append(0.5 * (found / usual).log())
    return float(torch.cat(logarithms).mean().exp())


def _random_trial(start: Start, policy: Policy, ragged: bool) -> Iterator[tuple[Tensor, list[list[int]]]]:
    """As `_trial`, with random tokens, more responses, and without the prompts' own logits, which need no decoder."""
    vocabulary, generator = policy.model.config.get_text_config().vocab_size, torch.Generator().manual_seed(0)
    for prompts in _PROMPTS[ragged]:
        rows = [torch.randint(vocabulary, (len(prompt),), generator=generator).tolist() for prompt in prompts]
        decoder = start(policy, rows, _RESPONSES)
        rows = [row for row in rows for _ in range(_RESPONSES)]
        for _ in _TOKENS:
            rows = _appended(decoder, rows, torch.randint(vocabulary, (len(rows),), generator=generator).tolist())
            yield decoder.logits.clone(), rows  # a decoder may write the next step's into the same place


def _plain_logits(policy: Policy, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits [rows, V] of the token after each row, from the model's plain forward pass over rows of one length."""
    last = policy.arguments.taken(logits_to_keep=1)
    with policy.autocast():
        parts = [torch.tensor(list(equal), device=policy.device) for _, equal in groupby(rows, key=len)]
        own = [policy.model(input_ids=ids, use_cache=False, **last).logits[:, -1] for ids in parts]
    return torch.cat(own).float()
