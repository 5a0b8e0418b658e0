"""The contents of columns of judged samples, by their names. It lists words that programs use, not programs."""

import math
import re
from collections.abc import Iterable, Sequence
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
    "model_output full_model_response code code_list output_list output_response solution program",
    "error": "error exception error_message",
    "count": "samples num_samples n_samples n attempts num_attempts n_attempts trials num_trials n_trials "
    "num_generations num_rollouts num_runs n_runs num_tries n_tries sample_count total_samples total num_total",
}
NAMES: dict[Role, tuple[str, ...]] = {role: tuple(words.split()) for role, words in _WORDS.items()}
"""The words of each role, the preferred ones first."""
OF_SAMPLES, OF_EITHER = (
    tuple(f"{before}{word}{after}" for word in words for before, after in (("num_", ""), ("n_", ""), ("", "_count")))
    for words in (("correct", "right", "solved", "success", "successes"), ("passed", "pass", "passes"))
)
OF_SAMPLES += ("successes", "correct_samples")
OF_EITHER += ("passes",)
MANY_VERDICTS = (*OF_SAMPLES, *OF_EITHER)
"""Numbers of correct samples of a problem, next to a `count`, of which those OF_EITHER may also count tests; and `c`,
which alone means nothing."""
OF_TESTS = ("total", "num_total")
"""Counts that may be of a sample's tests as well as of a problem's samples."""

SAMPLE_LISTS = {
    *("samples", "completions", "generations", "rollouts", "attempts", "trials", "responses", "outputs", "predictions"),
    *("runs", "repeats", "epochs", "solutions", "candidates"),
}
"""Lists of objects in a row that are its samples."""
UNSURE_LISTS = {"results", "evaluations", "answers", "records", "data"}
"""Lists that may also hold tests or turns: they are samples if each object has a response or an answer."""

_CORRECT = re.compile(
    r"correct|correctness|passed|pass|success|successful|succeeded|solved|resolved|right|accepted|valid|exact_match|em|"
    r"acc|accuracy|acc_norm|hit|matched|match|judge_grade|judgement|judgment|verdict|graded_list|"
    r"(is|all|was)_?(correct|passed|success|solved|resolved|right|accepted|valid)|"
    r".+_(correct|correctness|passed|solved|acc|accuracy)|(accuracy|correct)\w*_reward(_func)?"
)
_SCORE = re.compile(r"(.*_)?(scores?|rewards?|grades?)(_func)?|.*scored_generations|reward_func\w*")
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
    "maximum": "max maximum full possible pts points marks weight worth scale rubric available highest ceiling",
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
_TELLING: dict[str, str] = {
    "sample": "seed seeds run runs try trial attempt sample iteration iter rep reps repeat repetition replicate "
    "replica rollout draw generation gen completion epoch pass response candidate index idx",
    "condition": "variant perturbation perturbed template condition config lang language locale shot shots "
    "fewshot hint noise paraphrase augmentation attack persona temperature system agent solver policy "
    "model judge engine provider episode turn style mode version strategy method ablation difficulty "
    "instruction prompt",
    "setting": "setting max min limit budget effort format context window top level cap size target threshold type "
    "thinking think cot greedy rag search retrieval tool tools use with without enable enabled disable disabled",
    "measure": "time timestamp date usage tokens token length len chars words lines steps turns calls count stop "
    "reasoning",
    "result": "ms seconds duration latency elapsed cost price logprob logprobs entropy loss reward score scores rate "
    "reason finish stopped error errors truncated valid uuid hash worker gpu device rank shard host cached retries "
    "exit detail note comment explanation log logs message stdout stderr",
}
_WIDE = "sample attempt trial run rollout try seed generation completion rep repeat draw gen replicate"
_OF_SAMPLE = frozenset(_WIDE.split())
"""Words in the names of columns that hold one sample each of a problem."""
_KINDS = {kind: frozenset(words.split()) for kind, words in _TELLING.items()}
"""Words in the names of columns that number samples, that tell conditions, systems or episodes apart, that are set for
a run, that are measured of a sample but may also be set, and that a sample turns out to have."""
_OF_FILES = (
    "checkpoint checkpoints ckpt ckpts step steps iter iters iteration epoch epochs stage phase round level temp v ver "
    "setting exp experiment arm group baseline lr size"
)
_SYSTEMS = _KINDS["condition"] | frozenset(_OF_FILES.split())
"""Words beside a number in the names of files that are no samples of one model."""
_MEASURED = re.compile(r"(is|has|had|was|did|does|contains|needs|needed)_.*|.*ed(_.*)?|.*(refusal|fallback|retry)")
"""Names of flags that a sample turns out to have."""
_SCORED_BELOW = {"scores", "metrics", "metric", "rewards"}
_OF_THE_DATA = {"doc", "info", "extra_info", "config", "metadata", "args", "input", "arguments", "usage", "store"}
"""Tables of a row that describe the problem or the run; a verdict is never below them."""

_VERDICTS = {
    1.0: "correct c passed pass true yes y ok success resolved solved right accepted",
    0.5: "p partial partially_correct",
    0.0: "incorrect i n failed fail false no wrong failure unresolved unsolved rejected error timeout timed_out "
    "exception syntaxerror no_answer noanswer",
}
_NUMBERS = {word: number for number, words in _VERDICTS.items() for word in words.split()} | {"timed out": 0.0}


