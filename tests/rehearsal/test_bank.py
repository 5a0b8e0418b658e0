"""The bank: admission and capacity against a plain model of them, what a step draws, weights, and keys."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bank_support import FORMS, PROBLEMS, admit, bank, held, solution
from dph.config import LossConfig
from dph.errors import SettingsError
from dph.measure.metrics import answer_of
from dph.objective import Objective
from dph.objective.objective import LossCounts
from dph.process.distributed import World
from dph.rehearsal.bank import Bank, even_weights
from dph.rehearsal.modes import BankKey, Forms, Mode, register_bank_key
from dph.rehearsal.store import Rehearsal
from dph.training.rows import Row, collate, mix
from dph.training.update import count_rows
from dph.types import Problem

# Admission -----------------------------------------------------------------------------------------------------------


def test_one_exemplar_of_each_mode_is_kept_and_its_draws_are_counted():
    store = bank()
    first = admit(store, 1, [("a", ["x 1", "x 2", "y 1"]), ("b", [])])
    assert [(e.row.text, e.mode, e.found, e.number, e.drawn, e.last, e.lately) for e in first.admitted] == [
        ("x 1", "x", 1, 0, 2, 1, 2.0),
        ("y 1", "y", 1, 1, 1, 1, 1.0),
    ]
    assert store.metrics(first) == {
        "bank/problems": 1, "bank/modes": 2, "bank/new": 2, "bank/unread": 0, "bank/unkeyed": 0,
    }  # fmt: skip
    second = admit(store, 4, [("a", ["x 3"])])
    assert [(e.mode, e.drawn, e.last, e.lately, e.visited) for e in store.entries] == [
        ("x", 3, 4, 2.0, 4),  # 2/2 + 1
        ("y", 1, 1, 0.5, 4),
    ]
    assert not second.admitted and store.metrics(second)["bank/retained"] == 0.5
    row = next(iter(store.entries)).row
    assert (list(row.prompt_ids), list(row.response_ids), row.text) == ([1, ord("a")], [120, 32, 49], "x 1")
    assert list(row.ref_logprobs) == [-0.5, -0.625, -0.75]  # log π of the policy that drew it


def test_only_correct_finished_responses_to_known_problems_are_admitted():
    store = bank()
    seen = store.sight("a", [solution("a", "x", correct=False), solution("a", "y", finished=False)])
    other = store.sight("unknown", [solution("z", "x")])
    store.commit(store.admission(1, [seen, other]))
    assert len(store) == 0 and not seen.rows and not other.counts


def test_a_full_problem_loses_the_mode_that_was_drawn_most_often_lately():
    store = bank(capacity=3)
    admit(store, 1, [("a", ["x", "y", "y", "z"])])  # lately: x 1, y 2, z 1
    admit(store, 2, [("a", ["x", "x", "z"])])  # x ½ + 2, y 1, z ½ + 1
    admit(store, 3, [("a", ["w"])])  # x 1¼, y ½, z ¾: x gives way
    assert sorted(e.mode for e in store.entries) == ["w", "y", "z"]
    admit(store, 4, [("b", ["w"])])  # another problem has its own room
    assert len(store) == 4
    # at a visit without any: y ⅛, z 3⁄16, w ¼ … and of equals the oldest gives way
    store = bank(capacity=2)
    admit(store, 1, [("a", ["x", "y"])])
    admit(store, 2, [("a", ["z"])])
    assert [e.mode for e in store.entries] == ["y", "z"]


class Plain:
    """Admission written out: a list of dictionaries, and every rule in the words of the documentation."""

    def __init__(self, capacity):
        self.capacity, self.entries = capacity, []

    def step(self, number, groups):
        """groups: the problem of each, and its modes in order."""
        at_start = {(e["problem"], e["mode"]) for e in self.entries}
        for problem in {problem for problem, _ in groups}:
            for e in self.entries:
                if e["problem"] == problem:
                    e["lately"] /= 2
        new = 0
        for problem, modes in groups:
            own = {e["mode"]: e for e in self.entries if e["problem"] == problem}
            for mode in modes:
                if mode in own:
                    own[mode]["drawn"] += 1
                    own[mode]["lately"] += 1
                    own[mode]["last"] = number
            for mode in dict.fromkeys(modes):
                if mode in own or (problem, mode) in at_start:
                    continue
                there = [e for e in self.entries if e["problem"] == problem]
                if len(there) == self.capacity:
                    most = max(e["lately"] for e in there)
                    self.entries.remove(min((e for e in there if e["lately"] == most), key=lambda e: e["place"]))
                count = modes.count(mode)
                entry = {"problem": problem, "mode": mode, "drawn": count, "lately": float(count), "last": number}
                self.entries.append(entry | {"place": (number, new)})
                new += 1


STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("uvwxyz"), max_size=6)), max_size=4), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_admission_is_that_of_a_plain_model_in_any_number_of_processes(steps, capacity, processes):
    stores, plain = [bank(capacity=capacity) for _ in range(processes)], Plain(capacity)
    for number, groups in enumerate(steps, 1):
        before = held(stores[0])
        parts = [
            [
                (place, store.sight(problem, [solution(problem, mode) for mode in modes]))
                for place, (problem, modes) in enumerate(groups)
                if place % processes == rank
            ]
            for rank, store in enumerate(stores)
        ]
        gathered = [seen for _, seen in sorted(itertools.chain(*parts), key=lambda pair: pair[0])]
        admissions = [store.admission(number, gathered) for store in stores]
        assert held(stores[0]) == before  # nothing has changed yet
        for store, admission in zip(stores, admissions, strict=True):
            store.commit(admission)
        plain.step(number, groups)
    for store in stores:
        assert held(store) == held(stores[0])
        names = ("mode", "drawn", "lately", "last")
        found = {(e.row.problem_id, e.age): tuple(getattr(e, name) for name in names) for e in store.entries}
        assert found == {(e["problem"], e["place"]): tuple(e[name] for name in names) for e in plain.entries}
        counts = Counter(e.row.problem_id for e in store.entries)
        assert len(store) == counts.total() and all(count <= capacity for count in counts.values())
        again = [e for e in store.entries if e.visited > e.found]
        share = store.metrics(store.admission(99, [])).get("bank/retained")
        assert share == (sum(e.last == e.visited for e in again) / len(again) if again else None)


def test_a_bank_begins_with_stored_responses():
    store = bank(capacity=2)
    rows = [Rehearsal([1], [2, 3], problem, [-0.25, -0.5], text) for problem, text in ("ax", "ay", "ax", "bz", "aw")]
    begun = store.begin(rows)
    assert [(e.row.problem_id, e.mode, e.found, e.drawn, e.last, e.lately) for e in begun] == [
        ("a", "x", 0, 0, 0, 0.0), ("a", "y", 0, 0, 0, 0.0), ("b", "z", 0, 0, 0, 0.0), ("a", "w", 0, 0, 0, 0.0),
    ]  # fmt: skip
    assert sorted(e.mode for e in store.entries) == ["w", "y", "z"]  # x was stored twice: of three it gives way
    admit(store, 1, [("a", ["y 9"])])
    assert [e.row.text for e in store.entries if e.mode == "y"] == ["y"]  # the first exemplar stays


# What a step draws ---------------------------------------------------------------------------------------------------


def filled(modes, seed=0):
    """A bank whose problem p has modes[p] modes."""
    store = bank(capacity=99, seed=seed)
    admit(store, 1, [(problem, [f"{problem}{i}" for i in range(count)]) for problem, count in modes.items()])
    return store


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({name: st.integers(0, 6) for name in "abcdef"}), st.integers(1, 12), st.integers(0, 40))
def test_a_step_draws_as_many_rows_as_there_are_each_once(modes, count, cursor):
    store = filled(modes)
    rows, after = store.draw(cursor, count)
    assert len(rows) == min(count, sum(modes.values())) == len({row.text for row in rows})
    assert store.draw(cursor, count) == (rows, after)  # it is a function of the bank, the seed and the cursor
    ids = [row.problem_id for row in rows]
    assert [problem for problem, _ in itertools.groupby(ids)] == list(dict.fromkeys(ids))  # those of one stay together
    if sum(modes.values()) <= count:
        assert after == cursor
    else:
        assert after > cursor
        # the order goes round: nobody has two more than another that has modes left, or three over the end of an epoch
        given = {name: ids.count(name) for name in modes if modes[name]}
        for one, other in itertools.permutations(given, 2):
            assert given[other] == modes[other] or given[one] <= given[other] + 2


def test_problems_come_in_an_endless_order_and_modes_evenly():
    """In an epoch every problem with entries once, whatever the sizes of its steps; over many every mode alike."""
    modes = {"a": 4, "b": 1, "d": 3, "f": 5}
    store = filled(modes)
    drawn, cursor, sizes = [], 0, itertools.cycle((1, 3, 2, 2, 4))
    while len(drawn) < 4 * 400:
        rows, cursor = store.draw(cursor, next(sizes))
        drawn += rows
    orders = [tuple(row.problem_id for row in drawn[i : i + 4]) for i in range(0, 4 * 400, 4)]
    assert all(sorted(order) == ["a", "b", "d", "f"] for order in orders) and len(set(orders)) == 24  # 4!
    counts = Counter(row.text for row in drawn)
    for problem, number in modes.items():
        for i in range(number):  # binomial of 400: four standard deviations
            share = 1 / number
            assert abs(counts[f"{problem}{i}"] - 400 * share) <= 4 * (400 * share * (1 - share)) ** 0.5 + 1e-9
    assert filled(modes, seed=1).draw(0, 5) != store.draw(0, 5)


def test_a_bank_without_entries_gives_nothing():
    assert bank().draw(7, 5) == ([], 7)


# Weights -------------------------------------------------------------------------------------------------------------


def test_weights_worked_out():
    # P = 2 problems, R = 4 rows: 4/(2·3) for each of the three rows of a, 4/(2·1) for that of b
    assert even_weights(["a", "a", "a", "b"]) == [4 / 6, 4 / 6, 4 / 6, 2.0]
    assert even_weights(["a", "b", "c"]) == [1.0, 1.0, 1.0] and even_weights([]) == []


VOCABULARY = 7
DIVERGENCES = {"forward_kl_raw": lambda x: -x, "forward_kl": lambda x: x.expm1() - x}
DIVERGENCES["js"] = lambda x: x.exp() * x - (x.exp() + 1) * ((x.exp() + 1) / 2).log()


def rows_of_a_step():
    """Rollouts, and stored rows of three problems with three, one and two modes, of different lengths."""
    draw = torch.Generator().manual_seed(0)

    def tokens(length):
        return torch.randint(0, VOCABULARY, (length,), generator=draw).tolist()

    def logprobs(length):
        return (-1.5 + 0.4 * torch.randn(length, generator=draw)).tolist()

    rollouts = [
        Row([i], tokens(n), old_logprobs=logprobs(n), advantage=(-1.0) ** i) for i, n in enumerate((3, 2, 4, 1))
    ]
    stored = [
        Rehearsal([ord(problem)], tokens(n), problem, logprobs(n), f"{problem}{n}")
        for problem, n in (("a", 5), ("a", 1), ("a", 3), ("b", 2), ("c", 4), ("c", 1))
    ]
    return rollouts, stored


def scores(parameter, rows):
    """log π_θ of each row's tokens under a softmax of one vector, and 0 where there are none: [B, T]."""
    width = max(len(row.response_ids) for row in rows)
    ids = torch.tensor([[*row.response_ids] + [0] * (width - len(row.response_ids)) for row in rows])
    return parameter.log_softmax(-1)[ids]


