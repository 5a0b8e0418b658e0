"""A bounded cache that evicts the least recently used entries. Standard library only: worker processes load this."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class LRU:
    """Keeps entries while the sum of their weights is at most `capacity`. It is thread-safe.

    >>> cache = LRU(1)
    >>> cache.put("a", 1)
    []
    >>> cache.put("b", 2)
    [1]
    >>> cache.get("a"), cache.get("b")
    (None, 2)
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """The value, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, weight: int = 1) -> list[Any]:
        """Store a value and return the evicted values. A value heavier than the capacity is not kept."""
        with self._lock:
            dropped = [self._entries.pop(key)] if key in self._entries else []
            self._entries[key] = (value, weight)
            self._weight += weight - sum(old_weight for _, old_weight in dropped)
            while self._weight > self._capacity:
                _, last = self._entries.popitem(last=False)
                self._weight -= last[1]
                dropped.append(last)
        return [old for old, _ in dropped]

    def clear(self) -> list[Any]:
        """Remove all entries and return their values."""
        with self._lock:
            dropped = [value for value, _ in self._entries.values()]
            self._entries.clear()
            self._weight = 0
        return dropped
