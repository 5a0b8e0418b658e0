"""Locks of directories: one process at a time, released however that process ends; no worker outlives its parent."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import dph
from dph.config import TrainConfig
from dph.errors import RunError
from dph.runs.directory import RunDir
from dph.runs.files import LOCK, lock, unlock
from workers import state_of

SOURCE = str(Path(dph.__file__).parents[1])
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")


def python(code, **options):
    """A process that runs code with `dph` importable."""
    path = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, **options)


def line_of(process):
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def holder(folder, seconds=60):
    """A process that holds a directory's lock."""
    code = (
        f"import time; from pathlib import Path; from dph.runs.files import lock; lock(Path({str(folder)!r})); "
        f"print('held', flush=True); time.sleep({seconds})"
    )
    process = python(code, stdout=subprocess.PIPE, text=True)
    try:
        assert line_of(process) == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_process_is_refused_and_told_which_one_it_is(tmp_path):
    config = TrainConfig(out=str(tmp_path))
    with holder(tmp_path) as process:
        for resume in (False, True):
            with pytest.raises(RunError, match=f"in use by process {process.pid} "):
                RunDir.start(str(tmp_path), "train", config, resume=resume)
        assert not (tmp_path / "manifest.json").exists()
    RunDir.start(str(tmp_path), "train", config).finish()  # the holder was killed: its lock is gone with it
    assert not (tmp_path / LOCK).exists()


def test_a_lock_is_held_once_until_it_is_given_free(tmp_path):
    lock(tmp_path)
    lock(tmp_path)
    assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    unlock(tmp_path)
    unlock(tmp_path)
    with holder(tmp_path), pytest.raises(RunError, match="is in use"):  # another may have it now
        lock(tmp_path)


def test_a_finished_run_can_be_read_while_another_process_has_its_directory(tmp_path):
    config = TrainConfig(out=str(tmp_path))
    run = RunDir.start(str(tmp_path), "train", config)
    run.log(1, {"loss": 1.0})
    run.finish()
    with holder(tmp_path):
        assert RunDir.start(str(tmp_path), "train", config, resume=True).complete


def test_workers_end_with_a_killed_parent_even_while_they_are_busy(tmp_path):
    """A busy worker does not see that its pipe is closed."""
    code = (
        "import threading, time\n"
        "sql = 'with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c'\n"
        f"open({str(tmp_path / 'a.sqlite')!r}, 'w').close()\n"
        "from dph.verifiers.sql.verifier import SqlVerifier\n"
        "from dph.types import Problem\n"
        f"problem = Problem('p', '', 'select 1', 'sql', {{'db': {str(tmp_path / 'a.sqlite')!r}}})\n"
        "verifier = SqlVerifier(workers=1, timeout=60.0)\n"
        "def tell():\n"
        "    while not verifier._pool.pids(): time.sleep(0.01)\n"
        "    time.sleep(1.0); print(verifier._pool.pids()[0], flush=True)\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "verifier.verify([(problem, '```sql\\n' + sql + '\\n```')])\n"
    )
    process = python(code, stdout=subprocess.PIPE, text=True)
    worker = int(line_of(process))
    assert state_of(worker) in ("R", "S")
    process.kill()
    process.communicate()
    end = time.monotonic() + 20
    while state_of(worker) not in ("", "Z") and time.monotonic() < end:
        time.sleep(0.05)
    assert state_of(worker) in ("", "Z")