def written_out(parameter, rollouts, stored, config):
    """The loss as the documentation has it: the mean over problems of the mean over modes."""
    f, logprobs = DIVERGENCES[config.divergence], parameter.log_softmax(-1)

    def row_sum(row, values):
        lengths = {"token": 1, "sequence": len(row.response_ids), "dr_grpo": config.dr_grpo_length}
        return values.sum() / lengths[config.aggregation]

    def size(row):
        return float(len(row.response_ids)) if config.aggregation == "token" else 1.0

    clipped = []
    for row in rollouts:
        ratio = (logprobs[list(row.response_ids)] - torch.tensor(row.old_logprobs)).exp()
        bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
        clipped.append(row_sum(row, -torch.minimum(ratio * row.advantage, bounded * row.advantage)))
    by_problem = {}
    for row in stored:
        pull = f(logprobs[list(row.response_ids)] - torch.tensor(row.ref_logprobs))
        by_problem.setdefault(row.problem_id, []).append((row_sum(row, pull), size(row)))

    def mean(index):
        return sum(sum(pair[index] for pair in of) / len(of) for of in by_problem.values()) / len(by_problem)

    n_exp, policy = sum(map(size, rollouts)), sum(clipped)
    if config.reduction == "per_set":
        return policy / n_exp + config.eta * mean(0) / mean(1)
    total = n_exp + len(stored) * mean(1)
    return policy / total + config.eta * len(stored) * mean(0) / total


