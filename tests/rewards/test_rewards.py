"""Verifiers as reward functions: batches, event loops, threads, forks, failures, and answers that never end."""

import asyncio
import gc
import multiprocessing
import os
import pickle
import threading
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from dph.errors import UserError
from dph.rewards import RewardFunction, reward_function
from dph.rewards.verl import compute_score
from dph.types import Outcome, Problem, Verdict
from dph.verifiers import register_verifier

TIMEOUT = 2.0
PATIENCE = 30.0
NEVER_ENDS = [  # reported to math-verify by users of trainers: its own time limit does not stop these
    r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}}",
    r"\boxed{10^{10^{10^{10}}}+1}",
    r"\boxed{(x+1)^{99999999}}",
]


@register_verifier("unjudged")
class Failing:
    """Fails as the response says."""

    def __init__(self, *, workers: int = 1) -> None:
        self.workers = workers

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        if any(response == "no memory" for _, response in items):
            raise OSError("Cannot allocate memory")
        return [Verdict(Outcome(response), float(response == "correct")) for _, response in items]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        return {}

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def judge():
    made = reward_function("math", policy="math_verify", timeout=TIMEOUT)
    yield made
    made.close()


def test_a_batch_as_trl_asks(judge: RewardFunction):
    conversation = [{"role": "assistant", "content": r"So \boxed{2x}."}]
    rewards = judge(
        prompts=["?"] * 4,
        completions=[r"\boxed{4}", conversation, "4", r"\boxed{5}"],
        completion_ids=[[1]] * 4,
        answer=["4", "x+x", "4", ["4", "5"]],
        trainer_state=object(),
        log_metric=print,
    )
    assert rewards == [1.0, 1.0, 0.0, 1.0]
    assert judge.__name__ == "math"


def test_columns_reach_the_verifier_and_names_are_checked(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def score(prompt, completion, answer, weight, **_):\n    return weight * (prompt + completion == answer)\n"
    )
    judge = reward_function("function", function=f"{file}:score", answer_column="solution")
    batch = {"prompts": ["a", "b"], "completions": ["1", "2"], "weight": [0.5, 0.25], "state": [1, 2, 3]}
    assert judge(**batch, solution=["a1", "b2"]) == [0.5, 0.25]
    assert judge.score("x", "x", weight=2.0) == 2.0
    with pytest.raises(UserError, match=r"needs a column 'solution'.*answer_column"):
        judge(**batch)
    judge.close()
    with pytest.raises(UserError, match=r"has no option 'polcy'; it has: .*policy"):
        reward_function("math", polcy="typed")
    with pytest.raises(UserError, match="no math policy is named 'lax'"):
        reward_function("math", policy="lax")
    with pytest.raises(UserError, match="maths"):
        reward_function("maths")


@pytest.mark.parametrize("response", ["infra_error", "gold_error", "no memory"])
def test_a_failed_judgement_has_no_reward(response: str, caplog: pytest.LogCaptureFixture):
    judge = reward_function("unjudged", workers=len(response))
    assert judge.score(response, "4") is None
    assert asyncio.run(judge.ascore(response, "4")) is None
    assert judge(completions=[response], answer=["4"]) == [None]
    if response != "no memory":
        assert judge(completions=["correct", response, "timeout"], answer=["4"] * 3) == [1.0, None, 0.0]
    assert len([message for message in caplog.messages if "not judged" in message]) == 1
    info = asyncio.run(compute_score("toy", response, "4", {}, kind="unjudged", workers=len(response)))
    assert (info["score"], info["acc"], info["scored"]) == (0.0, 0.0, 0.0)
    judged = asyncio.run(compute_score("toy", "correct", "4", {}, kind="unjudged", workers=len(response)))
    assert judged == {"score": 1.0, "acc": 1.0, "scored": 1.0, "outcome": "correct"} and set(judged) == set(info)


def test_an_expression_copied_from_the_question_is_wrong_where_the_question_is_known():
    judge = reward_function("math", timeout=PATIENCE)
    response, gold, question = r"\boxed{(x+1)^2 - x^2}", "2x+1", "Simplify $(x+1)^2 - x^2$."
    assert judge.score(response, gold) == 1.0 and judge.score(response, gold, question) == 0.0
    assert judge.score(r"\boxed{2x+1}", gold, [{"role": "user", "content": question}]) == 1.0
    for extra, score in (({"question": question}, 0.0), ({}, 1.0), (None, 1.0)):
        assert asyncio.run(compute_score("toy", response, gold, extra, timeout=PATIENCE))["score"] == score
    judge.close()


