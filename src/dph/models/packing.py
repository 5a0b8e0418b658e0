"""Pack rows that share prompts into one flat sequence that stores every common prefix once.

Rows with the same prompt form a group. The prefix of a group is the prompt and all tokens with which all of its
responses begin. The rest of each response is a suffix, and equal responses share one suffix. The last token of a
response is left out, because nothing is predicted from it. Prefixes come first, then the suffixes, group by group:

    [prefix 1 | prefix 2 | … | suffixes of group 1 | suffixes of group 2 | …]

Groups whose suffixes attend to a prefix come before all others, so that these prefixes, and these suffixes, are
adjacent. The last token of a prefix predicts the first token of every suffix. If the forward pass of a model takes one
target per token, each suffix begins one token earlier (`one_target`): the last common token is then stored once per
suffix.

Apart from attention, a model processes every token independently. `dph.models.attention` has the attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

_LARGEST_PADDING = 0.75
"""Sequences share one call of attention if the length of the shortest is at least this fraction of the length of the
longest."""


def moved(value: Any, device: torch.device | str) -> Any:
    """A value with its tensors on a device. The value is a tensor, a layout, or a tuple or dataclass of such values.
    Any other value is returned as it is."""
    if isinstance(value, Tensor | PrefixLayout):
        return value.to(device)
    if isinstance(value, tuple):
        return type(value)(moved(item, device) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {item.name: moved(getattr(value, item.name), device) for item in fields(value)}
        return replace(value, **changes)
    return value


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token ids of a prompt and of one response to it.

    >>> Tokens(prompt_ids=[1, 2], response_ids=[3, 4, 5]).length
    5
    """

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Packed sequences that are computed in one call and padded to one length. Each sequence has causal attention to
    itself."""

    shape: tuple[int, int]
    """The number of sequences, and the length of the longest sequence in tokens."""
    index: Tensor
    """int64 [sequences · tokens]: the packed index of every token of the padded sequences. Padding repeats the last
    token."""
    present: Tensor
    """int64: indices, into the flattened padded sequences, of the tokens that are not padding."""
    places: Tensor
    """int64, as long as `present`: packed indices of these tokens."""
    start: int | None
    """The packed index of the first token, if the sequences follow one another without padding, so that they need no
    copy; None otherwise."""

    def take(self, x: Tensor) -> Tensor:
        """The sequences, [N, …] → [B, L, …]. Padding repeats the last token of a sequence."""
        if self.start is None:
            return x.index_select(0, self.index).unflatten(0, self.shape)
        return x[self.start : self.start + len(self.index)].unflatten(0, self.shape)

    def kept(self, values: Tensor) -> Tensor:
        """The values [B, L, …] of the sequences without the padding, in the order of `places`: [tokens, …]."""
        return values.flatten(0, 1).index_select(0, self.present)


@dataclass(frozen=True, slots=True)
class Suffixes:
    """The suffixes of one group; each token of a suffix attends to the whole prefix."""

    prefix: tuple[int, int]
    """The packed index of the first token of the prefix, and the length of the prefix."""
    tokens: tuple[int, int]
    """The packed index of the first token of the suffixes, and the total length of the suffixes."""
    bucket: Bucket
    """The suffixes as sequences."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Adjacent sequences, none of them empty, as kernels for variable lengths take them."""

    first: int
    """Packed index of the first token."""
    tokens: int
    """The total length of the sequences."""
    longest: int
    """The length of the longest sequence; 0 if there is none."""
    starts: Tensor
    """int32 [sequences + 1]: the start of each sequence, counted from `first`, and the end of the last sequence."""

    @property
    def place(self) -> slice:
        """Packed indices of the tokens."""
        return slice(self.first, self.first + self.tokens)


