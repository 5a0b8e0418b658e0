"""The table of names of columns, and the line about those that nothing reads."""

from dph.columns import NAMES, ignored, is_empty, is_named


def test_each_column_that_nothing_reads_is_named_once():
    assert ignored(["images", "tools", "images"]) == "ignored: images, tools"
    assert ignored(["level"], "a reward function gets them") == "ignored: level (a reward function gets them)"
    assert ignored([]) == ""


def test_a_table_of_very_many_columns_makes_a_short_line():
    line = ignored(f"c{number}" for number in range(1000))
    assert line.startswith("ignored: c0, c1, ") and line.endswith(", c19 and 980 more")


def test_names_are_compared_in_lower_case():
    assert is_named("Image", "media") and is_named("PROMPT", "answer", "prompt") and not is_named("imagery", "media")
    assert all(name == name.lower() for names in NAMES.values() for name in names)


def test_what_says_nothing_is_empty_and_zero_is_not():
    assert all(map(is_empty, (None, "", [], {}, b""))) and not any(map(is_empty, (0, False, "0", [None], {"a": None})))
