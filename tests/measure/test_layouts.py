"""Every layout of a harness is counted as it says, or refused with one sentence: never another number."""

from pathlib import Path

import pytest

import layouts_of_harnesses
import layouts_of_tables
from dph.errors import DataError
from dph.measure import read_samples
from layouts_of_harnesses import ONE, SEVERAL

LAYOUTS = layouts_of_harnesses.LAYOUTS | layouts_of_tables.LAYOUTS


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_counted_as_it_says_or_refused(tmp_path: Path, name: str) -> None:
    files, right = LAYOUTS[name]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8", newline="")
    side = tmp_path / next(iter(files)).partition("/")[0]
    if right == "refused":
        with pytest.raises(DataError) as error:
            read_samples(side)
        assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
        return
    found = read_samples(side)
    counts = sorted(zip(found.problems, found.c.tolist(), found.n.tolist(), strict=True))
    several = [(sum(verdicts), len(verdicts)) for verdicts in SEVERAL.values()]
    wanted = several if right == "several" else [(verdict, 1) for verdict in ONE.values()]
    assert [(c, n) for _, c, n in counts] == wanted
