"""What the tests of the experiments share: a small grid, database files read without the package's code, and the
pieces of the word tokenizer."""

import re
import sqlite3
from contextlib import closing
from typing import Any

from experiments.grid import Grid, grid_from

PIECE = re.compile(r" ?[A-Za-z_]+| ?\d|[^\S ]| ?[^\sA-Za-z_\d]+|\s")
"""The word tokenizer's pieces."""

SLOTS = {
    "v": r"\d+",
    "u": r"\d+",
    "above": "above|below",
    "highest": "highest|lowest",
    "with": r"[a-z]+ (?:(?:above|below) \d+|'[a-z]+')",
    "is": r"[a-z]+ is (?:(?:above|below) \d+|'[a-z]+')",
    "range": r"from \d+ up|up to \d+",
}


def small_grid(**more: Any) -> Grid:
    """A grid of two methods with two seeds on one base model; `more` replaces whole tables of it."""
    tree: dict[str, Any] = {
        "world": "experiments/minisql/minisql.toml",
        "domains": {"in-domain": "test", "cross-domain": "cross", "out-of-domain": "ood"},
        "seeds": [1, 2],
        "fewer_seeds": [1],
        "bases": {"base": {"label": "base"}},
        "stores": {"one": {"base": "base"}},
        "arms": {
            "grpo": {"label": "GRPO", "preset": "grpo", "tier": "core"},
            "dph_js": {"label": "DPH-JS", "preset": "dph_js", "tier": "core"},
        },
        "sweeps": {"eta": {"arm": "dph_js", "setting": "loss.eta", "values": [0.1], "tier": "wide"}},
    }
    return grid_from("test", tree | more)


def execute(path, sql):
    """Rows of a query on a database file: in their order if the outermost query is ordered, else sorted."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(sql).fetchall()
    ordered = bool(re.search(r"order by (?!.*\))", sql))
    return rows if ordered else sorted(rows, key=repr)


def contents(path):
    """All rows of a database file as dictionaries, by table."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: [dict(row) for row in connection.execute(f"select * from {name} order by id")] for name in names}


def pattern(phrasing):
    """A regular expression that matches a phrasing with any words in its slots; each slot is a named group."""
    return re.compile(re.sub(r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>{SLOTS.get(m[1], '[a-z]+')})", phrasing))


def words_of(prompt):
    """The question of a prompt, without the schema."""
    return prompt.split(" | ")[2].removesuffix(" |")
