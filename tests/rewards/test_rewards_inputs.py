"""What trainers hand to reward functions: messages without text, parts, calls of tools, columns of another length, gold
answers of any type. Each gives a reward or one sentence, and none takes the others' rewards."""

import asyncio
import re
import sqlite3
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from dph.errors import UserError
from dph.rewards import RewardFunction, reward_function, text_of
from dph.rewards.verl import compute_score
from dph.types import Outcome

RIGHT = r"\boxed{42}"
CALL = {"id": "1", "type": "function", "function": {"name": "run", "arguments": "{}"}}


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


@pytest.fixture(scope="module")
def judge():
    made = reward_function("math", policy="math_verify", timeout=20.0, workers=1)
    yield made
    made.close()


TEXTS: list[tuple[Any, str]] = [
    (RIGHT, RIGHT),
    ("", ""),
    ([said(RIGHT)], RIGHT),
    (said(RIGHT), RIGHT),
    ([{"role": "user", "content": "?"}, said(RIGHT)], RIGHT),
    ([], ""),
    ([said(None, tool_calls=[CALL])], ""),
    ([{"role": "assistant", "tool_calls": [CALL]}], ""),
    ([said(RIGHT, tool_calls=[CALL])], RIGHT),
    ([said(RIGHT), said(None)], ""),
    ([said([])], ""),
    ([said([{"type": "text", "text": r"\boxed{4"}, {"type": "text", "text": "2}"}])], RIGHT),
    ([said([{"type": "output_text", "text": RIGHT}])], RIGHT),
    ([said(["So ", RIGHT])], "So " + RIGHT),
    ([said([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": RIGHT}])], RIGHT),
    ([said([{"type": "reasoning", "text": r"\boxed{41}"}, {"type": "text", "text": RIGHT}])], RIGHT),
    ([said([{"type": "text", "text": None}])], ""),
    ([said(None, tool_calls=[CALL]), {"role": "tool", "content": RIGHT}], ""),  # not the model's answer
    ([said("?"), {"role": "user", "content": RIGHT}], "?"),
]


@pytest.mark.parametrize(("completion", "text"), TEXTS)
def test_the_text_of_a_completion(judge: RewardFunction, completion: Any, text: str):
    assert text_of(completion) == text
    reward = float("42}" in text)
    assert judge(completions=[completion, RIGHT], answer=["42", "42"]) == [reward, 1.0]
    assert judge.score(completion, "42") == asyncio.run(judge.ascore(completion, "42")) == reward


@pytest.mark.parametrize("completion", [None, 3, [3], ["text"], [said(3)], [said({"text": "x"})], [[said("x")]], b"x"])
def test_what_is_no_completion_is_one_sentence(judge: RewardFunction, completion: Any):
    with pytest.raises(UserError, match="a text or a list of messages with"):
        judge(completions=[RIGHT, completion], answer=["42", "42"])


PROMPTS = [
    None,
    [],
    "?",
    [{"role": "user", "content": None}],
    [{"content": "?"}],
    [{"role": "user", "content": [{"type": "text", "text": "?"}]}],
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompts_are_of_any_form(judge: RewardFunction, prompt: Any):
    assert judge(prompts=[prompt] * 2, completions=[RIGHT, "42"], answer=["42", "42"]) == [1.0, 0.0]


def test_the_row_that_is_no_completion_is_named(judge: RewardFunction):
    with pytest.raises(UserError, match=r"^row 2 of the batch: a text or a list of messages .* not 3$"):
        judge(completions=[RIGHT, 3], answer=["42", "42"])


@pytest.mark.parametrize("prompt", [3, ["?"], [["?"]], {"role": "user", "content": 3}])
def test_what_is_no_prompt_is_one_sentence(judge: RewardFunction, prompt: Any):
    with pytest.raises(UserError, match="a text or a list of messages with"):
        judge(prompts=[prompt], completions=[RIGHT], answer=["42"])


LENGTHS: list[tuple[dict[str, Any], str]] = [
    ({"completions": [RIGHT] * 2, "answer": ["42"]}, "'answer' has 1 entries, but there are 2 completions"),
    ({"completions": [RIGHT], "answer": ["42"] * 3}, "'answer' has 3 entries, but there are 1 completions"),
    ({"completions": [RIGHT] * 2, "answer": []}, "'answer' has 0 entries"),
    ({"completions": [RIGHT] * 2, "answer": "42"}, "'answer' must be a list with one entry for each completion"),
    ({"completions": [RIGHT] * 2, "answer": 42}, "'answer' must be a list"),
    ({"completions": [RIGHT], "answer": np.array(42)}, "'answer' must be a list"),
    ({"completions": [RIGHT], "answer": torch.tensor(42)}, "'answer' must be a list"),
    ({"completions": [RIGHT] * 2, "answer": None}, "'answer' must be a list"),
    ({"completions": [RIGHT] * 2, "answer": {"a": 1, "b": 2}}, "'answer' must be a list"),
    ({"completions": RIGHT, "answer": ["42"] * len(RIGHT)}, "'completions' must be a list"),
    ({"completions": [RIGHT] * 2, "answer": ["42"] * 2, "prompts": ["?"]}, "'prompts' has 1 entries"),
    ({"completions": [RIGHT] * 2, "answer": ["42"] * 2, "prompts": "??"}, "'prompts' must be a list"),
]


@pytest.mark.parametrize(("columns", "sentence"), LENGTHS)
def test_a_column_of_another_length_is_named(judge: RewardFunction, columns: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=re.escape(sentence[:40])) as error:
        judge(**columns)
    assert sentence in str(error.value)


def test_columns_may_be_tuples_and_arrays(judge: RewardFunction):
    assert judge(completions=(RIGHT, "no"), answer=np.array([42, 42])) == [1.0, 0.0]
    completions: Any = np.array([RIGHT, "no"])
    assert judge(completions=completions, answer=("42", "42"), prompts=np.array(["?", "?"])) == [1.0, 0.0]
    assert judge(completions=[], answer=[]) == []


COLUMNS: list[Any] = [
    {1, 2},
    frozenset((1, 2)),
    {"a": 1, "b": 2}.values(),
    np.array(3),
    torch.tensor([1, 2]),
    pa.array([1, 2]),
    (number for number in (1, 2)),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: type(column).__name__)
def test_columns_are_of_any_type(judge: RewardFunction, column: Any):
    assert judge(completions=[RIGHT, "42"], answer=["42", "42"], other=column) == [1.0, 0.0]


TENSORS: list[Any] = [
    torch.tensor([42, 7]),
    torch.tensor([42.0, 7.0]),
    torch.tensor([42.0, 7.0], dtype=torch.bfloat16, requires_grad=True),
    [torch.tensor(42), torch.tensor([7])],
    [torch.tensor([41, 42]), [torch.tensor(7)]],
    torch.tensor([[41, 42], [7, 8]]),
    pa.array([42, 7]),
    pa.array(["42", "7"]),
    pa.array([[42], [7]]),
]


@pytest.mark.parametrize("answers", TENSORS, ids=str)
def test_golds_are_tensors_and_arrays(judge: RewardFunction, answers: Any):
    assert judge(completions=[RIGHT, r"\boxed{41}"], answer=answers) == [1.0, 0.0]


def test_columns_of_other_libraries(judge: RewardFunction):
    datasets, pd = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    tensors = datasets.Dataset.from_dict({"answer": [42, 7]}).with_format("torch")["answer"]
    others = {"series": pd.Series([1, 2], index=[7, 9]), "table": pd.DataFrame({"a": [1, 2], "b": [3, 4]})}
    for answers in (tensors, pd.Series([42, 7], index=[7, 9]), pd.Series([42.5, 7]) - 0.5):
        assert judge(completions=[RIGHT, r"\boxed{41}"], answer=answers, **others) == [1.0, 0.0]


def test_a_number_of_32_bits_is_the_decimal_that_was_written(judge: RewardFunction):
    assert judge(completions=[r"\boxed{0.1}"] * 2, answer=torch.tensor([0.1, 0.2])) == [1.0, 0.0]


NUMBERS: list[tuple[Any, str]] = [
    (np.int64(42), "42"),
    (np.uint8(42), "42"),
    (np.float64(0.1), "0.1"),
    (np.float32(0.1), "0.1"),
    (np.float16(0.1), "0.1"),
    (np.float32(1e-5), "0.00001"),
    (np.str_("42"), "42"),
    (Decimal("42"), "42"),
    (Decimal("1E+2"), "100"),
    (Decimal("0.10"), "0.1"),
    (Fraction(1, 2), r"\frac{1}{2}"),
    (10**400, "1" + "0" * 400),
    ([np.int64(41), Decimal("42")], "42"),
    (np.array([41, 42]), "42"),
    (np.array(["41", "42"]), "42"),
    (np.array(42), "42"),
    (np.array([0.1, 0.2], dtype=np.float32), "0.2"),
    (torch.tensor(42), "42"),
    (torch.tensor([41, 42]), "42"),
    ([torch.tensor(42)], "42"),
    (pa.array([41, 42]), "42"),
    (pa.scalar("42"), "42"),
    (pa.array([[41, 42]])[0], "42"),
]


@pytest.mark.parametrize(("gold", "answer"), NUMBERS, ids=[answer[:20] for _, answer in NUMBERS])
def test_golds_are_numbers_of_any_type(judge: RewardFunction, gold: Any, answer: str):
    assert judge(completions=[rf"\boxed{{{answer}}}", r"\boxed{7}"], answer=[gold, gold]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (42.0, ["42", "42.0"]),
        (np.float64(42), ["42", "42.0"]),
        (Decimal("42.50"), ["42.5", "42.50"]),
        (1e-5, ["0.00001", "1e-05"]),
        (1e23, ["1" + "0" * 23, "1e+23"]),
        (torch.tensor([41.0, 42.0]), ["41", "42"]),
        (pa.array([41, None, 42.0], pa.float64()).drop_null(), ["41", "42"]),
        (100, ["100"]),
    ],
)
def test_a_number_is_exact_in_digits_too(gold: Any, answers: list[str]):
    judge = reward_function("exact")
    wrong = ["4", "1", "42.01", "042", "1e5", "0"]
    assert judge([*answers, *wrong], answer=[gold] * (len(answers) + len(wrong))) == [1.0] * len(answers) + [0.0] * 6


@pytest.mark.parametrize("gold", ["a\nb", "a\u2028b", "a\x0bb", "a\x85b", "a \r\nb ", ["x", "a\nb"], "x = 1\n  y\n\nb"])
def test_a_gold_of_several_lines_is_compared_with_as_many(gold: Any):
    """The last one alone could never equal it."""
    text, judge = gold if isinstance(gold, str) else gold[-1], reward_function("exact")
    right = [text, f"So:\n  {text}\n\n", "\r\n".join(text.splitlines())]
    wrong = ["b", text.replace("b", "c"), text + "\nb", "a b", text.splitlines()[0], " ".join(text.split())]
    assert judge(right + wrong, answer=[gold] * 9) == [1.0] * 3 + [0.0] * 6


def test_a_gold_of_any_length_costs_the_others_nothing(judge: RewardFunction):
    for made in (judge, reward_function("exact")):
        assert made(completions=[RIGHT, RIGHT], answer=[10**5000, RIGHT])[1] == 1.0


UNUSABLE: list[Any] = [
    *(None, float("nan"), np.float32("nan"), np.float64("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")),
    *(
        True,
        np.bool_(True),
        1j,
        np.complex64(42),
        {"a": 1},
        b"42",
        date(2020, 1, 1),
        [["42"]],
        np.array([[1]]),
        np.array(None),
    ),
]


@pytest.mark.parametrize("gold", UNUSABLE, ids=repr)
@pytest.mark.parametrize("kind", ["math", "exact"])
def test_golds_that_are_no_answer_give_no_reward(kind: str, gold: Any):
    judge = reward_function(kind)
    assert judge(completions=[RIGHT, RIGHT], answer=[gold, RIGHT]) == [None, 1.0]


@pytest.mark.parametrize("gold", ["", "  ", [], [""], (), np.array([])], ids=repr)
def test_an_empty_gold_gives_no_reward(gold: Any):
    judge = reward_function("exact")
    assert judge(completions=["", "42", "42"], answer=["42", gold, "42"]) == [0.0, None, 1.0]
    assert judge(completions=["", " "], answer=[gold] * 2) == [None, None]
    verdict = judge.verdict("42", gold)
    assert verdict.outcome is Outcome.GOLD_ERROR and verdict.detail == "the answer is empty"


@pytest.mark.parametrize("comparator", ["strict", "bird", "spider"])
@pytest.mark.parametrize("gold", ["", " \n"])
def test_an_empty_gold_query_gives_no_reward(tmp_path, comparator: str, gold: str):
    import sqlite3

    sqlite3.connect(tmp_path / "d.sqlite").execute("CREATE TABLE t (a)").connection.close()
    judge = reward_function("sql", comparator=comparator, workers=1)
    assert judge.score("```sql\nSELECT a FROM t\n```", gold, db=str(tmp_path / "d.sqlite")) is None
    judge.close()


KINDS: list[tuple[Any, str]] = [
    (np.int64(3), "answer == 3 and isinstance(answer, int)"),
    (np.float32(0.5), "answer == 0.5"),
    (Decimal("0.5"), "answer == 0.5"),
    (np.array([1, 2]), "answer == [1, 2]"),
    (date(2020, 1, 2), "answer == '2020-01-02'"),
]


@pytest.mark.parametrize(("gold", "test"), KINDS)
def test_a_function_in_a_worker_takes_any_gold(tmp_path, gold: Any, test: str):
    file = tmp_path / "mine.py"
    file.write_text(f"def f(prompt, completion, answer, **_): return float({test})\n")
    judge = reward_function("function", function=f"{file}:f", workers=1, timeout=20.0)
    assert judge(completions=["x"], answer=[gold]) == [1.0]
    judge.close()


def test_a_callable_may_be_used_with_any_column(judge: RewardFunction):
    check: Callable[..., list[float | None]] = judge
    assert check(completions=[RIGHT], answer=["42"], level=np.array([3]), state=object()) == [1.0]


def test_the_papers_scheme_pays_for_a_query_by_a_tool_in_any_message(tmp_path: Path):
    """0.2 for the call, as the authors' code pays; another scheme reads the last message only."""
    db = tmp_path / "shop.sqlite"
    with sqlite3.connect(db) as connection:
        connection.execute("CREATE TABLE item (price REAL)")
    connection.close()
    paid: list[Any] = [{"sql": "SELECT 1"}, '{"sql": "SELECT 1"}', {"sql": "SELECT 1", "on": date(2020, 1, 2)}]
    calls: list[Any] = [{"type": "function", "function": {"name": "query", "arguments": said}} for said in paid]
    calls = [*([call] for call in calls), np.array(calls[:1]), [None, calls[0]], [None], "call", None]
    calls += [
        [{"function": {"arguments": {"text": "SELECT 1"}}}],
        [{"function": "{"}],
        [{"function": {"arguments": "{"}}],
    ]
    right = said("```sql\nSELECT count(*) FROM item\n```")
    completions: list[Any] = [[said(None, tool_calls=call), {"role": "tool", "content": "1"}, right] for call in calls]
    completions = [*completions, [right], np.array([right])]
    columns = {"answer": ["SELECT count(*) FROM item"] * len(completions), "db": [db] * len(completions)}
    for scheme, expected in (("paper", [1.2] * 5 + [1.0] * 8), ("binary", [1.0] * 13)):
        judge = reward_function("sql", reward=scheme, workers=1)
        assert judge(completions, **columns) == pytest.approx(expected)
        judge.close()


DATABASES: list[tuple[Any, str]] = [
    (None, "problem 'row 1' is judged as SQL but its meta has no database path under 'db'"),
    ([3], "problem 'row 1' is judged as SQL but its meta has 3, not a database path, under 'db'"),
    ("{db}", "under 'db'; 'db' is not a list with one entry for each completion"),
    (["{db}", "{db}"], "under 'db'; 'db' is not a list with one entry for each completion"),
]


@pytest.mark.parametrize(("column", "message"), DATABASES)
def test_what_is_wrong_with_a_column_of_databases_is_said(tmp_path: Path, column: Any, message: str):
    judge = reward_function("sql", workers=1)
    with pytest.raises(UserError) as caught:
        judge(["```sql\nSELECT 1\n```"], answer=["SELECT 1"], **({} if column is None else {"db": column}))
    assert message in str(caught.value)


def test_a_database_is_a_text_or_a_path(tmp_path: Path):
    file = tmp_path / "d.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    judge = reward_function("sql", workers=1)
    for db in (file, str(file), np.array(str(file))[()], pa.scalar(str(file))):
        assert judge(["```sql\nSELECT 1\n```"], answer=["SELECT 1"], db=[db], suite=[np.array([str(file)])]) == [1.0]
    judge.close()


OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("math", {"workers": 2.5}, "option workers of the verifier 'math' must be a whole number, not 2.5"),
    ("sql", {"workers": True}, "option workers of the verifier 'sql' must be a whole number, not True"),
    ("sql", {"tolerance": "0.1"}, "option tolerance of the verifier 'sql' must be a number, not '0.1'"),
    ("sql", {"keep_distinct": 1}, "option keep_distinct of the verifier 'sql' must be true or false, not 1"),
    ("function", {"function": None}, "given by --reward FILE.py:NAME, not None"),
    ("exact", {"answer_column": ["a"]}, "answer_column must be a column's name, not ['a']"),
]


@pytest.mark.parametrize(("kind", "options", "message"), OPTIONS)
def test_options_of_another_type_are_one_sentence(kind: str, options: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        reward_function(kind, **options)
    assert message in str(caught.value)


def test_verl_has_a_reward_for_each_response():
    question = np.array([{"role": "user", "content": "Simplify $(x+1)^2 - x^2$."}])
    copied = asyncio.run(compute_score("toy", r"\boxed{(x+1)^2 - x^2}", "2x+1", {"question": question}))
    assert (copied["score"], copied["scored"]) == (0.0, 1.0)
    for solution in (None, 3):
        info = asyncio.run(compute_score("toy", solution, "4"))  # type: ignore[arg-type]
        assert (info["score"], info["scored"], info["outcome"]) == (0.0, 0.0, "infra_error")
    with pytest.raises(UserError, match=r"extra_info has no 'db', which reward_kwargs.meta names; it has: index"):
        asyncio.run(compute_score("toy", "SELECT 1", "SELECT 1", {"index": 1}, kind="sql", meta="db"))


def test_columns_that_the_verifier_does_not_read_are_logged_once(caplog):
    """As TRL passes a data set's columns, with its own."""
    judge = reward_function("math", timeout=4.5)  # an object of its own: the log is kept for each
    own = {"completion_ids": [[1]], "trainer_state": object(), "log_extra": print}
    for _ in range(2):
        columns = {"answer": ["4"], "level": [3], "image": ["a.png"], "note": [None], "set": ["math"], "id": ["a"]}
        assert judge(completions=[r"\boxed{4}"], **columns, **own) == [1.0]
    assert judge(completions=[r"\boxed{4}"], answer=["4"], level=[3], db="one", weight=[0.5]) == [1.0]
    assert [record.message for record in caplog.records] == [
        "ignored: level, image (the verifier math does not read them)",
        "ignored: db, weight (the verifier math does not read them)",
    ]
