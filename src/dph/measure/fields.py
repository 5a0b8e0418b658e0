"""The contents of columns of judged samples, by their names. It lists words that programs use, not programs."""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from dph.columns import is_named
from dph.types import UNSCORED

Role = Literal["", "id", "sample", "task", "step", "model", "filter", "prompt", "answer", "response", "error", "count"]

_WORDS: dict[Role, str] = {
    "id": "problem_id task_id question_id instance_id example_id doc_id unique_id problem_idx question_idx example_idx "
    "prompt_id group_id native_id qid id uid idx index sample_id test_idx testidx name",
    "sample": "sample sample_idx sample_index sample_number epoch attempt trial repeat repeat_idx rollout rollout_idx "
    "rollout_id completion_id completion_idx generation_idx generation_id",
    "task": "split subset task task_name dataset data_source env env_id environment",
    "step": "step global_step training_step",
    "model": "model model_name model_id checkpoint",
    "filter": "filter filter_name scorer scorer_name metric metric_name",
    "prompt": "content question problem query prompt input instruction problem_statement origin_prompt full_prompt "
    "user_prompt input_text input_prompt prompt_text",
    "answer": "predicted_answer extracted_answer model_answer parsed_answer pred_answer final_answer extracted_answers "
    "model_answers extracted_prediction filtered_resps pred preds picked predictions prediction answer answers",
    "response": "completion completions response responses output outputs generation generations text resps "
    "predicted_text model_output full_model_response code code_list output_list output_response solution program",
    "error": "error exception error_message",
    "count": "samples num_samples n_samples n attempts num_attempts n_attempts trials num_trials n_trials "
    "num_generations num_rollouts num_runs n_runs num_tries n_tries sample_count total_samples total num_total "
    "n_total total_count",
}
NAMES: dict[Role, tuple[str, ...]] = {role: tuple(words.split()) for role, words in _WORDS.items()}
"""The words of each role, the preferred ones first."""
_ROLES: dict[str, Role] = {name: role for role, names in reversed(NAMES.items()) for name in names}
OF_SAMPLES, OF_EITHER = (
    tuple(f"{before}{word}{after}" for word in words for before, after in (("num_", ""), ("n_", ""), ("", "_count")))
    for words in (("correct", "right", "solved", "success", "successes"), ("passed", "pass", "passes"))
)
OF_SAMPLES += ("successes", "correct_samples")
OF_EITHER += ("passes",)
MANY_VERDICTS = (*OF_SAMPLES, *OF_EITHER)
"""Numbers of correct samples of a problem, next to a `count`, of which those OF_EITHER may also count tests; and `c`,
which alone means nothing."""
_MEANS = re.compile(
    r"(mean|avg|average)_(acc|accuracy|correct|score|reward|pass)|(acc|accuracy|pass|success|solve|correct|win)(_rate|_ratio)?|"
    r"pass@1|pass_at_1|mean"
)
OF_TESTS = ("total", "num_total", "n_total", "total_count")
"""Counts that may be of a sample's tests as well as of a problem's samples."""

SAMPLE_LISTS = {
    *("samples", "completions", "generations", "rollouts", "attempts", "trials", "responses", "outputs", "predictions"),
    *("runs", "repeats", "epochs", "solutions", "candidates"),
}
"""Lists of objects in a row that are its samples."""
UNSURE_LISTS = {"results", "evaluations", "answers", "records", "data"}
"""Lists that may also hold tests or turns: they are samples if each object has a response or an answer."""
_PARTS: dict[str, str] = {
    "tests": "test testcase case check assertion assert unit unittest",
    "parts": "step turn judge rubric criterion criteria grader rater annotator vote process stage round token aspect "
    "dimension subtask subgoal milestone part item claim fact line hop message action question field requirement "
    "constraint instruction inst",
}
_OF_PARTS = {
    kind: frozenset(form for word in words.split() for form in (word, f"{word}s")) for kind, words in _PARTS.items()
}
"""Words in the names of lists that hold the tests of one sample, or the steps, turns, judges or points of one."""

