"""The exploration side of a step, with scripted verdicts in place of a model."""

import itertools
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dph.config import DynamicSamplingConfig, OverlongConfig, RolloutConfig, TrainConfig
from dph.config.sampling import SamplingParams
from dph.objective import Advantage, register_advantage
from dph.process.distributed import World
from dph.rehearsal.store import Rehearsal
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, sample_groups
from dph.sampling.seeding import EpochOrder, derive_key
from dph.training.advantages import AdvantageEstimator, overlong_penalty
from dph.training.rollouts import RolloutCollector, is_informative
from dph.training.rows import mix, rehearsal_row
from dph.training.update import count_rows
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict

GOOD, BAD, LOST = Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR
SCRIPT = {
    "p0": (GOOD, BAD, BAD),
    "p1": (GOOD, GOOD, GOOD),
    "p2": (BAD, BAD, BAD),
    "p3": (BAD, GOOD, LOST),
    "p4": (GOOD, LOST, GOOD),
    "p5": (BAD, BAD, GOOD),
    "p6": (LOST, LOST, LOST),
}
USEFUL = {"p0", "p3", "p5"}


class Script(Sampler):
    """Policy, sampler and verifier in one: the i-th response to a problem gets the i-th outcome of its script."""

    def __init__(self, script=SCRIPT):
        self.script, self.drawn = script, []

    def sample(self, prompts, params, keys):
        self.drawn += keys
        return [[Completion([i], [-1.0], "stop") for i in range(params.n)] for _ in prompts]

    def decode(self, token_ids):
        return str(token_ids[0])

    def verify(self, items):
        outcomes = [self.script[problem.id][int(text)] for problem, text in items]
        return [Verdict(outcome, float(outcome is GOOD)) for outcome in outcomes]


def collector(prompts, script=SCRIPT, world=None, attempts=0, seed=0):
    rollout, dynamic = RolloutConfig(prompts=prompts, n=3), DynamicSamplingConfig(attempts > 0, max(1, attempts))
    fake: Any = Script(script)
    items = [Prompted(Problem(name, "", "", "exact"), [1]) for name in script]
    made = RolloutCollector(fake, fake, fake, items, rollout, dynamic, seed, world or World())
    return made, fake


def names(drawn):
    return [group.problem.id for group in drawn.groups]


def order(seed, start, count, script=SCRIPT):
    return [list(script)[i] for i in EpochOrder(len(script), seed, "explore").take(start, count)]


@pytest.mark.parametrize("cursor", [0, 3, 5, 20])
def test_without_refilling_the_next_prompts_are_drawn_whatever_comes(cursor):
    drawn = collector(5)[0].draw(cursor)
    assert names(drawn) == order(0, cursor, 5)
    assert (drawn.total, drawn.attempted, drawn.cursor, drawn.places) == (5, 5, cursor + 5, [0, 1, 2, 3, 4])


def by_hand(seed, cursor, wanted, attempts, script=SCRIPT, useful=USEFUL):
    """DAPO's refill: each round draws as many as are missing; how many prompts that takes is counted here."""
    kept, position = [], cursor
    for _ in range(attempts):
        drawn = order(seed, position, wanted - len(kept), script)
        position += len(drawn)
        kept += [name for name in drawn if name in useful]
        if len(kept) == wanted:
            break
    return kept, position


@given(st.integers(0, 30), st.integers(0, 40), st.integers(1, 9), st.integers(1, 6))
def test_refilling_replaces_constant_groups_and_counts_what_it_drew(seed, cursor, wanted, attempts):
    source, _ = collector(wanted, attempts=attempts, seed=seed)
    drawn = source.draw(cursor)
    kept, position = by_hand(seed, cursor, wanted, attempts)
    assert names(drawn) == kept and drawn.cursor == position
    assert (drawn.total, drawn.attempted, drawn.places) == (len(kept), position - cursor, list(range(len(kept))))


def test_attempts_are_bounded_where_nothing_is_useful():
    drawn = collector(2, {"p1": SCRIPT["p1"], "p2": SCRIPT["p2"]}, attempts=3)[0].draw(0)
    assert (drawn.groups, drawn.total, drawn.attempted, drawn.cursor) == ([], 0, 6, 6)


def test_the_key_of_a_prompt_holds_its_position_so_no_two_draws_are_alike():
    source, fake = collector(7, seed=4)
    source.draw(0)
    source.draw(7)
    assert fake.drawn == [derive_key(4, "train", p, name) for p, name in enumerate(order(4, 0, 14))]
    assert len(set(fake.drawn)) == 14


