"""Reward functions: what they are given, what their results mean, and that nothing they do harms the process."""

import asyncio
import math
import os
import textwrap
import time

import pytest

from dph.build import make_verifiers
from dph.config import RewardConfig, VerifierConfig
from dph.errors import UserError
from dph.types import Outcome, Problem
from dph.verifiers.function import FunctionVerifier

PROBLEM = Problem("p/1", "2 + 2?", "4", "", {"level": 3})
FILE = """
import math, os, sys, time

CALLS = 0

def echo(prompt, completion, **columns):
    global CALLS
    CALLS += 1
    print("this must not reach the pipe")
    match completion:
        case "columns":
            return float(columns == {"id": "p/1", "answer": "4", "level": 3} and prompt == "2 + 2?")
        case "messages":
            return float(prompt == [{"role": "user", "content": "2 + 2?"}])
        case "none":
            return None
        case "text":
            return "1.0"
        case "true":
            return True
        case "hang":
            time.sleep(600)
        case "spin":
            while True: pass
        case "raise":
            raise ValueError("no such thing")
        case "exit":
            sys.exit(3)
        case "kill":
            os.abort()
        case "memory":
            return float(len(bytearray(1 << 34)))
        case "calls":
            return CALLS
        case "pid":
            return os.getpid()
        case "dph":
            from dph.verifiers import Verifiers
            return float(Verifiers.__name__ == "Verifiers")
    return float(completion)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def verifier(file, **options):
    return FunctionVerifier(function=f"{file}:echo", timeout=options.pop("timeout", 20.0), **options)


def judged(made, *responses, problem=PROBLEM):
    try:
        return made.verify([(problem, response) for response in responses])
    finally:
        made.close()


@pytest.fixture(params=["worker", "in process"])
def anywhere(request, file):
    return verifier(file, in_process=request.param == "in process")


def test_the_number_is_the_reward_and_the_threshold_says_what_is_correct(anywhere):
    verdicts = judged(anywhere, "0.5", "1", "-2", "1.5", "0.999")
    assert [verdict.reward for verdict in verdicts] == [0.5, 1.0, -2.0, 1.5, 0.999]
    assert [verdict.correct for verdict in verdicts] == [False, True, False, True, False]
    assert all(verdict.scored for verdict in verdicts)


def test_correct_from(file):
    verdicts = judged(verifier(file, in_process=True, correct_from=0.5), "0.4999", "0.5")
    assert [verdict.outcome for verdict in verdicts] == [Outcome.WRONG, Outcome.CORRECT]


def test_columns_prompt_and_true(anywhere):
    assert [verdict.reward for verdict in judged(anywhere, "columns", "true")] == [1.0, 1.0]
    chat = Problem("p", ({"role": "user", "content": "2 + 2?"},), "4", "math")
    assert judged(anywhere, "messages", problem=chat)[0].reward == 1.0


def test_columns_that_the_call_has_anyway_are_left_out(anywhere):
    problem = Problem("p/1", "2 + 2?", "4", "", {"level": 3, "prompt": "another", "completion": "x"})
    assert judged(anywhere, "columns", problem=problem)[0].reward == 1.0


def line(code):
    """Number of the line of FILE that holds some code."""
    return next(number for number, text in enumerate(FILE.splitlines(), 1) if code in text)


FAILURES = {
    "none": "returned None",
    "text": "not a number: the reward function returned '1.0'",
    "nan": "not finite: the reward function returned nan",
    "-inf": "not finite: the reward function returned -inf",
    "raise": f"ValueError in line {line('raise ValueError')}: no such thing",
    "exit": f"SystemExit in line {line('sys.exit')}: 3",
    "one half": f"ValueError in line {line('float(completion)')}: could not convert string to float",
}


@pytest.mark.parametrize("response", FAILURES)
def test_what_is_no_reward_leaves_the_group(anywhere, response, capsys):
    first, again, good = judged(anywhere, response, response, "1")
    for verdict in (first, again):
        assert (verdict.outcome, verdict.reward, verdict.scored) == (Outcome.INFRA_ERROR, 0.0, False)
        assert FAILURES[response] in verdict.detail
    assert good.correct
    said = [line for line in capsys.readouterr().err.splitlines() if "could not be judged" in line]
    assert len(said) == (0 if response == "none" else 1)  # once, however many responses
    assert all("mine.py" in line and FAILURES[response][:12] in line for line in said)


@pytest.mark.parametrize(
    ("response", "detail"),
    [("hang", "time limit"), ("spin", "time limit"), ("kill", "crashed by signal"), ("memory", "MemoryError in line")],
)
def test_a_worker_contains_what_goes_wrong(file, response, detail):
    made = verifier(file, timeout=1.0)
    judged(made, "0")  # the file is loaded
    begun = time.monotonic()
    bad, good = judged(made, response, "1")
    assert (bad.outcome, good.outcome) == (Outcome.INFRA_ERROR, Outcome.CORRECT)
    assert detail in bad.detail
    assert time.monotonic() - begun < 20


def test_in_workers_and_in_this_process(file):
    assert judged(verifier(file, in_process=True), "pid")[0].reward == os.getpid()
    assert judged(verifier(file), "pid")[0].reward != os.getpid()


def test_a_worker_keeps_its_state_and_calls_once_per_response(file):
    assert [verdict.reward for verdict in judged(verifier(file), "calls", "calls", "0", "calls")] == [1, 2, 0, 4]


def test_a_function_may_use_dph_and_installed_packages(file, tmp_path):
    assert judged(verifier(file), "dph")[0].reward == 1.0
    (tmp_path / "other.py").write_text("import numpy\ndef f(prompt, completion, **_): return numpy.float32(0.25)\n")
    assert judged(FunctionVerifier(function=f"{tmp_path}/other.py:f", timeout=20), "x")[0].reward == 0.25


def test_a_callable_is_called_in_this_process(capsys):
    def reward(prompt, completion, *, answer, **_):
        return 1.0 if completion == answer else math.log(0)

    good, bad = judged(FunctionVerifier(function=reward), "4", "5")
    assert good.correct
    assert not bad.scored
    assert bad.detail.startswith("ValueError in line")
    assert "test_verifiers_function.py" in capsys.readouterr().err


FORKS = {
    "on import": ("import os\nos.fork()\nos.fork()\n", ""),
    "on import, where the fork raises": ("import os\nif not os.fork():\n    raise SystemExit\n", ""),
    "in a call": ("import os\n", "    os.fork()\n"),
}


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("name", FORKS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_function_that_forks_shifts_no_verdict(tmp_path, name, in_process):
    first, body = FORKS[name]
    (tmp_path / "m.py").write_text(
        f"{first}def f(prompt, completion, answer, **_):\n{body}    return float(completion == answer)\n"
    )
    made = FunctionVerifier(function=f"{tmp_path}/m.py:f", in_process=in_process, timeout=20)
    for _ in range(3):
        verdicts = made.verify([(PROBLEM, "4" if number % 2 else "5") for number in range(12)])
        assert [verdict.reward for verdict in verdicts] == [0.0, 1.0] * 6
    made.close()


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, Odd])
def test_no_error_of_a_function_ends_this_process(error):
    def reward(prompt, completion, **_):
        raise error

    assert judged(FunctionVerifier(function=reward), "1")[0].outcome is Outcome.INFRA_ERROR


BROKEN_FILES = {
    "syntax.py": ("def f(:\n", "cannot import the reward function's file .*SyntaxError: .*line 1"),
    "raises.py": ("x = 1\ny = x / 0\n", "cannot import .*ZeroDivisionError in line 2: division by zero"),
    "exits.py": ("raise SystemExit('bye')\n", "cannot import .*SystemExit in line 1: bye"),
    "empty.py": ("g = 1\nf = 2\n", "empty.py is named 'f'; known are: none"),
}


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("name", BROKEN_FILES)
def test_a_file_that_cannot_be_used(tmp_path, name, in_process):
    text, said = BROKEN_FILES[name]
    (tmp_path / name).write_text(textwrap.dedent(text))
    with pytest.raises(UserError, match=said):
        made = FunctionVerifier(function=f"{tmp_path / name}:f", in_process=in_process, timeout=20)
        try:
            made.check([PROBLEM])
        finally:
            made.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"function": "mine.py"}, "given by --reward FILE.py:NAME, not 'mine.py'"),
        ({"function": "mine:f"}, "given by --reward FILE.py:NAME, not 'mine:f'"),
        ({}, "given by --reward FILE.py:NAME, not ''"),
        ({"function": None}, "given by --reward FILE.py:NAME, not None"),
        ({"function": "gone.py:f"}, "the reward function's file gone.py does not exist"),
        ({"function": len, "timeout": 0}, "option timeout must be positive, not 0"),
        ({"function": len, "workers": "2"}, "option workers must be positive, not '2'"),
    ],
)
def test_impossible_options(options, said):
    with pytest.raises(UserError, match=said):
        FunctionVerifier(**options)


def test_a_reward_function_judges_every_problem(file):
    problems = [
        Problem("a", "?", "x", ""),
        Problem("b", "?", "x", "sql", {"db": "gone"}),
        Problem("c", "?", "x", "math"),
    ]
    settings = VerifierConfig(timeout=20)
    with make_verifiers(settings, RewardConfig(f"{file}:echo", correct_from=0.5)) as verifiers:
        assert verifiers.check(problems) == {}
        assert verifiers.flags(problems) == {}
        assert [verdict.correct for verdict in verifiers.verify([(p, "0.5") for p in problems])] == [True] * 3
    with make_verifiers(settings, function=lambda prompt, completion, **_: len(completion)) as verifiers:
        assert verifiers.verify([(problems[2], "abc")])[0].reward == 3.0


def test_without_one_a_problem_must_name_a_verifier():
    with make_verifiers(VerifierConfig(), RewardConfig()) as verifiers:
        with pytest.raises(UserError, match=r"problem 'p/1' names no verifier; add a .*\(not in dph verify\)"):
            verifiers.check([PROBLEM])
        with pytest.raises(UserError, match="belongs in a column 'verifier', not"):
            verifiers.check([Problem("p", "?", "1", "", {"task": "math"})])