_CORRECT = re.compile(
    r"correct|correctness|passed|pass|success|successful|succeeded|solved|resolved|right|accepted|valid|exact_match|em|"
    r"(quasi_|prefix_)+exact_match|acc|accuracy|acc_norm|hit|matched|match|judge_grade|judge?ments?|verdicts?|graded_list|"
    r"(is|all|was)_?(correct|passed|success|solved|resolved|right|accepted|valid)|"
    r".+_(correct|correctness|passed|solved|acc|accuracy)|(accuracy|correct)\w*_reward(_func)?"
)
_SCORE = re.compile(
    r"(.*_)?(scores?|rewards?|grades?)(_func)?|.*scored_generations|reward_func\w*|"
    r"score_(?!(max|min|mean|avg|total|possible|count|std|stderr|threshold|type|name|explanation|reason|answer|metadata|model|"
    r"range|time|version|id|text|weight|scale|sum)(_|$))\w+"
)
_STATUS = re.compile(r"(.*_)?(result|results|status|outcome)")
_NEVER = re.compile(
    r"(mean|avg|average|best|max|min|std|stderr|sum|expected|gold|target|reference|format|length|reward_model|rm|"
    r"full|possible|maximum|"
    r"confidence|raw_logit|total|num|n|finish|stop|exit)_.*|.*_(count|time|ms|tokens|stderr|std|mean|length|penalty)|"
    r".*format.*|correct_(answers?|option|choice|index|label|response)"
)
_COUNTED = re.compile(r"(num|n|total|mean|std)_.*|.*(count|turns|tokens|length|time|ms)")
_MAXIMUM = re.compile(
    r"(max|full|total|possible|num|n)_(score|reward|point|grade|mark|test|case|check|assertion|total)s?|"
    r"(scores?|rewards?|points|grades?|marks|tests?|cases|checks|assertions)_(max|total|possible|count)|total|max"
)
_OF_SCORES: dict[str, str] = {
    "maximum": "max maximum full possible pts points marks weight worth scale rubric available highest ceiling "
    "criterion criteria denominator upper bound limit top outof",
    "setting": "tokens token length len time steps turns calls retries seconds context new workers concurrency "
    "concurrent samples connections model epochs iterations tries attempts depth rounds chars seq gen temperature "
    "prompt output input batch size",
}
_MAY_BE_MAXIMUM, _OF_SETTINGS = (frozenset(words.split()) for words in _OF_SCORES.values())
_FAILING = {
    "passed": ("failed", "fail", "failing", "failures"),
    "pass": ("fail", "failed", "failures"),
    "passes": ("fails", "failures", "failed"),
    "correct": ("incorrect", "wrong", "failed", "errors"),
    "right": ("wrong", "failed"),
    "solved": ("unsolved", "failed"),
    "success": ("failure", "fail", "failed", "failures"),
    "successes": ("failures", "fails", "failed"),
    "successful": ("unsuccessful", "failed"),
    "succeeded": ("failed",),
    "accepted": ("rejected", "failed"),
}
_TESTS = frozenset(("test", "tests", "case", "cases", "check", "checks", "assertion", "assertions", "testcases"))
_SCORED_BELOW = {"scores", "metrics", "metric", "rewards"}
_OF_THE_DATA = {"doc", "info", "extra_info", "config", "metadata", "args", "input", "arguments", "usage", "store"}
"""Tables of a row that describe the problem or the run; a verdict is never below them."""

_VERDICTS = {
    1.0: "correct c passed pass true yes y ok success resolved solved right accepted ✓ ✔ ✅",
    0.5: "p partial partially_correct",
    0.0: "✗ ✘ ❌ incorrect i n failed fail false no wrong failure unresolved unsolved rejected error timeout timed_out "
    "exception syntaxerror no_answer noanswer",
}
_NUMBERS = {word: number for number, words in _VERDICTS.items() for word in words.split()} | {"timed out": 0.0}


@lru_cache(100_000)
def role_of(path: str) -> Role:
    """The role of a column that is not a verdict, by the last word of its path; "" without one. An `id` or `name` is
    that of what the word before it names: `instance.id` of a problem, `provider.id` of a system."""
    leaf = leaf_of(path)
    *_, before, _ = ["", *snake(path).split(".")] if "." in path else ["", ""]
    if leaf in ("id", "name") and before:
        if role := _ROLES.get(f"{before}_{leaf}"):
            return role
        if is_named(before, "system", "condition", "episode"):
            return ""
    return _ROLES.get(leaf, "id" if _OF_EXAMPLE.fullmatch(leaf) else "")


_OF_EXAMPLE = re.compile(r".*_(example|problem|question|task|instance)_(id|idx)")


@lru_cache(100_000)
def verdict_rank(path: str) -> int:
    """How surely a column holds verdicts, by its name: 1 it says so (`is_correct`), 2 a score or reward, 3 a status,
    which may only say that the sample was made; 0 for others."""
    if path.endswith(ALL):
        return 1
    *tables, leaf = snake(path).split(".")
    if _OF_THE_DATA & set(tables):
        return 0
    if leaf in MANY_VERDICTS:
        return 1
    if not _NEVER.fullmatch(leaf):
        for rank, pattern in enumerate((_CORRECT, _SCORE, _STATUS), 1):
            if pattern.fullmatch(leaf):
                return rank
    below = _SCORED_BELOW & set(tables)
    if _COUNTED.fullmatch(leaf):
        return 0
    return 2 if below and leaf not in (*NAMES["answer"], *NAMES["error"], "explanation", "history", "format") else 0