CASES = list(itertools.product(("token", "sequence", "dr_grpo"), ("pooled", "per_set"), DIVERGENCES))


@pytest.mark.parametrize(("aggregation", "reduction", "divergence"), CASES)
def test_the_gradient_is_the_written_out_mean_over_problems_of_the_mean_over_modes(aggregation, reduction, divergence):
    """In any cut into micro-batches and with any number of processes."""
    config = LossConfig(
        aggregation=aggregation, reduction=reduction, divergence=divergence, eta=0.7, dr_grpo_length=8, clip_high=0.2
    )
    rollouts, stored = rows_of_a_step()
    parameter = torch.linspace(-1, 1, VOCABULARY, requires_grad=True)
    expected = torch.as_tensor(written_out(parameter, rollouts, stored, config))
    (reference,) = torch.autograd.grad(expected, parameter)
    objective = Objective(config)
    for processes, budget in ((1, 99), (1, 1), (2, 3), (3, 2)):
        worlds = [World(rank, processes) for rank in range(processes)]
        parts = [
            [row for group in mix([[row] for row in rollouts[world.rank :: processes]],
                                  list(range(world.rank, len(rollouts), processes)), len(rollouts), stored, 1, world,
                                  even=True)[0] for row in group]
            for world in worlds
        ]  # fmt: skip
        assert sum(map(len, parts)) == len(rollouts) + len(stored)
        counted = [count_rows(part) for part in parts]
        counts = LossCounts(*(sum(getattr(one, name) for one in counted) for name in LossCounts.__slots__))
        loss = torch.zeros(())
        for part in parts:
            for start in range(0, len(part), budget):
                rows = part[start : start + budget]
                loss = loss + objective(scores(parameter, rows), collate(rows), counts)[0]
        (gradient,) = torch.autograd.grad(loss, parameter)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)  # fp32 sums in another order
        assert float((gradient - reference).abs().max()) <= 1e-5 * float(reference.abs().max())
    batch = collate([row for part in parts for row in part])
    of_batch, of_rows = LossCounts.of(batch), count_rows([row for part in parts for row in part])
    assert astuple_of(of_batch) == pytest.approx(astuple_of(of_rows))


