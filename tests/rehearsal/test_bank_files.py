"""The files of the bank: restored as it was, and refused by name where they are damaged; its memory."""

import itertools
import json
import tracemalloc

import pytest

from bank_support import admit, bank, held, solution
from dph.errors import RunError
from dph.measure.metrics import answer_of
from dph.rehearsal import bank_files
from dph.rehearsal.bank_files import BankFiles
from dph.rehearsal.modes import Forms, Solution
from dph.rehearsal.store import Rehearsal
from dph.types import Problem


def names(run):
    return sorted(file.name for file in (run / "bank").iterdir())


OF_CHECKPOINT = ("bank.parquet", "bank_new.parquet", "bank_files.json")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A bank after four steps with its files, and a checkpoint of it: the last step's entry is in no file."""
    monkeypatch.setattr(bank_files, "TOKENS_OF_A_FILE", 12)
    store, files = bank(capacity=2), BankFiles(tmp_path / "run")
    (tmp_path / "run").mkdir()
    files.write(0, store.begin([Rehearsal([1, ord("a")], [5, 6], "a", [-0.25, -0.1], "v")]))
    files.commit()
    steps = ([("a", ["x", "y é"]), ("b", ["x"])], [("a", ["y"])], [("c", ["z"]), ("a", ["uu"])], [("d", ["x", "y"])])
    for step, groups in enumerate(steps, 1):
        files.write(step, admit(store, step, groups).admitted)
        files.commit()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    files.save(store, checkpoint)
    return store, files, checkpoint


def test_a_bank_is_restored_as_it_was(saved):
    store, files, checkpoint = saved
    assert names(files.run) == ["step-00000000.parquet", "step-00000003.parquet"]  # 4 + 2·3 tokens, then 3 + 4 more
    other, again = bank(capacity=2), BankFiles(files.run)
    again.restore(other, checkpoint)
    assert held(other) == held(store) and len(other) == len(store)
    for cursor, count in itertools.product(range(5), range(1, 6)):
        assert other.draw(cursor, count) == store.draw(cursor, count)
    before = [(checkpoint / name).read_bytes() for name in OF_CHECKPOINT]
    again.save(other, checkpoint)
    assert [(checkpoint / name).read_bytes() for name in OF_CHECKPOINT] == before
    written = []
    for one, of_one in ((store, files), (other, again)):
        of_one.write(9, admit(one, 9, [("a", ["x", "q"]), ("b", ["x", "longer x"])]).admitted)
        of_one.commit()
        written.append((files.run / "bank" / "step-00000009.parquet").read_bytes())
    assert held(other) == held(store) and written[0] == written[1]
    assert other.metrics(other.admission(9, [])) == store.metrics(store.admission(9, []))


def test_a_step_that_was_not_taken_is_not_saved(saved):
    """What the step admitted may be in a file already; a checkpoint of the step before does not name the file."""
    store, files, checkpoint = saved
    before = [(checkpoint / name).read_bytes() for name in OF_CHECKPOINT]
    files.write(5, store.admission(5, [store.sight("f", [solution("f", "a long response")])]).admitted)
    assert "step-00000005.parquet" in names(files.run)
    files.save(store, checkpoint)
    assert [(checkpoint / name).read_bytes() for name in OF_CHECKPOINT] == before
    files.drop(checkpoint)
    assert names(files.run) == ["step-00000000.parquet", "step-00000003.parquet"]


def test_files_that_a_checkpoint_does_not_name_are_dropped(saved):
    _, files, checkpoint = saved
    (files.run / "bank" / ".step-00000009.parquet.new.999999.1.tmp").touch()
    (files.run / "bank" / "mine.txt").touch()
    files.finish(4)
    assert "step-00000004.parquet" in names(files.run)
    files.drop(checkpoint)
    assert names(files.run) == ["mine.txt", "step-00000000.parquet", "step-00000003.parquet"]
    files.drop(None)
    assert names(files.run) == ["mine.txt"]


def test_a_long_run_has_few_files(tmp_path):
    """One new response of 102 tokens in each of 200 steps: no file while they are fewer than TOKENS_OF_A_FILE."""
    (tmp_path / "run").mkdir()
    problems = {f"p{i}": Problem(f"p{i}", "?", "1", "exact") for i in range(200)}
    store = bank("tokens", 1, problems=problems, forms=Forms(problems, lambda *_: "", answer_of))
    files = BankFiles(tmp_path / "run")
    for step, id in enumerate(problems, 1):
        one = Solution(id, [7, 8], list(range(100)), [-1.0] * 100, "", True, True)
        admission = store.admission(step, [store.sight(id, [one])])
        files.write(step, admission.admitted)
        store.commit(admission)
        files.commit()
    assert not (tmp_path / "run" / "bank").exists()
    files.finish(200)
    assert names(tmp_path / "run") == ["step-00000200.parquet"]


def damaged_byte(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged_byte, r"step-00000003\.parquet is not the file that the run wrote"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), r"step-00000003\.parquet is not the file"),
        (lambda file: file.write_bytes(b""), r"step-00000003\.parquet is not the file"),
        (lambda file: file.unlink(), r"step-00000003\.parquet, a file of the bank, cannot be read"),
        (lambda file: file.write_bytes(file.with_name("step-00000000.parquet").read_bytes()), "is not the file that"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(saved, damage, said):
    _, files, checkpoint = saved
    damage(files.run / "bank" / "step-00000003.parquet")
    with pytest.raises(RunError, match=said):
        BankFiles(files.run).restore(bank(), checkpoint)


def test_a_checkpoint_that_does_not_fit_the_files_is_refused(saved):
    _, files, checkpoint = saved
    hashes = json.loads((checkpoint / "bank_files.json").read_text())
    for content, said in (
        (hashes[:-1], r"names entry \d of step \d, which no file of the bank has"),
        ([["1", 2]], "is damaged"),
        ({"a": 1}, "is damaged"),
        (None, "is damaged"),
    ):
        (checkpoint / "bank_files.json").write_text(json.dumps(content))
        with pytest.raises(RunError, match=said):
            BankFiles(files.run).restore(bank(), checkpoint)
    (checkpoint / "bank_files.json").write_text(json.dumps(hashes))
    for name in ("bank_new.parquet", "bank.parquet"):
        (checkpoint / name).write_bytes(b"PAR1 no table PAR1")
        with pytest.raises(RunError, match=rf"{name}, a file of the bank, is damaged"):
            BankFiles(files.run).restore(bank(), checkpoint)


def test_a_large_bank_takes_little_memory():
    """100 tokens and their log-probabilities take 800 bytes; as lists of Python's numbers they would take 6 kB."""
    ids, values = list(range(1000, 1100)), [-0.1 - i / 1000 for i in range(100)]
    problems = {f"p{i}": Problem(f"p{i}", "?", "1", "exact") for i in range(50)}
    store = bank("tokens", 99, problems=problems, forms=Forms(problems, lambda *_: "", answer_of))
    tracemalloc.start()
    for step in range(20):
        groups = [Solution(id, [7] * 50, [step, *ids], [-1.0, *values], "", True, True) for id in problems]
        store.commit(store.admission(step, [store.sight(one.problem_id, [one]) for one in groups]))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(store) == 1000 and used / len(store) < 2200
