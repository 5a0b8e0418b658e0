"""The names of columns and fields that readers of rows know: one table, by what a column is for.

Readers are of problems (files, hubs, TRL's data sets, batches of reward functions) and of judged samples (logs of other
harnesses, predictions). One rule holds for all of them: what a row holds is used, or is named in one line as `ignored`,
or the row is refused. Names are compared in lower case.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

_WORDS: dict[str, str] = {
    # of problems
    "prompt": "prompt question problem instruction messages",
    "input": "input",  # Alpaca's second half of an instruction
    "hint": "evidence hint",  # BIRD's, which `dph init sql` puts before the question
    "answer": "answer final_answer target label",
    "verifier": "verifier",
    "truth": "reward_model",  # verl's: {style, ground_truth}
    "of the prompt": "tools functions documents system system_prompt",  # what a template could write into a prompt
    "template variables": "chat_template_kwargs",  # what TRL hands to the chat template
    "reported": "kind difficulty index question_id",  # what evaluations and `dph verify` group and pair by
    "media": "image images img imgs video videos audio audios pixel_values pixel_values_videos image_grid_thw "
    "video_grid_thw input_features image_path image_paths image_url image_urls video_path video_url audio_path "
    "audio_url multi_modal_data mm_data",
    # of judged samples
    "condition": "condition variant perturbation prompt_template template prompt_style prompt_name lang language "
    "locale num_fewshot num_shots n_shots shots fewshot few_shot hint setting config_name temperature prompt_version "
    "prompt_variant noise paraphrase",
    "system": "model model_name model_id checkpoint system agent agent_name provider engine policy method",
    "episode": "turn step round iteration stage phase",
    "maximum": "max_score max_scores max_reward max_points max_grade maximum maximum_score full_score full_marks "
    "total_points total_score possible possible_points points_possible out_of max",
    "when": "time timestamp date created created_at updated_at started_at finished_at start_time end_time duration "
    "elapsed latency seconds uuid run_id request_id response_id",
    # of trainers, which hand them to every reward function
    "trainer": "prompts completions completion_ids prompt_ids trainer_state log_extra log_metric environments",
}
NAMES: Mapping[str, tuple[str, ...]] = {role: tuple(words.split()) for role, words in _WORDS.items()}
"""The names of each role, the preferred ones first."""

OF_VERIFIERS: Mapping[str, tuple[str, ...]] = {
    "sql": ("db", "db_id", "suite"),
    "math": ("set",),
    "exact": (),
    "countdown": ("numbers", "nums"),
}
"""The further columns that each built-in verifier reads; a reward function and a plug-in's verifier get all."""

MISSING = frozenset(("nan", "NaN", "NAN", "n/a", "N/A", "#N/A", "#NA", "<NA>", "NaT", "null", "Null", "NULL"))
"""What programs write into a table where a value is missing; Nan is a name."""
NO_ANSWERS = frozenset(
    ("na", "nil", "unknown", "missing", "-", "--", "?", "tbd", "todo", "proof", "notfound", "not found", "see solution")
)
"""What people write where a problem of mathematics has no answer, in lower case."""

_MARKS = re.compile(
    r"<image(?:_?\d+)?>|<\|(?:image|video|audio|vision)\w*\|>|<(?:start_of_image|image_soft_token|image_pad)>"
    r"|^\s*<(?:img|video|audio)>|<(?:img|video|audio)>\s*$",  # in a line, they are HTML that a question is about
    re.MULTILINE,
)
_MOST = 20  # names that are shown


@lru_cache(10_000)
def is_named(column: str, *roles: str) -> bool:
    """Whether a column's name has one of the roles of the table, in any case."""
    return any(column.lower() in NAMES[role] for role in roles)


def is_empty(value: Any) -> bool:
    """Whether a column says nothing in a row: it is null, or a text, list or table without content."""
    return value is None or (not value and isinstance(value, str | bytes | list | tuple | dict))


def media_of(row: Mapping[str, Any], used: Collection[str]) -> str:
    """The first column of a row that holds pictures, films or sounds and is not used as text; "" without one."""
    for column, value in row.items():
        if value is None or isinstance(value, int | float) or column in used:
            continue
        if (is_named(column, "media") and not is_empty(value)) or (not isinstance(value, str) and _is_media(value)):
            return column
    return ""


def _is_media(value: Any) -> bool:
    """Whether a value is a picture or a sound as the library datasets stores them, or a list of these."""
    if isinstance(value, list):
        return bool(value) and _is_media(value[0])
    return isinstance(value, dict) and (
        {*value} == {"bytes", "path"} or {"array", "sampling_rate"} <= value.keys()
    )  # of Image, Audio, Video and Pdf


def media_mark(text: str) -> str:
    """What stands in a prompt where a picture, a film or a sound belongs; "" if nothing does."""
    found = _MARKS.search(text) if "<" in text else None
    return found[0].strip() if found else ""


def ignored(columns: Iterable[str], why: str = "") -> str:
    """The line about columns that nothing reads, each named once; "" if there is none. why: who would read them."""
    names = list(dict.fromkeys(columns))
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"ignored: {', '.join(names[:_MOST])}{more}{why and f' ({why})'}"
