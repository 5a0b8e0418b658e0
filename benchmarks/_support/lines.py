"""Results as lines of JSON: each is on disk before the next measurement begins, so a killed benchmark loses none."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Lines:
    """A file that grows by one line for each result; without a path, results go nowhere."""

    def __init__(self, path: Path | None, **facts: Any) -> None:
        """facts: added to every line."""
        self._path, self._facts = path, facts

    def add(self, what: str, **values: Any) -> None:
        """Append a result: what was measured, and its values."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what} | self._facts | values) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_lines(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """All results in some files, in order; a line that a kill has cut short is left out."""
    found = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