class PrefixLayout:
    """Which packed tokens attend to which, in the two forms that the implementations of attention read. The class is no
    dataclass, because FSDP2 copies dataclasses in arguments, and each layer would derive the same values again."""

    def __init__(
        self,
        longest: int,
        buckets: tuple[Bucket, ...],
        suffixes: tuple[Suffixes, ...],
        sequences: Spans,
        queries: Spans,
        prefixes: Spans,
    ) -> None:
        """
        Args:
            longest: the length of the longest row, in tokens.
            buckets: the buckets; every packed token is in exactly one of them.
            suffixes: the suffixes of each group that has suffixes with a prefix.
            sequences: all prefixes and suffixes. Every packed token attends to its own sequence up to itself.
            queries: for each item of `suffixes`, all its tokens as one sequence.
            prefixes: for each item of `suffixes`, the prefix to which all these tokens attend.
        """
        self.longest, self.buckets, self.suffixes = longest, buckets, suffixes
        self.sequences, self.queries, self.prefixes = sequences, queries, prefixes
        self.derived: dict[str, Any] = {}
        """Values that an implementation has computed from this layout, for use in all layers of the model."""

    def to(self, device: torch.device | str) -> "PrefixLayout":
        """A copy of the layout on a device, without derived values."""
        parts = (self.buckets, self.suffixes, self.sequences, self.queries, self.prefixes)
        return PrefixLayout(self.longest, *moved(parts, device))


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed rows: N tokens, of which U predict the K response tokens of all rows."""

    input_ids: Tensor
    """int64 [1, N]."""
    position_ids: Tensor
    """int64 [1, N]: position of each token within its own row, counted from the row's first token."""
    sources: Tensor
    """int64 [U]: packed indices of the tokens that predict a response token."""
    states: Tensor
    """int64 [K]: index into `sources` for each response token, row by row."""
    layout: PrefixLayout


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows with the same prompt."""

    prompt: tuple[int, ...]
    rows: list[int]
    responses: list[tuple[int, ...]]
    """The distinct responses, in the order of their rows."""
    fork: int
    """The length of the prefix, in tokens."""

    @property
    def prefix(self) -> tuple[int, ...]:
        return (self.prompt + self.responses[0])[: self.fork]

    @property
    def suffixes(self) -> list[tuple[int, ...]]:
        before, after = self.prompt[self.fork :], max(0, self.fork - len(self.prompt))
        return [(before + response[after:])[:-1] for response in self.responses]

    @property
    def tokens(self) -> int:
        return len(self.prefix) + sum(len(suffix) for suffix in self.suffixes)

    @property
    def splits(self) -> bool:
        """Whether there is a prefix with suffixes that attend to it."""
        return bool(self.prefix) and any(self.suffixes)


def group_by_prompt(rows: Sequence[Tokens]) -> list[list[int]]:
    """The indices of the rows of each distinct prompt. Prompts are in the order of their first rows, and the indices of
    a prompt ascend.

    >>> group_by_prompt([Tokens([1], [5]), Tokens([2], [6]), Tokens([1], [7])])
    [[0, 2], [1]]
    """
    prompts: dict[int, tuple[int, ...]] = {}  # by id: the rows of a group usually hold the same list object
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(rows):
        key = prompts.get(id(row.prompt_ids))
        if key is None:
            key = prompts[id(row.prompt_ids)] = tuple(row.prompt_ids)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _group(rows: Sequence[Tokens], indices: list[int], one_target: bool = False) -> _Group:
    prompt = tuple(rows[indices[0]].prompt_ids)
    responses = list(dict.fromkeys(tuple(rows[index].response_ids) for index in indices))
    first, last = min(responses), max(responses)  # all have the prefix that these two share
    agreed = (index for index, (first_id, last_id) in enumerate(zip(first, last, strict=False)) if first_id != last_id)
    common = next(agreed, min(len(first), len(last)))
    alone = len(responses) == 1 and common > 0  # a single response has no suffix, and its last token is left out
    return _Group(prompt, indices, responses, len(prompt) + common - (alone or (one_target and len(responses) > 1)))


def packed_tokens(rows: Sequence[Tokens]) -> int:
    """The number of tokens N of the packed rows."""
    return sum(_group(rows, indices).tokens for indices in group_by_prompt(rows))


def pack(rows: Sequence[Tokens], *, one_target: bool = False, first_positions: Sequence[int] | None = None) -> Packed:
    """Pack rows as described at the top of this file.

    Args:
        rows: prompts, each of at least one token, and responses.
        one_target: whether no token may predict two different tokens.
        first_positions: for each row, the position of its first token, the same for rows with the same prompt. None
            stands for 0.
    """
    groups = [_group(rows, indices, one_target) for indices in group_by_prompt(rows)]
    groups.sort(key=lambda group: not group.splits)
    tokens: list[int] = []
    positions: list[int] = []
    spans: list[tuple[int, int]] = []

    def place(sequence: Sequence[int], first_position: int) -> int:
        start = len(tokens)
        tokens.extend(sequence)
        positions.extend(range(first_position, first_position + len(sequence)))
        spans.append((start, len(sequence)))
        return start

    firsts = [0 if first_positions is None else first_positions[group.rows[0]] for group in groups]
    prefixes = [place(group.prefix, first) for group, first in zip(groups, firsts, strict=True)]
    sources: list[list[int]] = [[] for _ in rows]
    suffixes = []
    for group, prefix_start, first_position in zip(groups, prefixes, firsts, strict=True):
        prefix_length, first = len(group.prefix), len(tokens)
        places_of: dict[tuple[int, ...], list[int]] = {}
        for response, suffix in zip(group.responses, group.suffixes, strict=True):
            start = place(suffix, first_position + prefix_length)
            row_places = [*range(prefix_start, prefix_start + prefix_length), *range(start, start + len(suffix))]
            before = len(group.prompt) - 1
            places_of[response] = row_places[before : before + len(response)]
        for index in group.rows:
            sources[index] = places_of[tuple(rows[index].response_ids)]
        if group.splits:
            tails = [span for span in spans[-len(group.suffixes) :] if span[1]]
            suffixes.append(Suffixes((prefix_start, prefix_length), (first, len(tokens) - first), _bucket(tails)))
    longest = max(len(row.prompt_ids) + len(row.response_ids) for row in rows)
    count = len(groups)
    buckets = [bucket for part in (spans[:count], spans[count:]) for bucket in _buckets([x for x in part if x[1]])]
    places = torch.tensor([place for row in sources for place in row], dtype=torch.long)
    distinct, states = places.unique(return_inverse=True)
    return Packed(
        input_ids=torch.tensor([tokens]),
        position_ids=torch.tensor([positions]),
        sources=distinct,
        states=states,
        layout=PrefixLayout(
            longest,
            tuple(buckets),
            tuple(suffixes),
            _spans([span for span in spans if span[1]]),
            _spans([group.tokens for group in suffixes]),
            _spans([group.prefix for group in suffixes]),
        ),
    )


def _spans(spans: Sequence[tuple[int, int]]) -> Spans:
    """Adjacent sequences, given as (start, length), as `Spans`. No sequence is empty."""
    ends = list(accumulate((length for _, length in spans), initial=0))
    longest = max((length for _, length in spans), default=0)
    return Spans(spans[0][0] if spans else 0, ends[-1], longest, torch.tensor(ends, dtype=torch.int32))


def _buckets(spans: Sequence[tuple[int, int]]) -> list[Bucket]:
    """Group sequences, given as (start, length), into buckets of sequences of similar length."""
    parts: list[list[tuple[int, int]]] = []
    for span in sorted(spans, key=lambda span: span[1], reverse=True):
        if parts and span[1] >= _LARGEST_PADDING * parts[-1][0][1]:
            parts[-1].append(span)
        else:
            parts.append([span])
    return [_bucket(group) for group in parts]


def _bucket(spans: Sequence[tuple[int, int]]) -> Bucket:
    starts, lengths = (torch.tensor(column)[:, None] for column in zip(*spans, strict=True))
    steps = torch.arange(int(lengths.max()))[None]
    index = (starts + torch.minimum(steps, lengths - 1)).flatten()  # padding repeats the last token
    present = (steps < lengths).flatten().nonzero().squeeze(1)
    start = int(starts[0]) if index.equal(starts[0] + torch.arange(len(present))) else None
    return Bucket((len(spans), steps.shape[1]), index, present, index[present], start)