def test_a_worker_that_something_ends_gives_no_reward(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\ndef score(prompt, completion, **_):\n    return os.kill(os.getpid(), 9) or float(completion)\n"
    )
    judge = reward_function("function", function=f"{file}:score", workers=1)
    assert judge(completions=["1"], answer=["1"]) == [None]
    judge.close()


def test_an_answer_without_a_usable_gold_has_no_reward(judge: RewardFunction):
    assert judge(completions=[r"\boxed{1}"] * 3, answer=["1", None, float("nan")]) == [1.0, None, None]


@pytest.mark.parametrize("response", NEVER_ENDS)
def test_an_answer_that_never_ends_costs_its_time_limit(judge: RewardFunction, response: str):
    started = time.monotonic()
    assert judge.verdict(response, "x+4").outcome in (Outcome.TIMEOUT, Outcome.ERROR, Outcome.WRONG)
    assert time.monotonic() - started < PATIENCE
    assert judge.score(r"\boxed{4+x}", "x+4") == 1.0


def test_limits_hold_in_threads_and_in_event_loops(judge: RewardFunction):
    """Signals, by which math-verify limits the time, work in the main thread only: there it scores 0, or hangs."""
    started = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        jobs = [(NEVER_ENDS[0], f"y+{n}") for n in range(2)] + [(rf"\boxed{{{n}+x}}", f"x+{n}") for n in range(20)]
        found = list(threads.map(lambda job: judge.score(*job), jobs))
    assert found == [0.0] * 2 + [1.0] * 20

    async def loop() -> tuple[list[float | None], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.02)
                ticks += 1

        clock = asyncio.ensure_future(tick())
        jobs = [(NEVER_ENDS[0], f"z+{n}") for n in range(2)] + [(rf"\boxed{{{n}+w}}", f"w+{n}") for n in range(20)]
        rewards = await asyncio.gather(*(judge.ascore(*job) for job in jobs))
        clock.cancel()
        return list(rewards), ticks

    rewards, ticks = asyncio.run(loop())
    assert rewards == [0.0] * 2 + [1.0] * 20
    assert ticks > 20  # the loop went on while comparisons were stopped
    assert time.monotonic() - started < 4 * PATIENCE


def test_equal_options_share_one_pool():
    made = [reward_function("math", policy="math_verify", timeout=4.0, workers=2) for _ in range(3)]
    made.append(pickle.loads(pickle.dumps(made[0])))
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda n: made[n % 4].score(rf"\boxed{{{n}+x}}", f"x+{n}"), range(40)))
    workers = {tuple(sorted(one.workers())) for one in made}
    assert len(workers) == 1 and len(*workers) == 2
    other = reward_function("math", policy="math_verify", timeout=4.5, workers=1)
    assert other.score(r"\boxed{y+1}", "1+y") == 1.0
    [pid] = other.workers()
    assert pid not in next(iter(workers))
    made[0].close()
    assert made[1].workers() == []
    assert made[1].score(r"\boxed{x+50}", "50+x") == 1.0  # a closed pool starts again
    made[0].close()
    other.close()


class Constant:
    def __init__(self, reward: float) -> None:
        self.reward = reward

    def __repr__(self) -> str:
        return "Constant()"

    def __call__(self, prompt: object, completion: str, **_: object) -> float:
        return self.reward


def test_other_functions_share_nothing(tmp_path, monkeypatch):
    """Also with one text for both, one relative path for two files, and one file before and after an edit."""
    made = [reward_function("function", function=Constant(reward)) for reward in (1.0, 0.0)]
    made += [pickle.loads(pickle.dumps(one)) for one in made]
    for reward in (0.25, 0.5, 0.75):
        folder = tmp_path / str(min(reward, 0.5))
        folder.mkdir(exist_ok=True)
        (folder / "m.py").write_text(f"def f(prompt, completion, **_):\n    return {reward}\n")
        monkeypatch.chdir(folder)
        made.append(reward_function("function", function="m.py:f", in_process=True))
    made.append(pickle.loads(pickle.dumps(made[4])))  # from another folder
    assert [one.score("x", "x") for one in made] == [1.0, 0.0, 1.0, 0.0, 0.25, 0.5, 0.75, 0.25]
    assert reward_function("function", function="m.py:f", in_process=True)._shared() is made[6]._shared()


