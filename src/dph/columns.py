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
    "beside the question": "context body passage story background scenario premise paragraph description",
    "beside the answer": "unit units answer_unit answer_units",
    "database": "db db_id database db_name database_name database_id",
    "choices": "choices options candidates alternatives mc_options answer_choices multiple_choice",
    "truth of the answer": "is_correct correct answer_correct is_right is_valid",
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

_MARKS = re.compile(
    r"<(?:image|IMAGE|Image)(?:[ _-]?\d+)?>|<\|(?:image|video|audio|vision)\w*\|>"
    r"|<(?:start_of_image|image_soft_token|image_pad|image_placeholder)>"
    r"|\[(?:IMAGE|IMG|PICTURE|VIDEO|AUDIO)(?:[ _-]?\d+)?\]|^\s*\[(?:image|picture|video|audio)(?:[ _-]?\d+)?\]\s*$"
    r"|^\s*<(?:img|video|audio)>|<(?:img|video|audio)>\s*$",  # in a line, they are HTML that a question is about
    re.MULTILINE,
)
_MOST = 20  # names that are shown


@lru_cache(10_000)
def is_named(column: str, *roles: str) -> bool:
    """Whether a column's name has one of the roles of the table, in any case.

    >>> is_named("Image_URL", "media"), is_named("context", "media")
    (True, False)
    """
    return any(column.lower() in NAMES[role] for role in roles)


def is_empty(value: Any) -> bool:
    """Whether a column says nothing in a row: it is null, or a text, list or table without content.

    >>> is_empty([]), is_empty(0)
    (True, False)
    """
    return value is None or (not value and isinstance(value, str | bytes | list | tuple | dict))


def media_of(row: Mapping[str, Any], used: Collection[str]) -> str:
    """The first column of a row, or field of one, that holds pictures, films or sounds and is not used as text, as in
    "extra_info.images"; "" without one. Numbers, and words such as "none", hold none.

    >>> media_of({"question": "1 + 1?", "image": "figure.png"}, ["question"])
    'image'
    >>> media_of({"question": "1 + 1?", "image": "none"}, ["question"])
    ''
    """
    for column, value in row.items():
        if column not in used and (found := _media_in(column, value)):
            return found
    return ""


def _media_in(name: str, value: Any, depth: int = 3) -> str:
    """The name of the field with media in a column or field; "" without one."""
    if _says_none(value):
        return ""
    if _is_media(value) or (_is_shown(name, value) and not isinstance(value, dict)):
        return name
    if isinstance(value, dict) and is_named(name, "media"):
        return name
    if not depth or not isinstance(value, dict):
        return ""
    inside = (_media_in(f"{name}.{field}", inner, depth - 1) for field, inner in value.items())
    return next(filter(None, inside), "")


def _says_none(value: Any) -> bool:
    """Whether a value says that there is nothing: null, a number, an empty list, or a word such as none."""
    if isinstance(value, list | tuple):
        numbers = value and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
        return not numbers and all(map(_says_none, value))
    if isinstance(value, str):
        return value.strip().lower() in _NONE_SHOWN
    return value is None or isinstance(value, int | float) or is_empty(value)


def _is_shown(name: str, value: Any) -> bool:
    """Whether a column of this name, whose value says something, shows a picture or plays a sound. Names that may mean
    a text as well, such as figure or image_caption, do if the value is a file of such a kind."""
    leaf = name.rpartition(".")[2].lower()
    if is_named(leaf, "media"):
        return True
    words = {*re.findall("[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.rpartition(".")[2]).lower())}
    words = {word.removesuffix("s") for word in words}
    if words & _SHOWN_WORDS and words <= _SHOWN_WORDS | _ABOUT_FILES:
        return True
    first = value[0] if isinstance(value, list | tuple) and value else value
    return (
        bool(words & (_SHOWN_WORDS | _MAYBE_SHOWN)) and isinstance(first, str) and bool(_FILE.fullmatch(first.strip()))
    )


def _is_media(value: Any) -> bool:
    """Whether a value is a picture or a sound as the library datasets stores them, a part of a message that shows one,
    or a list of these."""
    if isinstance(value, list | tuple):
        return any(map(_is_media, value[:20]))
    if not isinstance(value, dict):
        return isinstance(value, str) and value.startswith(("data:image/", "data:video/", "data:audio/"))
    if {*value} == {"bytes", "path"} or {"array", "sampling_rate"} <= value.keys():  # of Image, Audio, Video and Pdf
        return True
    kind = value.get("type")
    return isinstance(kind, str) and bool(_MEDIA_PART.fullmatch(kind)) and len(value) > 1


_NONE_SHOWN = {
    "",
    "none",
    "no",
    "nan",
    "null",
    "na",
    "n/a",
    "nil",
    "false",
    "0",
    "-",
    "--",
    "[]",
    "{}",
    "[none]",
    "['']",
    '[""]',
}
_SHOWN_WORDS = {"image", "img", "video", "audio", "pixel"}
_ABOUT_FILES = {
    "decoded",
    "path",
    "url",
    "uri",
    "file",
    "filename",
    "byte",
    "base",
    "b",
    "data",
    "list",
    "raw",
    "encoded",
}
_MAYBE_SHOWN = {
    *("picture", "photo", "photograph", "figure", "fig", "diagram", "drawing", "chart", "graph", "plot", "screenshot"),
    *(
        "speech",
        "sound",
        "voice",
        "recording",
        "wav",
        "clip",
        "film",
        "movie",
        "media",
        "multimedia",
        "frame",
        "attachment",
    ),
}
_FILE = re.compile(
    r"[^\n]{1,1000}\.(?:png|jpe?g|gif|bmp|webp|tiff?|svg|heic|pdf|mp4|avi|mov|mkv|webm|wav|mp3|flac|ogg|m4a|opus)(?:\?\S*)?"
    r"|https?://\S+",
    re.I,
)
_MEDIA_PART = re.compile(r"(?:input_)?(?:image|video|audio|media|file)(?:_url|_file)?", re.I)


def media_mark(text: str) -> str:
    """What stands in a prompt where a picture, a film or a sound belongs; "" if nothing does.

    >>> media_mark("How many cats? <image>"), media_mark("Is 3 < 5?")
    ('<image>', '')
    """
    found = _MARKS.search(text) if "<" in text or "[" in text else None
    return found[0].strip() if found else ""


def ignored(columns: Iterable[str], why: str = "") -> str:
    """The line about columns that nothing reads, each named once; "" if there is none. why: who would read them.

    >>> ignored(["level", "tools"], "the verifier does not read them")
    'ignored: level, tools (the verifier does not read them)'
    """
    names = list(dict.fromkeys(columns))
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"ignored: {', '.join(names[:_MOST])}{more}{why and f' ({why})'}"
