"""Chunks of finished work: each is computed once, whatever ends the process, and nothing damaged is used."""

import os
import signal

import pytest

from dph.errors import Interrupted, RunError
from dph.runs.chunks import Chunks
from dph.runs.directory import CHUNKS
from dph.runs.files import LOCK, lock

INPUTS, PROBLEMS = {"the model's weights": "w"}, {f"p{i}": f"h{i}" for i in range(7)}
THINGS = [f"p{i}" for i in range(7)]
EXPECTED = [[thing, 0.1, "ä\t\n\ud800", None] for thing in THINGS]


def worked(run, computed, *, stop_at="", inputs=INPUTS, problems=PROBLEMS, what="problems", number=0):
    """The values of seven things in chunks of two; `computed` notes the things, and one of them stops the work."""

    def make(part):
        if stop_at in part:
            raise Interrupted(number) if number else RuntimeError("stop")
        computed.extend(part)
        return [(thing, 0.1, "ä\t\n\ud800", None) for thing in part]

    with Chunks(run, inputs, problems) as chunks:
        chunks.once("limit", lambda: computed.append("limit") or 5)
        values = chunks.map(what, THINGS, 2, make, "working")
        assert chunks.once("limit", lambda: 6) == 6, "a value is read once"
        return values


@pytest.mark.parametrize("stop", THINGS[2:])
def test_work_that_is_interrupted_is_never_repeated(tmp_path, stop):
    computed = []
    with pytest.raises(RuntimeError):
        worked(tmp_path, computed, stop_at=stop)
    done = THINGS.index(stop) // 2 * 2
    assert computed == ["limit", *THINGS[:done]]
    with pytest.raises(RuntimeError):
        worked(tmp_path, computed, stop_at=stop)
    assert worked(tmp_path, computed) == EXPECTED
    assert computed == ["limit", *THINGS]
    assert worked(tmp_path, computed) == EXPECTED and len(computed) == 8


def test_nothing_is_written_before_the_first_chunk_is_finished(tmp_path):
    with pytest.raises(RuntimeError):
        worked(tmp_path, [], stop_at="p1")
    assert not list(tmp_path.iterdir())
    assert worked(None, []) == EXPECTED


def test_a_file_that_is_cut_anywhere_loses_only_what_is_not_whole(tmp_path):
    worked(tmp_path, [])
    file = tmp_path / CHUNKS
    whole = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 6
    for cut in {0, 1, *ends, *(end - 1 for end in ends), *(end + 3 for end in ends[:-1]), *range(0, len(whole), 37)}:
        file.write_bytes(whole[:cut])
        lines = sum(end <= cut for end in ends)
        computed = []
        assert worked(tmp_path, computed) == EXPECTED
        assert computed == (["limit"] if lines < 2 else []) + THINGS[2 * max(0, lines - 2) :]
        assert file.read_bytes() == whole


def test_a_changed_byte_ends_what_is_believed(tmp_path):
    worked(tmp_path, [])
    file = tmp_path / CHUNKS
    whole = file.read_bytes()
    place = whole.rindex(b'"p2"') + 2
    file.write_bytes(whole[:place] + b"9" + whole[place + 1 :])
    computed = []
    assert worked(tmp_path, computed) == EXPECTED and computed == THINGS[2:]
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": {"the model's weights": "v"}}, "the model's weights are not those that"),
        ({"inputs": INPUTS | {"the tokenizer's rules": "t"}}, "the tokenizer's rules are not those that"),
        ({"problems": PROBLEMS | {"p6": "other"}}, "1 differ, for example 'p6'"),
        ({"problems": dict(list(PROBLEMS.items())[:-1])}, "1 differ, for example 'p6'"),
        ({"problems": dict(reversed(PROBLEMS.items()))}, "6 differ, for example 'p0'"),
    ],
)
def test_work_on_other_inputs_is_refused_and_kept(tmp_path, change, said):
    with pytest.raises(RuntimeError):
        worked(tmp_path, [], stop_at="p4")
    before = (tmp_path / CHUNKS).read_bytes()
    with pytest.raises(RunError, match=said):
        worked(tmp_path, [], **change)
    assert (tmp_path / CHUNKS).read_bytes() == before


def test_work_by_other_settings_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text("seed = 1")
    with pytest.raises(RuntimeError):
        worked(tmp_path, [], stop_at="p4")
    (tmp_path / "config.toml").write_text("seed = 2")  # by hand: a stage compares its settings with the file
    with pytest.raises(RunError, match="the settings in config"):
        worked(tmp_path, [])


def test_work_that_this_version_does_not_ask_for_is_computed_again(tmp_path):
    worked(tmp_path, [], what="other things")
    computed = []
    assert worked(tmp_path, computed) == EXPECTED and computed == THINGS
    with Chunks(tmp_path, INPUTS, PROBLEMS) as chunks:
        assert chunks.saved() == "7 of 7 problems are saved; continue with --resume"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_how_much_is_saved(tmp_path, number):
    for stop, said in (
        ("p1", "nothing is saved yet; run it again"),
        ("p5", "4 of 7 problems are saved; continue with --resume"),
    ):
        with pytest.raises(Interrupted) as stopped:
            worked(tmp_path, [], stop_at=stop, number=number)
        assert (str(stopped.value), stopped.value.number) == (f"interrupted; {said}", number)
    with pytest.raises(Interrupted, match="6 of 7 problems are saved"):
        worked(tmp_path, [], stop_at="p6", number=number)
    with pytest.raises(Interrupted, match="6 of 7 problems are saved"), Chunks(tmp_path, INPUTS, PROBLEMS):
        raise KeyboardInterrupt  # before anything is read
    with pytest.raises(Interrupted, match="nothing is saved without --out"):
        worked(None, [], stop_at="p5", number=number)


def test_an_error_says_so_too_unless_nothing_is_saved(tmp_path, capsys):
    with pytest.raises(RuntimeError):
        worked(tmp_path, [], stop_at="p0")
    assert "saved" not in capsys.readouterr().err
    with pytest.raises(RuntimeError):
        worked(tmp_path, [], stop_at="p2")
    assert "2 of 7 problems are saved; continue with --resume" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="no O_NOFOLLOW")
@pytest.mark.parametrize("content", ["keep", None])
def test_a_link_out_of_the_run_is_not_written_through(tmp_path, content):
    (tmp_path / "run").mkdir()
    other = tmp_path / "other"
    if content is not None:
        other.write_text(content)
    for name, act in ((CHUNKS, lambda: worked(tmp_path / "run", [])), (LOCK, lambda: lock(tmp_path / "run"))):
        (tmp_path / "run" / name).symlink_to(other)
        with pytest.raises(OSError):
            act()
        assert (other.read_text() if other.exists() else None) == content