def is_maximum(path: str) -> bool:
    """Whether a column holds the most points, or the number of tests, of which a score is a part, by its name."""
    leaf = leaf_of(path)
    return is_named(leaf, "maximum") or bool(_MAXIMUM.fullmatch(leaf))


def is_maximum_of_points(path: str) -> bool:
    """Whether a name alone says that it is the most points of a score, as `max_score` does and `total` does not."""
    return is_named(leaf_of(path), "maximum")


def may_be_maximum(path: str) -> bool:
    """Whether a column may hold the most points of a score, as far as its name says, as `max_pts` and `weight` may, and
    `max_tokens` may not."""
    words = set(leaf_of(path).split("_"))
    return not words.isdisjoint(_MAY_BE_MAXIMUM) and words.isdisjoint(_OF_SETTINGS)


def failing_of(path: str, there: Mapping[str, str]) -> str:
    """The one of the columns that counts what the other one lacks, as `tests_failed` is to `tests_passed`; ""
    without one. there: the columns by their names in `snake`."""
    *tables, leaf = snake(path).split(".")
    words = leaf.split("_")
    for place, word in enumerate(words):
        for failing in _FAILING.get(word, ()):
            other = "_".join([*words[:place], failing, *words[place + 1 :]])
            if found := there.get(".".join([*tables, other])):
                return found
    return ""


ALL = "=all"
"""Behind the name of a column of lists, of which a sample has all."""


def parts_of(path: str) -> Literal["", "tests", "parts"]:
    """What a list in a row holds by its name, if not samples: the tests of one sample, or other parts of one."""
    words = set(leaf_of(path).split("_"))
    found = [kind for kind, known in _OF_PARTS.items() if words & known]
    return ("tests" if found[0] == "tests" else "parts") if found and not words & _SAMPLES else ""


_SAMPLES = frozenset(form for name in SAMPLE_LISTS for form in (name, name.removesuffix("s")))


def counts_tests(path: str) -> bool:
    """Whether the name of a column says that it counts tests of one sample."""
    return not _TESTS.isdisjoint(leaf_of(path).split("_"))


def is_share_of_samples(path: str) -> bool:
    """Whether the name of a column says that it has, beside a `count`, the share of the samples that are correct."""
    return bool(_MEANS.fullmatch(leaf_of(path)))


def verdict_word(word: str) -> float | None:
    """The number of a word for a verdict, as 1 of "resolved"; None for other words."""
    return _NUMBERS.get(word)


def field_text(value: Any) -> str:
    """A value as an id or answer: 1 and 1.0 are one, as a table may have changed one into the other."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def preference(path: str, role: Role) -> tuple[int, int, str]:
    """Sorts the columns of one role: less nested ones first, then by the order of their words."""
    names = NAMES[role]
    leaf = leaf_of(path)
    return (path.count("."), names.index(leaf) if leaf in names else len(names), path)


def verdict_number(value: Any) -> float | None:
    """A verdict as a number: 1 right, 0 wrong, or a score; NaN if the judging failed; None if it is not a verdict."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:  # hundreds of digits
            return None
    text = str(value).strip().lower()
    if share := _SHARE.fullmatch(text):
        some, every = int(share[1]), int(share[2])
        return some / every if some <= every and every else None
    if text in UNSCORED:
        return math.nan
    if text in _NUMBERS:
        return _NUMBERS[text]
    if text.startswith(("failed:", "error:", "wrong:", "failed ")):
        return 0.0
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def is_list_of_verdicts(text: str) -> bool:
    """Whether a text is a list of verdicts, as JSON."""
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return all(not isinstance(value, list | dict) and verdict_number(value) is not None for value in values)


def is_finite_number(value: object) -> bool:
    """Whether a value, or the text of a cell, is a finite number; a truth value is none."""
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return False


_SHARE = re.compile(r"(\d{1,9}) ?/ ?(\d{1,9})")
"""A part of a whole, as "2/4"."""


def is_share(value: Any) -> bool:
    """Whether a text is a part of a whole of more than one, as "2/4": of tests, or of samples."""
    found = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    return found is not None and int(found[2]) > 1


@lru_cache(100_000)
def snake(path: str) -> str:
    """The path of a column as its words are compared: `gradingResult.maxScore` and `max-score` as `max_score`."""
    return _CAPITAL.sub("_", path).lower().replace("-", "_")


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_of_request(path: str) -> bool:
    """Whether a name may only say that a request was answered, as `result.success` and `response.valid` do."""
    *tables, leaf = snake(path).split(".")
    return leaf in _ANSWERED and bool(tables) and tables[-1] in _REQUESTS


_ANSWERED = frozenset(("success", "succeeded", "successful", "valid", "status", "passed", "ok"))
_REQUESTS = frozenset(("result", "response", "request", "output", "completion", "generation", "api", "model_response"))


def leaf_of(path: str) -> str:
    """The last word of a column's path."""
    return snake(path).rpartition(".")[2]
