"""`dph passk`: pass@k of judged samples of any harness, and the changes between them."""

import sys
from pathlib import Path

from dph.config import PasskConfig
from dph.errors import SettingsError, json_for_terminal
from dph.measure.changes import Comparison, compare
from dph.measure.samples import NONE
from dph.measure.sides import read_sides
from dph.measure.wording import comparison_as_json, comparison_as_text
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
    page = Path(config.html)
    if config.fail_if_lost < 1 and len(config.files) < 2:
        raise SettingsError("--fail-if-lost needs two files: what was lost is lost between BEFORE and AFTER; name both")
    if config.html:
        check_place(page)
    if config.html and page.is_dir():
        raise SettingsError(f"--html {page} is a folder; name a file")
    if config.html:
        check_replaced([page], MARK, "dph passk", "--html")
    sides = read_sides(config.files, config)
    comparison = compare(*sides, ks=config.k, partial=config.partial, same_prompts=config.prompt != NONE)
    for note in comparison.notes:
        say(note)
    put(json_for_terminal(comparison_as_json(comparison)) if config.json else comparison_as_text(comparison))
    if config.html:
        from dph.report.passk import as_page  # slow to load

        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, as_page(comparison, [side.read_as for side in sides], "Pass@k"))
    if failed := [change for change in comparison.changes if change.lost_share > config.fail_if_lost]:
        most = f"{100 * config.fail_if_lost:g} % of the problems that {sides[0].name} solves"
        beyond = "beyond what chance alone loses between two draws of samples from one model"
        names = ", ".join(f"{change.after} (among {change.among} of each problem)" for change in failed)
        say(f"more than {most} were lost, {beyond}, in {names}")
        sys.exit(TOO_MANY_LOST)
    return comparison