def test_the_id_of_a_row_reaches_the_function():
    judge = reward_function("function", function=lambda prompt, completion, id, **_: float(id == completion))
    assert judge(["a", "b"], answer=["", ""], id=["a", "c"]) == [1.0, 0.0]
    assert judge(["row 1", "row 2"], answer=["", ""]) == [1.0, 1.0]


def test_ten_thousand_pending_requests_stay_small(judge: RewardFunction):
    async def flood() -> tuple[int, float, list[float | None]]:
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        pending = [asyncio.ensure_future(judge.ascore(rf"\boxed{{{n % 40}+v}}", "v+3")) for n in range(10_000)]
        await asyncio.sleep(0)
        threads, size = threading.active_count(), tracemalloc.get_traced_memory()[0] - before
        rewards = list(await asyncio.gather(*pending))
        tracemalloc.stop()
        return threads, size / len(pending), rewards

    threads, size, rewards = asyncio.run(flood())
    assert rewards.count(1.0) == 250 and rewards.count(0.0) == 9750
    assert threads < 20 and size < 8000  # bytes per pending request, its task included
    assert len(judge.workers()) <= 2


def test_a_cancelled_request_is_not_judged():
    judge = reward_function("math", policy="math_verify", timeout=TIMEOUT, workers=1)

    async def cancel() -> float:
        pending = [asyncio.ensure_future(judge.ascore(NEVER_ENDS[0], f"u+{n}")) for n in range(20)]
        await asyncio.sleep(0.1)
        for one in pending:
            one.cancel()
        started = time.monotonic()
        assert await judge.ascore(r"\boxed{1+u}", "u+1") == 1.0
        return time.monotonic() - started

    assert asyncio.run(cancel()) < 2 * PATIENCE
    judge.close()


def _in_a_fork(judge: RewardFunction, pids: set[int], results) -> None:
    rewards = [judge.score(r"\boxed{8+x}", "x+8"), asyncio.run(judge.ascore(r"\boxed{9+x}", "x+8"))]
    own = set(judge.workers())
    results.put((rewards, bool(own) and not own & pids))
    judge.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_judges_with_workers_of_its_own(judge: RewardFunction):
    """Also while other threads of the parent are judging."""
    assert judge.score(r"\boxed{7+x}", "x+7") == 1.0
    context, stop = multiprocessing.get_context("fork"), threading.Event()

    def work(start: int) -> None:
        number = start
        while not stop.is_set():
            number += 1
            assert judge.score(rf"\boxed{{{number}+t}}", f"t+{number}") == 1.0

    busy = [threading.Thread(target=work, args=(1000 * n,)) for n in range(1, 4)]
    for thread in busy:
        thread.start()
    try:
        for _ in range(3):
            pids, results = set(judge.workers()), context.SimpleQueue()
            child = context.Process(target=_in_a_fork, args=(judge, pids, results))
            child.start()
            child.join(60)
            assert child.exitcode == 0
            assert results.get() == ([1.0, 0.0], True)
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert judge.score(r"\boxed{6+x}", "x+6") == 1.0  # the parent's workers still answer


def test_a_column_question_is_the_question_where_there_is_no_prompt(caplog):
    reward = reward_function("math")
    question, copied, expanded = "Expand $(x+1)(x+2)$.", r"\boxed{(x+1)(x+2)}", r"\boxed{x^2+3x+2}"
    assert reward.score(copied, "x^2+3x+2", question=question) == 0.0
    assert reward.score(expanded, "x^2+3x+2", question=question) == 1.0
    assert reward.score(copied, "x^2+3x+2", "Say it.", question=question) == 1.0, "the prompt is what was asked"
    assert reward([copied, expanded], answer=["x^2+3x+2"] * 2, question=[question] * 2) == [0.0, 1.0]
    assert "question" not in caplog.text
    reward([copied], prompts=["Say it."], answer=["x^2+3x+2"], question=[question])
    assert "ignored: question" in caplog.text
