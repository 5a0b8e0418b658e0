"""The bank: one correct response for each distinct way of solving a problem that was ever found (after Re:Dr, package
`remax-rl` 0.1.1).

The rehearsal set of the paper holds what the initial policy mastered. The bank grows: each step's correct, finished
responses enter it if their problem has no entry of their mode yet (`dph.rehearsal.modes` says what a mode is), and the
step's stored rows are taken from it. Its loss is the mean over problems of the mean over modes:

    L = 1/P · Σ_{p}  1/M_p · Σ_{m} ℓ(row of mode m of problem p)          (`even_weights`)

with P the problems and M_p the modes of p among the rows of a mini-batch, and ℓ what `loss.divergence` says of a row,
with u = π_θ/π and π the policy that drew the response.

The bank is a function of the run. Trainers call `sight` for each group, in any process; gather what it returns in the
order of the step's groups; and give it to `admission`, which changes nothing, and `commit`. So all processes hold the
same bank, and a step that fails before `commit` leaves the bank as it was. `draw` is a function of the bank, the seed
and a cursor. `dph.rehearsal.bank_files` keeps the bank in a run directory.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from dph.rehearsal.modes import EACH, BankKey, Mode, Solution
from dph.rehearsal.store import Rehearsal
from dph.sampling.seeding import EpochOrder, derive_key


@dataclass(frozen=True, slots=True)
class Entry:
    """The exemplar of a mode, and how often the policy draws the mode."""

    row: Rehearsal
    """`ref_logprobs` are of the policy that drew it."""
    mode: str
    found: int
    """The step at which it was admitted; 0 for one with which the bank began."""
    number: int
    """Its place among those admitted at that step."""
    drawn: int = 0
    """Responses of this mode since, the exemplar included; those with which the bank began were not drawn."""
    last: int = 0
    """The last step at which one was drawn; 0 for none."""
    lately: float = 0.0
    """The responses of this mode at the last visit of its problem, half of those at the visit before, and so on; 0 for
    a response that is a mode of its own, of which there will be no other."""
    visited: int = 0
    """The last step at which its problem was sampled."""

    @property
    def age(self) -> tuple[int, int]:
        """Orders entries from the oldest to the newest."""
        return self.found, self.number


Modes = dict[str, Entry]
"""The entries of a problem by mode, the oldest first."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one group of responses to a problem shows."""

    problem_id: str
    counts: Mapping[str, int]
    """The correct, finished responses of each mode, in the order of the first of each."""
    rows: Mapping[str, Rehearsal]
    """The first response of each mode that the bank lacks."""
    each: Sequence[Rehearsal] = ()
    """Responses that are modes of their own."""
    unread: int = 0
    """Responses whose plain text stands for their form."""
    unkeyed: int = 0
    """Correct responses to which the key gives no mode; they are not admitted."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a step changes."""

    step: int
    admitted: Sequence[Entry]
    """New entries, in their order."""
    changed: Mapping[str, Modes]
    """The entries after the step of each problem that was sampled."""
    unread: int
    unkeyed: int


