"""What columns and files tell apart among the rows of a problem, by their names: samples, conditions, systems."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

from dph.columns import is_named
from dph.measure.fields import field_text, leaf_of, role_of

_TELLING: dict[str, str] = {
    "sample": "seed seeds run runs try trial attempt sample rep reps repeat repetition replicate replica rollout draw "
    "generation gen completion epoch pass response candidate index idx number nr",
    "condition": "variant perturbation perturbed template condition config lang language locale shot shots "
    "fewshot hint noise paraphrase augmentation attack persona temperature system agent solver policy "
    "model judge engine provider episode turn iteration iter style mode version strategy method ablation difficulty "
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
_IN_PATHS: dict[str, str] = {
    "repeat": "seed run rs r s rep repeat repetition replicate replica sample try trial attempt rollout draw gen "
    "generation completion response pass part shard chunk rank worker process proc gpu device batch",
    "content": "result sample output out completion prediction pred eval judged graded score scored response log "
    "generation data record rollout answer verdict",
    "system": "checkpoint ckpt step iter iteration epoch stage phase round level temp temperature version setting exp "
    "experiment arm group baseline lr size model system agent method policy config variant prompt template condition "
    "fold judge language shot turn episode",
}
_PATHS = {
    kind: frozenset(form for word in words.split() for form in (word, f"{word}s")) for kind, words in _IN_PATHS.items()
}
"""Words beside a number in the names of files and folders: of further samples or of a part of all, of what a file
holds, and of systems, steps or conditions."""
_MEASURED = re.compile(r"(is|has|had|was|did|does|contains|needs|needed)_.*|.*ed(_.*)?|.*(refusal|fallback|retry)")
"""Names of flags that a sample turns out to have."""


Kind = Literal["", "sample", "condition", "setting", "measure", "result"]


@lru_cache(10_000)
def kind_of(path: str) -> Kind:
    """What a column without a role tells apart, by its name: samples; conditions, systems or episodes; settings of
    a run; what is measured of a sample but may also be set (`tokens`); what a sample turns out to have; "" if the name
    does not say it."""
    leaf = leaf_of(path)
    if leaf in ("id", "name", "label") and "." in path:  # of what the word before it names
        leaf = leaf_of(path.rpartition(".")[0])
    words = set(leaf.split("_"))
    of = {kind: bool(words & known) for kind, known in _KINDS.items()}
    measured = of["setting"] or of["measure"] or of["result"]
    if leaf in ("i", "j") or role_of(path) == "sample" or (of["sample"] and not measured):
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
    return bool(_MEASURED.fullmatch(leaf_of(path)))


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


def number_samples(before: str, after: str) -> bool:
    """Whether the words beside a number in a path say that the numbers count repeats of one system or parts of one log,
    as in `seed-0`, `rs0`, `runs/0` and `0.jsonl`. Beside any other word (`qwen1`, `checkpoint-0`, `topk0`, `0-shot`)
    they may tell systems, steps or conditions apart. before: the path up to the number."""
    folder, _, name = before.lower().rpartition("/")
    behind = re.match(r"[-_ ]?([a-z]*)", after.lower())
    behind = behind[1] if behind else ""
    words = re.findall(r"[a-z]+", name)
    if words:
        return words[-1] in _PATHS["repeat"] and behind not in _PATHS["system"]
    if re.search(r"\d", name):  # a date, or a version
        return False
    of_folder = re.findall(r"[a-z]+", folder.rpartition("/")[2])[-1:]
    return _PATHS["system"].isdisjoint(of_folder) and (not behind or behind in _PATHS["content"] | _PATHS["repeat"])


_BEFORE_NUMBERS = _KINDS["sample"] | {"", "rs", "s", "r"}
_NUMBERED = re.compile(r"([a-z]*)[-_ .#]?(\d{1,18})")


def sample_of(path: str) -> tuple[str, int] | None:
    """The name of a column of one of a problem's samples without its number, and this, as of `sample_0`."""
    match = re.fullmatch(r"(.*?)(\d+)(\D*)", leaf_of(path))
    if match is None or _OF_SAMPLE.isdisjoint(re.split(r"[^a-z]+", match[1] + "_" + match[3])):
        return None
    table, dot, _ = path.rpartition(".")
    return f"{table}{dot}{match[1]}#{match[3]}", int(match[2])