class Together:
    """World of several threads: gather waits for all of them."""

    def __init__(self, rank, size, shared):
        self.rank, self.size, self.shared = rank, size, shared

    def share(self, count):
        return range(self.rank, count, self.size)

    def together(self, action):
        return action()

    def gather(self, value):
        self.shared["values"][self.rank] = value
        self.shared["barrier"].wait(10)
        values = [self.shared["values"][rank] for rank in range(self.size)]
        self.shared["barrier"].wait(10)
        return values


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("attempts", [0, 4])
def test_processes_together_draw_what_one_draws(size, attempts):
    shared = {"values": {}, "barrier": threading.Barrier(size)}
    alone = collector(4, attempts=attempts, seed=1)[0].draw(2)
    found = {}

    def work(rank):
        found[rank] = collector(4, attempts=attempts, seed=1, world=Together(rank, size, shared))[0].draw(2)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for drawn in found.values():
        assert (drawn.total, drawn.attempted, drawn.cursor) == (alone.total, alone.attempted, alone.cursor)
    placed = {place: name for drawn in found.values() for place, name in zip(drawn.places, names(drawn), strict=True)}
    assert [placed[place] for place in sorted(placed)] == names(alone) and sorted(placed) == alone.places


# Groups -------------------------------------------------------------------------------------------------------------


def group(outcomes, rewards=None, lengths=None, reasons: Any = None):
    count = len(outcomes)
    rewards = rewards or [float(outcome is GOOD) for outcome in outcomes]
    lengths, reasons = lengths or [1] * count, reasons or ["stop"] * count
    rollouts = [
        Rollout(Completion(list(range(n)), [-0.5] * n, finish), "", Verdict(outcome, reward))
        for outcome, reward, n, finish in zip(outcomes, rewards, lengths, reasons, strict=True)
    ]
    return Group(Problem("p", "", "", "exact"), [7, 8], rollouts)


def test_a_group_is_informative_by_correctness_alone():
    assert is_informative(group([GOOD, BAD]))
    assert not is_informative(group([GOOD, GOOD], rewards=[1.0, 0.2]))  # rewards differ, by shaping
    assert not is_informative(group([BAD, Outcome.NO_ANSWER, Outcome.ERROR, Outcome.TIMEOUT], rewards=[0.1, 0, 0, 0]))
    assert is_informative(group([GOOD, BAD], rewards=[0.5, 0.5]))
    assert not is_informative(group([GOOD, LOST, Outcome.GOLD_ERROR]))
    assert not is_informative(group([LOST, LOST]))


def test_overlong_penalty_by_hand():
    config = OverlongConfig(buffer=4, penalty=0.5)
    # max 10, zone 7 … 10: the excess over 6 in quarters, times 0.5
    expected = {1: 0, 6: 0, 7: -0.125, 8: -0.25, 9: -0.375, 10: -0.5, 11: -0.5, 99: -0.5}
    assert {length: overlong_penalty(length, 10, config) for length in expected} == expected
    assert overlong_penalty(10, 10, OverlongConfig()) == 0


def group_rows(one, config):
    rollout = config.rollout
    estimator = AdvantageEstimator(
        Advantage(), config.overlong, rollout.max_tokens, rollout.mask_truncated, lambda *_: None
    )
    return [row for row in estimator.rows([one])[0] if row is not None]


def test_advantages_of_a_group_by_hand():
    config = TrainConfig(rollout=RolloutConfig(max_tokens=4), overlong=OverlongConfig(buffer=2, penalty=1.0))
    rows = group_rows(group([GOOD, BAD, GOOD], lengths=[2, 2, 3]), config)
    # rewards 1, 0, 1 − ½: mean ½, unbiased variance (¼ + 0 + ¼·… ) = ((½)² + (½)² + 0²)/2 = ¼, std ½
    assert [row.advantage for row in rows] == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)  # eps 1e-6 in the divisor
    assert [(row.prompt_ids, len(row.response_ids), len(row.old_logprobs)) for row in rows] == [
        ([7, 8], n, n) for n in (2, 2, 3)
    ]
    assert not any(row.is_rehearsal or row.ref_logprobs for row in rows) and all(row.weight == 1 for row in rows)


def test_rows_whose_judging_failed_leave_the_group():
    with_lost = group_rows(group([GOOD, LOST, BAD, Outcome.GOLD_ERROR], rewards=[1, 0, 0, 0]), TrainConfig())
    without = group_rows(group([GOOD, BAD]), TrainConfig())
    assert (
        [row.advantage for row in with_lost]
        == [row.advantage for row in without]
        == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)
    )
    assert group_rows(group([LOST, LOST]), TrainConfig()) == []
    assert [row.advantage for row in group_rows(group([LOST, GOOD]), TrainConfig())] == [0.0]


def test_masking_truncated_responses_leaves_the_advantages_of_others():
    outcomes, reasons = [GOOD, BAD, BAD], ["stop", "length", "stop"]
    every = group_rows(group(outcomes, reasons=reasons), TrainConfig())
    masked = group_rows(group(outcomes, reasons=reasons), TrainConfig(rollout=RolloutConfig(mask_truncated=True)))
    assert [row.advantage for row in masked] == [every[0].advantage, every[2].advantage]


