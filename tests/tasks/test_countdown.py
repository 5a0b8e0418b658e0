"""The task countdown: its solver against brute force, its splits, demonstrations and options."""

from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest

from dph.config import EvalConfig
from dph.config.sampling import SamplingParams
from dph.errors import UserError
from dph.tasks import load_task
from dph.tasks.countdown import Countdown, solve
from dph.types import Completion, Group, Outcome, Rollout
from dph.verifiers import Verifiers
from dph.verifiers.countdown import canonical, numbers, parse, value, write


@pytest.fixture(scope="module")
def task() -> Countdown:
    return Countdown(train_problems=120, dev_problems=40, test_problems=40)


ALL = frozenset(range(1, 100))


def reachable(given: tuple[int, ...], largest: int) -> set[int]:
    """What two or more of the numbers reach by whole positive results up to `largest`, by trying every pair."""
    reached: set[int] = set()

    def combine(left: tuple[Fraction, ...]) -> None:
        for i, j in permutations(range(len(left)), 2):
            rest = tuple(number for k, number in enumerate(left) if k not in (i, j))
            a, b = left[i], left[j]
            for result in (a + b, a - b, a * b, a / b):
                if result.denominator == 1 and 0 < result <= largest:
                    reached.add(int(result))
                    combine((*rest, result))

    combine(tuple(map(Fraction, given)))
    return reached


@pytest.mark.parametrize("given", [(2, 3), (3, 3, 8), (1, 5, 7, 9), (4, 4, 4, 4), (1, 1, 2, 6)])
def test_the_solver_finds_what_brute_force_reaches_and_every_solution_is_right(given: tuple[int, ...]) -> None:
    solved = solve(given, ALL, 99)
    assert solved.keys() == reachable(given, 99)
    for target, solutions in solved.items():
        for form, (size, tree) in solutions.items():
            assert value(tree) == target and canonical(tree) == form
            assert len(numbers(tree)) == size and not Counter(numbers(tree)) - Counter(given)
    assert solve(given, frozenset(range(21)), 99) == {target: ways for target, ways in solved.items() if target <= 20}


def test_solutions_by_hand() -> None:
    assert {write(tree) for _, tree in solve((2, 3), ALL, 99)[6].values()} == {"3*2"}
    found = {write(tree) for _, tree in solve((1, 2, 2), ALL, 99)[4].values()}
    assert found == {"2+2", "2*2", "(2+2)*1", "2*2*1", "2*1+2"}, "x*1 and x/1 are one form"


def test_splits_and_demonstrations_share_no_pair_and_solutions_are_verified(task: Countdown) -> None:
    splits = {split: task.problems(split) for split in ("train", "dev", "test")}
    rows = task.demonstrations(400, seed=1)
    prompts = [{str(p.prompt) for p in problems} for problems in splits.values()] + [{row["prompt"] for row in rows}]
    assert [len(one) for one in prompts[:3]] == [120, 40, 40] and len(set.union(*prompts)) == sum(map(len, prompts))
    by_prompt = {f"{','.join(map(str, p.meta['numbers']))}>{p.answer}:": p for p in splits["train"]}
    assert by_prompt.keys() == prompts[0]
    with Verifiers() as verifiers:
        assert not verifiers.check(splits["train"])
        for problem in splits["train"][:30]:
            solutions = solve(tuple(problem.meta["numbers"]), ALL, 99)[int(problem.answer)]
            texts = [write(tree) for _, tree in solutions.values()]
            assert all(v.outcome is Outcome.CORRECT for v in verifiers.verify([(problem, text) for text in texts]))
            told = verifiers.tell("solutions", [(problem, text) for text in texts])
            assert len(set(told)) == problem.meta["ways"] >= 3
            assert problem.meta["kind"] == f"{min(size for size, _ in solutions.values())} numbers"
    assert Counter(p.meta["kind"] == "2 numbers" for p in splits["dev"])[True] == 14, "35 percent of 40"
    for row in rows:
        given, target = row["prompt"].rstrip(":").split(">")
        tree = parse(row["response"])
        assert tree is not None and value(tree) == int(target)
        assert not Counter(numbers(tree)) - Counter(map(int, given.split(",")))


def test_equal_seeds_give_equal_problems_and_another_seed_others(task: Countdown) -> None:
    again = Countdown(train_problems=120, dev_problems=40, test_problems=40)
    assert again.problems("dev") == task.problems("dev") and again.demonstrations(20, 1) == task.demonstrations(20, 1)
    assert Countdown(seed=1, dev_problems=40).problems("dev") != task.problems("dev")
    assert task.demonstrations(20, 2) != task.demonstrations(20, 1)


def test_every_solution_is_a_style(task: Countdown) -> None:
    problem = task.problems("dev")[0]
    a, b = problem.meta["numbers"][:2]
    assert task.style(problem, f"{a}+{b}") == task.style(problem, f"({b}+{a})") != task.style(problem, f"{a}*{b}")
    assert task.style(problem, "none") == task.style(problem, "77+1") == "other"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_problems": 0}, "test_problems is 0"),
        ({"test_problems": 2000}, "fewer than 2000 problems"),
        ({"nubmers": 3}, "does not take"),
    ],
)
def test_options_out_of_bounds_are_one_sentence(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_task("countdown", **options).problems("test")
    with pytest.raises(UserError, match="no split"):
        Countdown().problems("tests")


def test_a_verifier_that_tells_solutions_has_its_measures(task: Countdown) -> None:
    from dph.measure.metrics import diversity_of

    problem = task.problems("dev")[0]
    texts = [f"{problem.meta['numbers'][0]}*1"] * 2 + ["x"]
    ways = list(solve(tuple(problem.meta["numbers"]), ALL, 99)[int(problem.answer)].values())
    texts += [write(tree) for _, tree in ways[:2]]
    items = [(problem, text) for text in texts]
    with Verifiers() as verifiers:
        assert not verifiers.tell("answers", items)
        told, verdicts = verifiers.tell("solutions", items), verifiers.verify(items)
        rollouts = [
            Rollout(Completion([1], [0.0], "stop"), text, verdict)
            for text, verdict in zip(texts, verdicts, strict=True)
        ]
        params = SamplingParams(n=len(texts), max_tokens=EvalConfig(out="x").rollout.max_tokens)
        found = diversity_of(Group(problem, [1], rollouts), params, solutions=told)
    kinds = len({kind for kind in told if kind is not None})
    assert found["distinct_solutions"] == kinds and found["distinct_solutions_correct"] == 2