@lru_cache(100_000)
def role_of(path: str) -> Role:
    """The role of a column that is not a verdict, by the last word of its path; "" without one."""
    leaf = _leaf(path)
    roles: list[Role] = [role for role, names in NAMES.items() if leaf in names]
    return roles[0] if roles else ""


@lru_cache(100_000)
def verdict_rank(path: str) -> int:
    """How surely a column holds verdicts, by its name: 1 it says so (`is_correct`), 2 a score or reward, 3 a status,
    which may only say that the sample was made; 0 for others."""
    *tables, leaf = path.lower().replace("-", "_").split(".")
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
    leaf = _leaf(path)
    return is_named(leaf, "maximum") or bool(_MAXIMUM.fullmatch(leaf))


def may_be_maximum(path: str) -> bool:
    """Whether a column may hold the most points of a score, as far as its name says, as `max_pts` and `weight` may, and
    `max_tokens` may not."""
    words = set(_leaf(path).split("_"))
    return not words.isdisjoint(_MAY_BE_MAXIMUM) and words.isdisjoint(_OF_SETTINGS)


def failing_of(path: str, names: Iterable[str]) -> str:
    """The one of the columns that counts what the other one lacks, as `tests_failed` is to `tests_passed`; ""
    without one."""
    there = {name.lower().replace("-", "_"): name for name in names}
    *tables, leaf = path.lower().replace("-", "_").split(".")
    words = leaf.split("_")
    for place, word in enumerate(words):
        for failing in _FAILING.get(word, ()):
            other = "_".join([*words[:place], failing, *words[place + 1 :]])
            if found := there.get(".".join([*tables, other])):
                return found
    return ""


def counts_tests(path: str) -> bool:
    """Whether the name of a column says that it counts tests of one sample."""
    return not _TESTS.isdisjoint(_leaf(path).split("_"))


Kind = Literal["", "sample", "condition", "setting", "measure", "result"]


@lru_cache(10_000)
def kind_of(path: str) -> Kind:
    """What a column without a role tells apart, by its name: samples; conditions, systems or episodes; settings of
    a run; what is measured of a sample but may also be set (`tokens`); what a sample turns out to have; "" if the name
    does not say it."""
    leaf = _leaf(path)
    words = set(leaf.split("_"))
    of = {kind: bool(words & known) for kind, known in _KINDS.items()}
    measured = of["setting"] or of["measure"] or of["result"]
    if leaf in ("i", "j", "k") or role_of(path) == "sample" or (of["sample"] and not measured):
        return "sample" if not of["condition"] else "condition"
    if is_named(leaf, "condition", "system", "episode") or (of["condition"] and not of["measure"] and not of["result"]):
        return "condition"
    if of["setting"]:
        return "setting"
    if of["result"] or is_named(leaf, "media"):
        return "result"
    return "measure" if of["measure"] or is_named(leaf, "when") else ""


def is_measured(path: str) -> bool:
    """Whether the name of a flag says that a sample turned out to have it, as `is_refusal` or `extracted` do."""
    return bool(_MEASURED.fullmatch(_leaf(path)))


def are_numbers(values: Iterable[Any]) -> bool:
    """Whether different values number samples: whole numbers, also as text and behind a word for samples as in `run-3`;
    behind another word (`v1`, `checkpoint-2`) they do not."""
    for value in values:
        match = _NUMBERED.fullmatch(field_text(value).strip().lower()) if type(value) in (str, int, float) else None
        if match is None or match[1] not in _BEFORE_NUMBERS:
            return False
    return True


def counts_up(numbers: Sequence[int]) -> bool:
    """Whether sorted numbers count from 0 or 1 without a gap."""
    return list(numbers) in ([*range(len(numbers))], [*range(1, len(numbers) + 1)])


def names_systems(before: str, after: str) -> bool:
    """Whether the words beside a number in a path say that the numbers tell systems, steps or conditions apart, as in
    `checkpoint-0` and `0-shot`."""
    words = re.split(r"[^a-z]+", before.lower().rpartition("/")[2].rstrip("-_ .=#"))[-1:]
    words += re.findall(r"^[-_ ]?([a-z]+)", after.lower())
    return not _SYSTEMS.isdisjoint(words)


_BEFORE_NUMBERS = _KINDS["sample"] | {"", "rs", "s", "r"}
_NUMBERED = re.compile(r"([a-z]*)[-_ .#]?(\d{1,18})")


def field_text(value: Any) -> str:
    """A value as an id or answer: 1 and 1.0 are one, as a table may have changed one into the other."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def preference(path: str, role: Role) -> tuple[int, int, str]:
    """Sorts the columns of one role: less nested ones first, then by the order of their words."""
    names = NAMES[role]
    leaf = _leaf(path)
    return (path.count("."), names.index(leaf) if leaf in names else len(names), path)


def verdict_number(value: Any) -> float | None:
    """A verdict as a number: 1 right, 0 wrong, or a score; NaN if the judging failed; None if it is not a verdict."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:  # hundreds of digits
            return None
    text = str(value).strip().lower()
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


def sample_of(path: str) -> tuple[str, int] | None:
    """The name of a column of one of a problem's samples without its number, and this, as of `sample_0`."""
    match = re.fullmatch(r"(.*?)(\d+)(\D*)", _leaf(path))
    if match is None or _OF_SAMPLE.isdisjoint(re.split(r"[^a-z]+", match[1] + "_" + match[3])):
        return None
    return f"{path[: -len(_leaf(path)) or None]}{match[1]}#{match[3]}", int(match[2])


def _leaf(path: str) -> str:
    return path.lower().replace("-", "_").rpartition(".")[2]
