"""`dph passk`: pass@k of judged samples of any harness, and what changed between them."""

import json
import sys
from pathlib import Path

from dph.config import PasskConfig
from dph.evaluation.changes import Comparison, compare
from dph.evaluation.samples import NONE, read_samples
from dph.evaluation.wording import as_json, as_text
from dph.process.progress import say
from dph.runs.files import write_atomically

TOO_MANY_LOST = 3
"""Exit status."""


def passk(config: PasskConfig) -> Comparison:
    """Print the comparison of the files and write the page; ends the process with status 3 if too many problems were
    lost. Raises UserError for files that cannot be read or compared."""
    sides = [read_samples(file, config) for file in config.files]
    for side in sides:
        say(side.read_as)
    comparison = compare(*sides, ks=config.k, partial=config.partial, same_prompts=config.prompt != NONE)
    for note in comparison.notes:
        say(note)
    print(json.dumps(as_json(comparison), indent=1, ensure_ascii=False) if config.json else as_text(comparison))
    if config.html:
        from dph.report.passk import as_page  # slow to load

        Path(config.html).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(config.html), as_page(comparison, [side.read_as for side in sides], "Pass@k"))
    if any(change.lost_share > config.fail_if_lost for change in comparison.changes):
        say(f"more than {100 * config.fail_if_lost:g} % of the problems that {sides[0].name} solves were lost")
        sys.exit(TOO_MANY_LOST)
    return comparison
