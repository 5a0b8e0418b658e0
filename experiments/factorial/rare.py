"""A pre-sampling whose stored responses are those of rarely solved problems, for one arm of experiment D1."""

import json
import shutil
from pathlib import Path

from dph.rehearsal.check import file_hashes, open_presampled
from dph.rehearsal.partition import can_be_lost, reference_counts
from dph.rehearsal.store import read_rehearsal, write_rehearsal
from dph.runs.files import write_atomically

FOR_K = 8
"""The rows are those that `dph presample --for-k 8` would store: of problems with one to three of eight draws correct.
(They may hold one more draw, because `seen` refines all solved problems.)"""


def write_rare(near: Path, seen: Path, out: Path) -> None:
    """Copy the pre-sampling `near`, with its partition, and put in the place of its stored responses those of `seen` to
    problems that are solved one to three times in eight draws; nothing if `out` is there.

    Both pre-samplings have the same seed, and so the same draws of each problem. `seen` stores responses to every
    problem that it solved. Raises UserError for a pre-sampling that is incomplete or changed, and ValueError if their
    draws differ.
    """
    if out.exists():
        return
    counts = reference_counts(open_presampled(seen))
    if counts != reference_counts(open_presampled(near)):
        raise ValueError(f"{near} and {seen} did not draw the same responses")
    stored = [row for row in read_rehearsal(seen / "rehearsal.parquet") if can_be_lost(*counts[row.problem_id], FOR_K)]
    made = out.with_name(out.name + ".part")
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(near, made)
    write_rehearsal(made / "rehearsal.parquet", stored)
    manifest = json.loads((made / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"files": file_hashes(made), "stored_responses": len(stored)}
    write_atomically(made / "manifest.json", json.dumps(manifest, indent=2))
    made.rename(out)
    open_presampled(out)