def astuple_of(counts):
    return [getattr(counts, name) for name in LossCounts.__slots__]


def test_each_minibatch_has_weights_of_its_own():
    """Two mini-batches of three rows: a a a | b c c."""
    _, stored = rows_of_a_step()
    first, second = mix([], [], 1, stored, 2, World(), even=True)
    assert [row.weight for group in first for row in group] == [1.0, 1.0, 1.0]
    assert [row.weight for group in second for row in group] == [1.5, 0.75, 0.75]  # 3/(2·1), 3/(2·2)
    plain = mix([], [], 1, stored, 2, World())
    assert {row.weight for groups in plain for group in groups for row in group} == {1.0}
    assert collate(plain[0][0]).row_weights is None


# Keys ----------------------------------------------------------------------------------------------------------------

SQL = Problem("q", "?", "SELECT 1", "sql")


def modes_of(key, texts, problem=PROBLEMS["a"], style=lambda problem, text: None):
    chosen = BankKey(key, Forms({problem.id: problem}, style, answer_of))
    return [chosen.mode(replace(solution("a", text), problem_id=problem.id)) for text in texts]


def test_what_each_key_tells_apart():
    assert modes_of("text", [" 1 +\n2 ", "1 + 2", "2 + 1"]) == [Mode("1 + 2"), Mode("1 + 2"), Mode("2 + 1")]
    assert modes_of("tokens", ["ab", "a b"]) == [Mode("97 98"), Mode("97 32 98")]
    assert modes_of("once", ["x", "y"]) == [Mode("")] * 2
    assert modes_of("answer", ["so\n42", "thus\n42 ", ""]) == [Mode("42"), Mode("42"), None]
    maths = Problem("m", "?", "1/2", "math")
    one, two, three = modes_of("answer", ["\\boxed{\\frac{1}{2}}", "so \\boxed{\\dfrac12}", "\\boxed{3}"], maths)
    assert one == two != three  # whatever the route
    long = modes_of("text", ["x" * 500, "x" * 501, "x" * 500])
    assert long[0] == long[2] != long[1] and long[0] is not None and (long[0].name[0], len(long[0].name)) == ("#", 33)


