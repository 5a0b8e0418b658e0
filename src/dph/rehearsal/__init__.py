"""The near-perfect set D_pef: the partition, the stored responses, and the checks before training uses them (§4.1).

`partition` reads which prompts are explored and which are rehearsed, `store` reads, writes and orders the stored
responses, `check` compares a set with the policy that training starts from.
"""

from dph.rehearsal.check import check_fit, check_start, open_set
from dph.rehearsal.partition import read_partition, training_problems
from dph.rehearsal.store import Rehearsal, RehearsalSet, read_rehearsal, write_rehearsal

__all__ = [
    "Rehearsal",
    "RehearsalSet",
    "check_fit",
    "check_start",
    "open_set",
    "read_partition",
    "read_rehearsal",
    "training_problems",
    "write_rehearsal",
]
