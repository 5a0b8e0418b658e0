"""`dph passk`: pass@k of judged samples of any harness, and the changes between them."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dph.config import PasskConfig
from dph.errors import SettingsError, json_for_terminal
from dph.measure.changes import Comparison, compare
from dph.measure.cited import MARKS, check_table, result_as_json, table_as_text
from dph.measure.example import ABOUT, FILES
from dph.measure.repeats import compare_runs
from dph.measure.samples import NONE, Samples
from dph.measure.sides import read_sides
from dph.measure.wording import comparison_as_text
from dph.process.places import check_place
from dph.process.progress import put, say
from dph.runs.files import check_replaced, write_atomically

MARK = 'content="made by dph"'
"""A mark in every page, so that a file of somebody else is not replaced."""
TOO_MANY_LOST = 3
"""The exit status if more problems were lost than `fail_if_lost` allows."""


def passk(config: PasskConfig) -> Comparison:
    """Print the comparison of the files, and write the page. Ends the process with status 3 if too many problems were
    lost. Raises UserError for files that cannot be read or compared."""
    page, table, files = Path(config.html), Path(config.table), (*config.files, *config.after)
    if config.after and not config.files:
        raise SettingsError("--after names the runs of AFTER; name those of BEFORE first: dph passk BEFORE … --after …")
    if config.example:
        if files:
            raise SettingsError("--example has files of its own; leave out the others, or --example")
        files = tuple(map(str, FILES))
        say(ABOUT)
    if config.fail_if_lost < 1 and len(files) < 2:
        raise SettingsError("--fail-if-lost needs two files: what was lost is lost between BEFORE and AFTER; name both")
    if config.html:
        check_place(page)
    if config.html and page.is_dir():
        raise SettingsError(f"--html {page} is a folder; name a file")
    if config.html:
        check_replaced([page], MARK, "dph passk", "--html")
    if config.table or config.benchmark:
        check_table(config, len(files))
        check_place(table)
        check_replaced([table], MARKS[table.suffix], "dph passk", "--table")
    sides = read_sides(files, config)
    if config.example:
        within = f"{FILES[0].parent}{os.sep}"  # where this package is installed says nothing to a reader of the result
        sides = [replace(side, name=Path(side.name).name, read_as=side.read_as.replace(within, "")) for side in sides]
    comparison = _compared(sides, config)
    for note in comparison.notes:
        say(note)
    if config.json:
        put(json_for_terminal(result_as_json(comparison, sides, config)))
    else:
        put(comparison_as_text(comparison))
    if config.html:
        from dph.report.passk import as_page  # slow to load

        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, as_page(comparison, [side.read_as for side in sides], "Pass@k"))
    if config.table:
        table.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(table, table_as_text(comparison, sides, config))
    if failed := [change for change in comparison.changes if change.lost_share > config.fail_if_lost]:
        most = f"{100 * config.fail_if_lost:g} % of the problems that {sides[0].name} solves"
        beyond = "beyond what chance alone loses between two draws of samples from one model"
        names = ", ".join(f"{change.after} (among {change.among} of each problem)" for change in failed)
        say(f"more than {most} were lost, {beyond}, in {names}")
        sys.exit(TOO_MANY_LOST)
    return comparison


def _compared(sides: Sequence[Samples], config: PasskConfig) -> Comparison:
    """Each AFTER against BEFORE, or the runs of AFTER against those of BEFORE."""
    same_prompts = config.prompt != NONE
    if config.after:
        runs = len(config.files)
        return compare_runs(sides[:runs], sides[runs:], config.k, config.partial, same_prompts)
    return compare(*sides, ks=config.k, partial=config.partial, same_prompts=same_prompts)