def test_the_style_of_a_query_is_its_form_or_its_text_which_is_counted():
    queries = ("SELECT a FROM t AS x WHERE x.b = 1 AND c = 2", "select a from t where c=2 and b=1", "SELECT  a FROM")
    fenced = [f"Thus ```sql\n{query}\n```" for query in queries]
    one, two, three = modes_of("style", fenced, SQL)
    assert one == two and one is not None and one.read and three == Mode("SELECT a FROM", read=False)
    store = Bank(BankKey("style", Forms({"q": SQL}, lambda *_: None, answer_of)), 4, 0, ["q"])
    seen = store.sight("q", [replace(solution("q", text), problem_id="q") for text in fenced])
    assert store.admission(1, [seen]).unread == 1 and len(store.admission(1, [seen]).admitted) == 2


def test_with_the_key_every_a_mode_counts_as_often_as_it_is_drawn():
    store = bank("every", capacity=3)
    admit(store, 1, [("a", ["x", "x"]), ("b", ["x"])])
    admit(store, 2, [("a", ["x", "y"])])
    assert [(e.row.problem_id, e.row.text, e.found) for e in store.entries] == [
        ("b", "x", 1), ("a", "x", 1), ("a", "x", 2), ("a", "y", 2),
    ]  # fmt: skip
    assert len({e.mode for e in store.entries if e.row.problem_id == "a"}) == 3


def test_a_key_that_the_task_lacks_is_refused_in_one_sentence():
    none = Forms(PROBLEMS, lambda *_: None, lambda *_: None)
    with pytest.raises(
        SettingsError, match=r"bank\.key is 'style', but the task has no canonical form .*'exact' judges"
    ):
        BankKey("style", none)
    with pytest.raises(SettingsError, match=r"bank\.key is 'answer', but the task has no answers"):
        BankKey("answer", none)
    with pytest.raises(SettingsError, match="no bank key is named 'styl'; perhaps you meant style"):
        BankKey("styl", FORMS)
    BankKey("style", Forms({"q": SQL}, lambda *_: None, answer_of))


def test_a_plug_in_adds_a_key():
    @register_bank_key("test_letters")
    def letters(solution, forms):
        if solution.text == "bad":
            raise ValueError("no letters")
        return 7 if solution.text == "odd" else "".join(sorted(solution.text)) or None

    assert modes_of("test_letters", ["ab", "ba", ""]) == [Mode("ab"), Mode("ab"), None]
    with pytest.raises(SettingsError, match=r"bank key 'test_letters' raised ValueError in line \d+: no letters"):
        modes_of("test_letters", ["bad"])
    with pytest.raises(SettingsError, match="bank key 'test_letters' returned int, not text or None"):
        modes_of("test_letters", ["odd"])