@register_advantage("test_of_tokens")
def _of_tokens(view):
    """For each token, the negative log-probability that the view has of it."""
    longest = max(map(len, view.old_logprobs))
    return torch.stack([torch.nn.functional.pad(-values, (0, longest - len(values))) for values in view.old_logprobs])


def test_advantages_and_penalties_see_what_the_policy_wrote():
    """A tool wrote tokens 2 and 3 of the second response: its length is 3, and its row has no advantage there."""
    written = [True, False, False, True, True]
    logprobs = [-0.5, 0.0, 0.0, -1.0, -2.0]
    plain = Rollout(Completion([5, 6, 7], [-0.5, -1.0, -2.0], "stop"), "", Verdict(GOOD, 1.0))
    called = Rollout(Completion([5, 8, 8, 6, 7], logprobs, "stop", written), "", Verdict(GOOD, 1.0), "long")
    both = Group(Problem("p", "", "", "exact"), [7, 8], [plain, called])

    def rows_by(name):
        overlong = OverlongConfig(buffer=2, penalty=1.0)  # from 2 of 4 tokens on
        estimator = AdvantageEstimator(Advantage(name), overlong, 4, False, lambda *_: None)
        return [row for row in estimator.rows([both])[0] if row is not None]

    equal = rows_by("group")
    assert [row.advantage for row in equal] == [0.0, 0.0]  # equal rewards after equal penalties
    assert [row.written for row in equal] == [None, written] and [row.counted for row in equal] == [3, 3]
    by_token = rows_by("test_of_tokens")
    assert by_token[0].advantage == [0.5, 1.0, 2.0] and by_token[1].advantage == [0.5, 0.0, 0.0, 1.0, 2.0]
    assert by_token[0].mean_advantage == by_token[1].mean_advantage == pytest.approx(3.5 / 3)
    stored = Rehearsal.drawn(both, called)
    assert rehearsal_row(stored).written == written and count_rows([rehearsal_row(stored)]).pef_tokens == 3


@given(groups=st.integers(0, 9), stored=st.integers(0, 9), parts=st.integers(1, 4), size=st.integers(1, 3))
def test_mixing_loses_nothing_and_spreads_both_sets_evenly(groups, stored, parts, size):
    kept = [Rehearsal([1], [2], f"{index}", [-float(index)], "") for index in range(stored)]
    found = [[] for _ in range(parts)]
    for rank in range(size):
        places = list(range(rank, groups, size))
        rows = [group_rows(group([GOOD, BAD]), TrainConfig()) for _ in places]
        for whole, its in zip(found, mix(rows, places, groups, kept, parts, World(rank, size)), strict=True):
            whole += [row for same_prompt in its for row in same_prompt]
    exp = [sum(not row.is_rehearsal for row in part) for part in found]
    pef = [sum(row.is_rehearsal for row in part) for part in found]
    assert sum(exp) == 2 * groups and max(exp) - min(exp) <= 2
    assert sum(pef) == stored and max(pef) - min(pef) <= 1
    rehearsed = [row for part in found for row in part if row.is_rehearsal]
    assert sorted(rehearsed, key=str) == sorted(map(rehearsal_row, kept), key=str)


# Judging while sampling ---------------------------------------------------------------------------------------------


class Streaming(Script):
    """Hands out the prompts backwards, and after the first one waits until that one has been judged."""

    def __init__(self):
        super().__init__()
        self.judged, self.batches = threading.Event(), []

    def stream(self, prompts, params, keys):
        groups = self.sample(prompts, params, keys)
        yield len(prompts) - 1, groups[-1]
        assert self.judged.wait(20), "nothing was judged while others were being sampled"
        yield from reversed(list(enumerate(groups[:-1])))

    def verify(self, items):
        self.batches.append([problem.id for problem, _ in items])
        verdicts = super().verify(items)
        self.judged.set()
        return verdicts


def groups_of(fake):
    items = [Prompted(Problem(name, "", "", "exact"), [1], draw) for draw, name in enumerate(SCRIPT)]
    return sample_groups(fake, fake, fake, items, SamplingParams(3), 5, "test")


def test_responses_are_judged_while_others_are_sampled_and_come_back_in_order():
    fake = Streaming()
    assert groups_of(fake) == groups_of(Script())
    assert fake.batches[0] == ["p6"] * 3 and sorted(itertools.chain(*fake.batches)) == sorted([*SCRIPT] * 3)


@pytest.mark.parametrize("broken", ["verify", "sample"])
def test_what_fails_in_judging_or_sampling_fails_in_the_caller(broken, monkeypatch):
    def fail(*_):
        raise OSError("no disk")

    fake = Script()
    monkeypatch.setattr(fake, broken, fail)
    with pytest.raises(OSError, match="no disk"):
        groups_of(fake)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dph-judging")]
