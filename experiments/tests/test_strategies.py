"""Experiment D2: the world against its rules, arms against the protocol, and effects that are known beforehand."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from dph.cli.main import parse
from dph.errors import UserError
from dph.tasks.countdown import Countdown, solve
from dph.types import Outcome, Problem
from dph.verifiers.countdown import parse as parse_expression
from experiments.anchor.counts import Evaluated
from experiments.anchor.design import arm_jobs
from experiments.strategies.design import COMMONS, STARTS, arms, complete, options, primary, tables
from experiments.strategies.run import run
from experiments.strategies.task import (
    DIALECTS,
    STRATEGIES,
    CountdownStrategies,
    StrategiesVerifier,
    by_strategies,
    names_of,
    strategy_of,
)


def strategy(text: str) -> str:
    tree = parse_expression(text)
    assert tree is not None
    return strategy_of(tree)


def test_a_strategy_is_the_last_operation_or_two_numbers() -> None:
    texts = {"8*3-9": "-", "(9-3)*4": "*", "9-3*2": "-", "3*2+9": "+", "(9+3)/4": "/", "9-4": "two", "3*5": "two"}
    assert {text: strategy(text) for text in texts} == texts


def test_no_two_dialects_share_a_name() -> None:
    names = [name for dialect in range(DIALECTS + 1) for name in names_of(dialect)]
    assert len(set(names)) == len(names) == 5 * (DIALECTS + 1) and all(name.isalpha() for name in names)


def small(common: float) -> CountdownStrategies:
    return CountdownStrategies(seed=3, train_problems=200, test_problems=60, dev_problems=20, common=common)


def test_only_the_dialects_change_with_the_share() -> None:
    plain = Countdown(seed=3, train_problems=200, test_problems=60, dev_problems=20).problems("train")
    worlds = {common: small(common).problems("train") for common in (0.0, 0.5, 1.0)}
    for found in worlds.values():
        assert [(p.id, p.answer, p.meta["numbers"]) for p in found] == [
            (p.id, p.answer, p.meta["numbers"]) for p in plain
        ]
    shares = {c: sum(p.meta["dialect"] == 0 for p in found) / 200 for c, found in worlds.items()}
    assert shares[0.0] == 0 and shares[1.0] == 1 and 0.4 < shares[0.5] < 0.6
    half, none = worlds[0.5], worlds[0.0]
    assert all(a.meta["dialect"] in (0, b.meta["dialect"]) for a, b in zip(half, none, strict=True))
    assert len({p.meta["dialect"] for p in none}) > 30
    rows = [small(common).demonstrations(200, 1) for common in (0.0, 1.0)]
    assert [r["response"].partition(" ")[2] for r in rows[0]] == [r["response"].partition(" ")[2] for r in rows[1]]


def test_demonstrations_are_right_and_show_every_strategy_of_a_problem_equally_often() -> None:
    world, verifier = small(0.5), StrategiesVerifier()
    problem = world.problems("test")[0]
    for row in world.demonstrations(300, 1):
        mark, text = row["prompt"].split(" ")
        numbers, target = text.rstrip(":").split(">")
        dialect = next(d for d in range(DIALECTS + 1) if row["response"].split(" ")[0] in names_of(d))
        meta = {"numbers": list(map(int, numbers.split(","))), "dialect": dialect}
        [verdict] = verifier.verify([(Problem("d", "", target, problem.verifier, meta), row["response"])])
        assert verdict.outcome == Outcome.CORRECT, (row, verdict)
        assert mark.startswith("P")
    drawn = Counter(strategy(row["response"].partition(" ")[2]) for row in world.demonstrations(3000, 2))
    assert set(drawn) == set(STRATEGIES) and min(drawn.values()) > 200


def test_a_response_must_name_its_strategy_in_the_dialect_of_its_problem() -> None:
    problem = Problem("p", "", "15", "countdown_strategies", {"numbers": [3, 4, 8, 9], "dialect": 2})
    names, others = names_of(2), names_of(0)
    minus, plus = names[STRATEGIES.index("-")], names[STRATEGIES.index("+")]
    cases = {
        f"{minus} 8*3-9": Outcome.CORRECT,
        f"{plus} 8*3-9": Outcome.WRONG,  # it is not a sum
        f"{others[STRATEGIES.index('-')]} 8*3-9": Outcome.NO_ANSWER,  # another dialect
        "8*3-9": Outcome.NO_ANSWER,
        f"{minus} 8*3-4": Outcome.WRONG,
        f"{minus} ": Outcome.NO_ANSWER,
    }
    found = StrategiesVerifier().verify([(problem, text) for text in cases])
    assert [verdict.outcome for verdict in found] == list(cases.values())
    assert all(verdict.reward == (verdict.outcome == Outcome.CORRECT) for verdict in found)
    assert StrategiesVerifier().solutions([(problem, f"{minus} 8*3-9"), (problem, f"{minus} 3*8-9")])[0] is not None
    same = StrategiesVerifier().solutions([(problem, f"{minus} 8*3-9"), (problem, f"{minus} 3*8-9")])
    assert same[0] == same[1], "one solution, written in two ways"
    with pytest.raises(UserError, match="between 0 and 1"):
        small(1.5)


def test_every_solution_has_one_strategy() -> None:
    solutions = solve((3, 4, 8, 9), frozenset({15}), 99)[15]
    found = by_strategies(solutions)
    assert sum(map(len, found.values())) == len(solutions) and set(found) <= set(STRATEGIES)


def test_arms_are_the_protocols() -> None:
    settings = {}
    for arm in arms():
        job = next(iter(arm_jobs(91, Path("out"), arm, {}, options=options("0.5"))))
        settings[arm.name] = parse(job.arguments[0], job.arguments[1:])[0]
    assert list(settings) == ["g", "x", "xr", "k"]
    for name, own in settings.items():
        assert own.task.name == "countdown_strategies" and own.task.options == {"seed": "91", "common": "0.5"}
        assert (own.steps, own.rollout.prompts, own.rollout.n, own.optim.lr) == (125, 8, 16, 1e-4)
        assert own.prompt_set == ("explore" if name.startswith("x") else "all") and own.loss.clip_high == 0.28
        assert (own.rehearsal.rows, own.loss.kl_coef) == (64 if name == "xr" else 0, 0.1 if name == "k" else 0.0)
    assert (settings["xr"].loss.divergence, settings["xr"].loss.eta) == ("js", 3.0)


def evaluated(*correct: int) -> Evaluated:
    return Evaluated(
        [(64, c) for c in correct], [[c] for c in correct], [""] * len(correct), 0, [c > 32 for c in correct]
    )


def faked(gain: Mapping[str, int]) -> dict[tuple[int, str], dict[str, Evaluated]]:
    plain = evaluated(40, 8, 0)
    return {
        (seed, share): {
            "base": plain,
            "g": plain,
            "x": plain,
            "k": plain,
            "xr": evaluated(40, 8 + seed % 2, gain[share]),
        }
        for seed in STARTS
        for share in COMMONS
    }


def test_the_primary_comparison_is_the_growth_of_transfer() -> None:
    grows = primary(faked({"0": 0, "0.5": 2, "1": 6}))
    assert grows is not None and grows.low > 0 and grows.starts == len(STARTS)
    flat = primary(faked({"0": 4, "0.5": 4, "1": 4}))
    assert flat is not None and flat.estimate == pytest.approx(0, abs=1e-12)
    rows = list(tables(faked({"0": 0, "0.5": 2, "1": 6})))
    assert rows[2].endswith("| holds |") and sum(row.startswith("| XR − X |") for row in rows) == 3
    assert list(tables(faked({"0": 4, "0.5": 4, "1": 4})))[2].endswith("| does not hold |")
    some = {key: start for key, start in faked({"0": 0, "0.5": 2, "1": 6}).items() if key != (91, "1")}
    assert complete(some) == list(STARTS[1:]) and not set(STARTS) & {
        *range(21, 33),
        *range(41, 49),
        *range(51, 54),
        *range(61, 77),
    }


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no counts of these starts"):
        run(["--report-only", "--counts", str(tmp_path / "none.parquet")])