@dataclass
class Bank:
    """The entries of all problems."""

    key: BankKey
    capacity: int
    """Most modes of a problem."""
    seed: int
    problem_ids: Sequence[str]
    """All problems that may have entries, in a fixed order; of others nothing is admitted."""
    _modes: dict[str, Modes] = field(default_factory=dict)
    _size: int = 0
    _watched: Counter[str] = field(default_factory=Counter)
    """Of each problem the modes that could have been drawn again, since their problem was sampled later …"""
    _kept: Counter[str] = field(default_factory=Counter)
    """… and those that the last of these samplings drew."""

    def __post_init__(self) -> None:
        self._known = frozenset(self.problem_ids)
        self._order = EpochOrder(len(self.problem_ids), self.seed, "bank")

    def __len__(self) -> int:
        """The number of entries."""
        return self._size

    @property
    def entries(self) -> Iterator[Entry]:
        """All entries, by problem."""
        return (entry for own in self._modes.values() for entry in own.values())

    # Admission ----------------------------------------------------------------------------------------------------

    def begin(self, stored: Iterable[Rehearsal]) -> Sequence[Entry]:
        """Admit responses that were stored before the first step; returns them as entries."""
        sightings = [self.sight(row.problem_id, [_solution(row)]) for row in stored]
        admission = self.admission(0, sightings)
        begun = {id: {mode: _as_begun(entry) for mode, entry in own.items()} for id, own in admission.changed.items()}
        self.commit(replace(admission, changed=begun))
        return [_as_begun(entry) for entry in admission.admitted]

    def sight(self, problem_id: str, solutions: Sequence[Solution]) -> Sighting:
        """What the responses of one group show: judged ones of one problem, in the order of the group. Changes nothing.
        Raises SettingsError for a plug-in's key that fails."""
        own, counts, rows = self._modes.get(problem_id, {}), Counter[str](), dict[str, Rehearsal]()
        each, unread, unkeyed = list[Rehearsal](), 0, 0
        known = problem_id in self._known
        modes = dict[tuple[int, ...], Mode | None]()  # a group may have the same response many times
        for solution in solutions if known else ():
            if not (solution.correct and solution.finished and solution.response_ids):
                continue
            ids = tuple(solution.response_ids)
            if ids not in modes:
                modes[ids] = self.key.mode(solution)
            mode = modes[ids]
            if mode is None:
                unkeyed += 1
                continue
            unread += not mode.read
            if mode.name == EACH:
                each.append(_row(solution))
                continue
            counts[mode.name] += 1
            if mode.name not in own and mode.name not in rows:
                rows[mode.name] = _row(solution)
        return Sighting(problem_id, counts, rows, each, unread, unkeyed)

    def admission(self, step: int, sightings: Sequence[Sighting]) -> Admission:
        """What a step's groups change, in their order. A problem that already has `capacity` modes loses the one that
        was drawn most often lately, which is in the least danger, or the oldest of these."""
        changed: dict[str, Modes] = {}
        admitted: list[Entry] = []
        for seen in sightings:
            if seen.problem_id not in self._known:
                continue
            if (own := changed.get(seen.problem_id)) is None:
                before = self._modes.get(seen.problem_id, {})
                own = {mode: replace(one, lately=one.lately / 2, visited=step) for mode, one in before.items()}
                changed[seen.problem_id] = own
            for mode, count in seen.counts.items():
                if mode in own:
                    one = own[mode]
                    own[mode] = replace(one, drawn=one.drawn + count, last=step, lately=one.lately + count)
            new = [(mode, row, seen.counts[mode]) for mode, row in seen.rows.items() if mode not in own]
            new += [(f"{step}/{place}", row, 0) for place, row in enumerate(seen.each, len(admitted) + len(new))]
            for mode, row, count in new:
                if len(own) >= self.capacity:
                    del own[_commonest(own)]
                row = _sharing(row, own)
                entry = Entry(row, mode, step, len(admitted), max(1, count), step, float(count), step)
                own[mode] = entry
                admitted.append(entry)
        unread, unkeyed = (sum(getattr(seen, name) for seen in sightings) for name in ("unread", "unkeyed"))
        return Admission(step, admitted, changed, unread, unkeyed)

    def commit(self, admission: Admission) -> None:
        """Change the bank as `admission` says."""
        for problem_id, own in admission.changed.items():
            self._place(problem_id, own)

    def restore(self, entries: Iterable[Entry]) -> None:
        """Fill an empty bank with the entries of an earlier one."""
        own: dict[str, Modes] = {}
        for entry in sorted(entries, key=lambda entry: entry.age):
            modes = own.setdefault(entry.row.problem_id, {})
            modes[entry.mode] = replace(entry, row=_sharing(entry.row, modes))
        for problem_id, modes in own.items():
            self._place(problem_id, modes)

    def _place(self, problem_id: str, own: Modes) -> None:
        self._size += len(own) - len(self._modes.pop(problem_id, {}))
        if own:
            self._modes[problem_id] = own
        again = [one for one in own.values() if one.visited > one.found]
        self._watched[problem_id], self._kept[problem_id] = len(again), sum(one.last == one.visited for one in again)

    # Rehearsal ----------------------------------------------------------------------------------------------------

    def draw(self, cursor: int, count: int) -> tuple[list[Rehearsal], int]:
        """The stored rows of a step, at most `count`, those of one problem together, and the next cursor.

        Problems come in an endless seeded order, one permutation of `problem_ids` for each epoch, without those that
        have no entries. If the order comes round within the step, a problem gives a further mode. The modes of a
        problem are drawn evenly, without repeats. A bank of at most `count` entries gives all of them, at any cursor.
        """
        if self._size <= count:
            return [row for id in sorted(self._modes) for row in _rows(self._modes[id].values())], cursor
        chosen, left, position = Counter[str](), count, cursor
        while left:
            problem_id = self.problem_ids[self._order.item(position)]
            position += 1
            if chosen[problem_id] < len(self._modes.get(problem_id, ())):
                chosen[problem_id] += 1
                left -= 1
        rows: list[Rehearsal] = []
        for problem_id, number in chosen.items():
            if own := self._modes.get(problem_id):
                drawn = list(own)
                if number < len(own):
                    drawn = Random(derive_key(self.seed, "modes", cursor, problem_id)).sample(drawn, number)
                rows += _rows(own[mode] for mode in drawn)
        return rows, position

    def metrics(self, admission: Admission) -> dict[str, float]:
        """The metrics bank/… after a step (docs/reference/metrics.md)."""
        watched = self._watched.total()
        return {
            "bank/problems": float(len(self._modes)),
            "bank/modes": float(self._size),
            "bank/new": float(len(admission.admitted)),
            "bank/unread": float(admission.unread),
            "bank/unkeyed": float(admission.unkeyed),
            **({"bank/retained": self._kept.total() / watched} if watched else {}),
        }


