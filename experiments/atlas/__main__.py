"""`python -m experiments.atlas`: what reinforcement learning cost in pass@k, as a table and a figure.

Without flags the tables of docs/results/atlas.md and docs/figures/atlas.png are made from the results in
experiments/results/atlas, each of which `dph passk --json` wrote. `--check` changes nothing and ends with status 1 if
the page has other tables. `--rebuild [ROW …]` makes the results of rows again from their counts; those of `remax-rl`
need its wheel, which pip fetches unless `--remax` names the file of keys from it.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dph.errors import UserError
from experiments.atlas.page import FIGURE, FOLDER, PAGE, figure, replaced, rows
from experiments.atlas.sources import FROM_REMAX, OWN, fetched, result


def rebuild(names: Sequence[str], keys: Path | None) -> None:
    """Write the results of rows; all that have a source if none is named."""
    chosen = list(names) or [*OWN, *FROM_REMAX]
    if unknown := [name for name in chosen if name not in OWN and name not in FROM_REMAX]:
        raise UserError(f"{', '.join(unknown)}: no source is known; there are {', '.join([*OWN, *FROM_REMAX])}")
    with tempfile.TemporaryDirectory() as folder:
        if not keys and any(name in FROM_REMAX for name in chosen):
            keys = fetched(Path(folder))
        for name in chosen:
            sides = OWN[name]() if name in OWN else FROM_REMAX[name](keys or Path())
            text = json.dumps(result(sides), ensure_ascii=False, separators=(",", ":"))
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(name, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m experiments.atlas", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rebuild", nargs="*", metavar="ROW")
    parser.add_argument("--remax", type=Path, metavar="FILE")
    given = parser.parse_args(words)
    if given.rebuild is not None:
        rebuild(given.rebuild, given.remax)
        return 0
    every, now = rows(), PAGE.read_text(encoding="utf-8")
    made = replaced(now, every)
    if given.check:
        print(f"{PAGE} {'has' if made == now else 'has not'} the tables of {FOLDER}")
        return int(made != now)
    PAGE.write_text(made, encoding="utf-8")
    figure(every).savefig(FIGURE, dpi=110)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"atlas: {error}")
