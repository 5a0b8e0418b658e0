"""How reward functions of others are called, by the names of their parameters."""

from typing import Any

import pytest

from dph.errors import UserError
from dph.verifiers.conventions import as_messages, call_by, convention_of

SEEN: list[Any] = []


def trl(prompts, completions, answer, **columns):
    SEEN.append((prompts, completions, answer))
    return [1.0 for _ in completions]


def trl_of_columns(completions, **columns):
    SEEN.append((completions, columns["solution"], columns["ground_truth"], columns["prompts"]))
    return [0.5]


def verl(data_source, solution_str, ground_truth, extra_info):
    SEEN.append((data_source, solution_str, ground_truth, extra_info["question"]))
    return {"score": 0.25, "acc": True}


def verl_batched(data_sources, solution_strs, ground_truths, extra_infos):
    SEEN.append((solution_strs, ground_truths, len(data_sources), len(extra_infos)))
    return [{"score": 1.0}]


def openrlhf(queries, prompts, labels):
    SEEN.append((queries, prompts, labels))
    return [1.0]


def here(prompt, completion, **columns):
    SEEN.append((prompt, completion, columns["answer"], columns["id"]))
    return 1.0


def response_called_answer(answer, ground_truth):
    SEEN.append((answer, ground_truth))
    return (True, "because")


def without_names(pred, gold, /):
    SEEN.append((pred, gold))
    return True


async def awaited(completion, answer):
    SEEN.append((completion, answer))
    return 1


CALLS = {
    trl: (["Q"], ["R"], ["G"]),
    trl_of_columns: (["R"], ["G"], ["G"], ["Q"]),
    verl: ("HuggingFaceH4/MATH-500", "R", "G", "Q"),
    verl_batched: (["R"], ["G"], 1, 1),
    openrlhf: (["QR"], ["Q"], ["G"]),
    here: ("Q", "R", "G", "pair"),
    response_called_answer: ("R", "G"),
    without_names: ("R", "G"),
    awaited: ("R", "G"),
}


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_a_function_gets_what_its_parameters_name(function):
    SEEN.clear()
    reward = call_by(function, convention_of(function), "R", "G", "Q", "", {})
    assert [CALLS[function]] == SEEN and reward == {verl: 0.25, trl_of_columns: 0.5}.get(function, 1.0)


def test_a_database_is_given_under_its_usual_names():
    def sql(completions, answer, db_path, **columns):
        return [float((completions, answer, db_path, columns["db"]) == (["R"], ["G"], ["file"], ["file"]))]

    assert call_by(sql, convention_of(sql), "R", "G", "Q", "file", {}) == 1.0


def test_what_the_user_names_is_given_as_it_is():
    def scored(completion, answer, method):
        return float(method == "strict")

    with pytest.raises(UserError, match="'method' takes is not known; give a value with --columns"):
        convention_of(scored)
    convention = convention_of(scored, ["method"])
    assert call_by(scored, convention, "R", "G", "Q", "", {"method": "strict"}) == 1.0


@pytest.mark.parametrize("function", [lambda a, b: 1.0, lambda: 1.0, lambda ground_truth: 1.0, lambda **c: 1.0])
def test_a_function_that_nobody_can_call_is_refused(function):
    with pytest.raises(UserError, match="is known to take the response; write def f"):
        convention_of(function)
    with pytest.raises(UserError, match="cannot be read"):
        convention_of(min)


@pytest.mark.parametrize("found", ["1.0", float("nan"), {"points": 1}, [1.0, 2.0], object()])
def test_what_is_no_reward_raises(found):
    def odd(completions, answer):
        return found

    with pytest.raises((TypeError, ValueError, KeyError)):
        call_by(odd, convention_of(odd), as_messages("R"), "G", "Q", "", {})