def even_weights(problem_ids: Sequence[str]) -> list[float]:
    """Weights of rows with which their weighted mean is the mean over problems of the mean over a problem's rows:
    R / (P · M_p), for R rows of P problems, M_p of them of the row's problem. Their sum is R, and they are exactly 1 if
    every problem has one row."""
    counts = Counter(problem_ids)
    return [len(problem_ids) / (len(counts) * counts[problem_id]) for problem_id in problem_ids]


def _row(solution: Solution) -> Rehearsal:
    """A response as it is kept: a token and its log-probability take 8 bytes, and have the values that a file has."""
    ids = (array("i", solution.prompt_ids), array("i", solution.response_ids))
    return Rehearsal(*ids, solution.problem_id, array("f", solution.logprobs), solution.text)


def _commonest(own: Modes) -> str:
    """The mode that was drawn most often lately, the oldest of equals."""
    return min(own, key=lambda mode: (-own[mode].lately, own[mode].age))


def _sharing(row: Rehearsal, own: Modes) -> Rehearsal:
    """A row that has its prompt in common with the first entry of its problem."""
    prompt = next((entry.row.prompt_ids for entry in own.values()), None)
    return replace(row, prompt_ids=prompt) if prompt is not None and prompt == row.prompt_ids else row


def _rows(entries: Iterable[Entry]) -> list[Rehearsal]:
    """The rows of entries of one problem, with one list of their prompt's tokens."""
    rows, prompt = [entry.row for entry in entries], list[int]()
    for place, row in enumerate(rows):
        prompt = prompt if prompt == [*row.prompt_ids] else [*row.prompt_ids]
        lists = {"prompt_ids": prompt, "response_ids": [*row.response_ids], "ref_logprobs": [*row.ref_logprobs]}
        rows[place] = replace(row, **lists)
    return rows


def _solution(row: Rehearsal) -> Solution:
    return Solution(row.problem_id, row.prompt_ids, row.response_ids, row.ref_logprobs, row.text, True, True)


def _as_begun(entry: Entry) -> Entry:
    return replace(entry, drawn=0, last=0, lately=0.0, visited=0)
