"""The public benchmarks by name: the task, split and published size of each, and the paper's k."""

from collections.abc import Mapping
from dataclasses import dataclass

from dph.process.progress import say


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The settings that `--task NAME` selects."""

    task: str
    split: str
    k: int
    """Samples per problem in the paper's Tables 1 to 4 and 8, for pass@k and mean@k. Their header for mathematics names
    64, 16 and 8, and the available texts lost which columns each of the three spans. AMC23 belongs to the 64: its means
    61.5 and 60.4 are no multiples of 1/(40·16). So 16 begins with the next column, MATH500; its end is not known."""
    rule: str = ""
    """Comparator of the official SQL evaluator; mathematical answers are graded by the Qwen2.5-Math evaluation's
    rules."""


BENCHMARKS: Mapping[str, Benchmark] = {
    "spider": Benchmark("spider", "dev", 16, "spider"),
    "spider_test": Benchmark("spider", "test", 16, "spider"),
    "spider_syn": Benchmark("spider", "syn", 16, "spider"),
    "spider_dk": Benchmark("spider", "dk", 16, "spider"),
    "spider_realistic": Benchmark("spider", "realistic", 16, "spider"),
    "bird": Benchmark("bird", "dev", 16, "bird"),
    "bird_mini_dev": Benchmark("bird", "mini_dev", 16, "bird"),
    "aime24": Benchmark("aime24", "test", 64),
    "aime25": Benchmark("aime25", "test", 64),
    "amc23": Benchmark("amc23", "test", 64),
    "math500": Benchmark("math500", "test", 16),
    "olympiadbench": Benchmark("olympiadbench", "test", 8),
    "minerva_math": Benchmark("minerva_math", "test", 8),
    "college_math": Benchmark("college_math", "test", 8),
    "gsm8k": Benchmark("gsm8k", "test", 8),
}
"""The benchmarks that the paper evaluates on, plus Spider's variants and GSM8K."""

SIZES: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("spider", "train"): (8659, 7000),  # with and without train_others
    ("spider", "dev"): (1034,),
    ("spider", "test"): (2147,),
    ("spider", "syn"): (1034,),
    ("spider", "syn_train"): (7000,),
    ("spider", "dk"): (535,),
    ("spider", "realistic"): (508,),
    ("bird", "train"): (9428, 6601),  # as first published, and the filtered set of 2025
    ("bird", "dev"): (1534,),
    ("bird", "mini_dev"): (500,),
    ("aime24", "test"): (30,),
    ("aime25", "test"): (30,),
    ("amc23", "test"): (40,),
    ("math500", "test"): (500,),
    ("olympiadbench", "test"): (675, 674),  # the Qwen2.5-Math evaluation's, and OE_TO_maths_en_COMP
    ("minerva_math", "test"): (272,),
    ("college_math", "test"): (2818,),
    ("gsm8k", "train"): (7473,),
    ("gsm8k", "test"): (1319,),
    ("math", "train"): (7500, 7474),
    ("math", "test"): (5000,),
    ("dapo_math_17k", "train"): (17917, 17398),  # as published without repeated rows, and without equal texts
    ("gaokao2023en", "test"): (385,),
    ("hmmt_feb_2025", "test"): (30,),
    ("olymmath_easy", "test"): (100,),
    ("olymmath_hard", "test"): (100,),
}  # fmt: skip
"""The published numbers of problems by task and split, the usual one first."""


def check_size(task: str, split: str, count: int, where: object, *, subset: bool) -> None:
    """Warn if a split does not have its published number of problems, unless `subset` says that this is intended."""
    sizes = SIZES.get((task, split))
    if sizes and count not in sizes and not subset:
        say(
            f"warning: {task}'s split {split!r} has {' or '.join(map(str, sizes))} problems, but {where} has {count}; "
            "scores are not comparable with published ones (set the option subset to true if the file is a subset)"
        )
