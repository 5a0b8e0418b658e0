"""Reward functions that judge nothing: a batch is None, several in a row end the training."""

import pytest

from dph.errors import DataError, JudgeError, UserError
from dph.rewards import reward_function
from dph.rewards.unjudged import FIRST_BATCHES, LATER_BATCHES

EMPTY = {"completions": [r"\boxed{1}"] * 4, "answer": [""] * 4}
RIGHT = {"completions": [r"\boxed{1}"] * 4, "answer": ["1"] * 4}


def test_the_first_batches_may_not_all_fail():
    judge = reward_function("math")
    for _ in range(FIRST_BATCHES - 1):
        assert judge(**EMPTY) == [None] * 4
    with pytest.raises(
        JudgeError, match=r"no response of 2 batches .* 8 responses .* \(gold_error: the answer is empty"
    ):
        judge(**EMPTY)


def test_a_verdict_makes_it_patient():
    judge = reward_function("math")
    for _ in range(2):
        assert judge(**RIGHT) == [1.0] * 4
        for _ in range(LATER_BATCHES - 1):
            assert judge(**EMPTY) == [None] * 4
    with pytest.raises(JudgeError, match="no response of 10 batches"):
        judge(**EMPTY)


def test_few_responses_and_rows_without_an_answer_end_nothing():
    judge = reward_function("math")
    for _ in range(7):
        assert judge(completions=["x"], answer=[""]) == [None]
    judge = reward_function("math")
    for _ in range(20):
        assert judge(completions=["x"] * 8, answer=[None] * 8) == [None] * 8


def test_rows_of_a_data_set_are_tried():
    judge = reward_function("math")
    judge.check_rows([{"prompt": "1 + 0?", "answer": "1"}, {"prompt": "?", "answer": ""}])
    judge.check_rows([{"prompt": "?", "answer": None}])
    with pytest.raises(
        JudgeError, match=r"the first row of the data set cannot be judged \(gold_error: the answer is e"
    ):
        judge.check_rows([{"prompt": "?", "answer": ""}])
    with pytest.raises(UserError, match="needs a column 'answer'"):
        judge.check_rows([{"prompt": "?", "gold": "1"}])
    with pytest.raises(DataError, match="a text or a list of messages"):
        judge.check_rows([{"prompt": 3, "answer": "1"}])
