"""Several judges in one table: `python -m benchmarks.verifiers.judges NAME=FILE.json …`.

FILE.json is what `dph judge FUNCTION --json` printed, each in an environment that has the judge's library. Prints
Markdown: right answers refused / wrong ones paid, in percent, by the type of answer, and the times.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dph.errors import UserError


def table(judges: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The header and the rows. Raises UserError if the judges were asked about different answers."""
    first = next(iter(judges))
    for name, found in judges.items():
        if _sizes(found) != _sizes(judges[first]):
            raise UserError(
                f"{name} was asked about other answers than {first}; use one version and one --every for all"
            )
    rows = [["answers", *judges]]
    for place, kind in enumerate(judges[first]["by_type"]):
        name = f"**{kind['name']}**" if kind["name"] == "all" else kind["name"]
        rows.append([name, *(_cell(found["by_type"][place]) for found in judges.values())])
    total = [found["by_type"][-1] for found in judges.values()]
    rows.append(["not judged", *(_share(each["unjudged"], each["right"] + each["wrong"]) for each in total)])
    rows.append(["median time, ms", *(f"{1000 * found['seconds']['median']:.2g}" for found in judges.values())])
    rows.append(["longest, s", *(f"{found['seconds']['longest']:.2g}" for found in judges.values())])
    return rows


def _sizes(found: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(kind["name"], kind["right"] + kind["wrong"]) for kind in found["by_type"]]


def _cell(kind: Mapping[str, Any]) -> str:
    return f"{_share(kind['refused'], kind['right'])} / {_share(kind['paid'], kind['wrong'])}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judges", nargs="+", metavar="NAME=FILE.json")
    named = dict(word.split("=", 1) for word in parser.parse_args(words).judges)
    rows = table({name: json.loads(Path(file).read_text(encoding="utf-8")) for name, file in named.items()})
    for place, row in enumerate(rows):
        print(f"| {' | '.join(row)} |")
        if place == 0:
            print("|" + "---|" * len(row))


if __name__ == "__main__":
    main()
