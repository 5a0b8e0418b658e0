"""Stop strings: where a response ends because its text contains one, wherever the string begins and ends in tokens."""

from collections.abc import Callable, Sequence

from torch import Tensor

_MARGIN = 8
"""Characters by which the text of a few tokens may differ at its start from the same place of the whole text: a space
that the tokenizer drops there, or the rest of a character."""


class Stopping:
    """Watches the texts of responses while they are sampled. A response ends with the first token with which its whole
    text contains one of the strings."""

    def __init__(self, decode: Callable[[Sequence[int]], str], strings: Sequence[str], rows: int) -> None:
        """decode: the text of token ids. strings: end a response; none is empty. rows: number of responses."""
        self._decode, self._strings = decode, strings
        self._ids: list[list[int]] = [[] for _ in range(rows)]
        """The tokens of each response that were looked at."""
        self.stopped: set[int] = set()
        """The responses that a string ended."""

    def look(self, rows: Sequence[int], new: Sequence[Sequence[int]], lengths: Tensor) -> None:
        """Look at the tokens that responses got since the last look, and set the length of those that end.

        Args:
            rows: places of the responses.
            new: the new tokens of each.
            lengths: int64 [all responses]: tokens of each response that has ended, else 0. A response may have ended
                before the last of its new tokens.
        """
        ended = lengths.tolist()
        for row, tokens in zip(rows, new, strict=True):
            ids = self._ids[row]
            before, limit = len(ids), ended[row] or len(ids) + len(tokens)
            if row in self.stopped or limit <= before:
                continue
            ids += tokens[: limit - before]
            if end := self.end(ids, before):
                lengths[row] = end
                self.stopped.add(row)

    def end(self, ids: Sequence[int], before: int) -> int:
        """The least number of tokens, above `before`, whose text contains a string; 0 if there is none. The text of the
        first `before` tokens contains none."""
        if not self._contains(ids[self._tail(ids, before) :]):
            return 0
        counts = range(before + 1, len(ids) + 1)
        return next((count for count in counts if self._contains(ids[:count])), 0)

    def _contains(self, ids: Sequence[int]) -> bool:
        text = self._decode(ids)
        return any(string in text for string in self._strings)

    def _tail(self, ids: Sequence[int], before: int) -> int:
        """From which token on the text holds every string that ends after the first `before` tokens: decoding whole
        responses at each step would take time in proportion to the square of their length."""
        needed = max(map(len, self._strings)) + _MARGIN
        tokens = needed
        while tokens < before and len(self._decode(ids[before - tokens : before])) < needed:
            tokens *= 2
        return max(0, before - tokens)
