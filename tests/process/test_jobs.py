"""The scheduler of commands: order, slots, failures. Jobs are Python one-liners in place of `dph` commands. Commands
end when the process that started them ends.
"""

import os
import subprocess
import sys
import time

import pytest

import dph
from dph.errors import UserError
from dph.process import jobs as module
from dph.process.interrupts import LAUNCHED, PARENT
from dph.process.jobs import Job, run_jobs

FORKING = "from dph.cli import loaded\nif words := loaded.serve([]): exec(words[0])"
BOTH = pytest.mark.parametrize("scripts", ["started", "forked"], indirect=True)


@pytest.fixture
def scripts(monkeypatch, request):
    """Jobs run their first argument as Python code instead of as a `dph` command, as new processes or forked from one;
    polls are quick."""
    start, way = subprocess.Popen, getattr(request, "param", "started")

    def popen(words, **options):
        if words[3] == module.LOADED:
            return start([*words[:2], "-c", FORKING], **options)
        assert words[:4] == [sys.executable, "-P", "-m", "dph"] and way == "started"
        return start([sys.executable, "-S", "-c", words[4]], **options)

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "FORKED_FROM", 1 if way == "forked" else 100)
    return way


def job(folder, name, needs=(), threads=1, seconds=0.0):
    """A job that writes when it began and ended."""
    code = (
        f"import time; a = time.monotonic(); time.sleep({seconds}); "
        f"open({str(folder / name)!r}, 'w').write(f'{{a}} {{time.monotonic()}}')"
    )
    return Job(name, (code,), needs, threads)


def span(folder, name):
    begin, end = (folder / name).read_text().split()
    return float(begin), float(end)


@BOTH
def test_a_job_starts_after_what_it_needs(tmp_path, scripts):
    planned = [job(tmp_path, "c", ("b", "a")), job(tmp_path, "b", ("a",)), job(tmp_path, "a")]
    run_jobs(planned, tmp_path / "logs", slots=3, label="test")
    assert span(tmp_path, "a")[1] < span(tmp_path, "b")[0]
    assert span(tmp_path, "b")[1] < span(tmp_path, "c")[0]
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a.log", "b.log", "c.log"]


def test_a_forked_job_does_not_look_for_garbage_in_what_it_shares(tmp_path, monkeypatch):
    """Without it the end of a command takes longer than a small stage, in the whole heap of torch and transformers."""
    start = subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", lambda words, **more: start([*words[:2], "-c", FORKING], **more))
    monkeypatch.setattr(module, "FORKED_FROM", 1)
    code = f"import gc; open({str(tmp_path / 'frozen')!r}, 'w').write(str(gc.get_freeze_count()))"
    run_jobs([Job("a", (code,))], tmp_path / "logs", slots=1, label="test")
    assert int((tmp_path / "frozen").read_text()) > 1000


@BOTH
def test_threads_of_running_jobs_never_exceed_the_slots(tmp_path, scripts):
    planned = [job(tmp_path, f"one{i}", seconds=0.1) for i in range(3)]
    planned += [job(tmp_path, "two", threads=2, seconds=0.1), job(tmp_path, "eight", threads=8, seconds=0.1)]
    run_jobs(planned, tmp_path / "logs", slots=2, label="test")
    spans = [(span(tmp_path, item.name), min(2, item.threads)) for item in planned]
    for (begin, _), _ in spans:
        assert sum(threads for (a, b), threads in spans if a <= begin < b) <= 2


@BOTH
def test_jobs_learn_their_number_of_threads(tmp_path, scripts):
    code = "import os, sys; print(os.environ['OMP_NUM_THREADS'], sys.stdin.read() == '')"
    run_jobs([Job("a", (code,), threads=3)], tmp_path, slots=4, label="test")
    assert (tmp_path / "a.log").read_text() == "3 True\n"


@BOTH
def test_a_failure_is_named_with_its_last_words_and_stops_the_others(tmp_path, scripts):
    pid = tmp_path / "pid"
    sleeper = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    failing = (
        f"import os, sys, time\nwhile not os.path.exists({str(pid)!r}): time.sleep(0.01)\nsys.exit('first\\nlast')"
    )
    planned = [Job("sleeper", (sleeper,)), Job("bad", (failing,)), job(tmp_path, "never", ("bad",))]
    started = time.monotonic()
    with pytest.raises(UserError, match=r"bad failed: last \(full log"):
        run_jobs(planned, tmp_path / "logs", slots=2, label="test")
    assert time.monotonic() - started < 30  # the sleeper was not waited for
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not (tmp_path / "never").exists()


@BOTH
def test_silent_failure_and_jobs_that_need_each_other(tmp_path, scripts):
    with pytest.raises(UserError, match="mute failed: no output"):
        run_jobs([Job("mute", ("raise SystemExit(3)",))], tmp_path, slots=1, label="test")
    with pytest.raises(ValueError, match="cycle"):
        run_jobs([job(tmp_path, "a", ("b",)), job(tmp_path, "b", ("a",))], tmp_path, slots=1, label="test")


@BOTH
def test_keeping_going_leaves_out_only_what_needs_the_failed(tmp_path, scripts, capsys):
    broken = Job("broken", ("raise SystemExit('no luck')",))
    planned = [broken, job(tmp_path, "after", ("broken",)), job(tmp_path, "last", ("after",)), job(tmp_path, "free")]
    failures = run_jobs(planned, tmp_path / "logs", slots=1, label="test", keep_going=True)
    assert [text.split()[0] for text in failures] == ["broken", "after", "last"]
    assert "no luck" in failures[0]
    assert (tmp_path / "free").exists()
    assert not (tmp_path / "after").exists()


@BOTH
def test_complete_runs_are_not_started_again(tmp_path, scripts):
    for name, status in (("done", "complete"), ("half", "running")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "manifest.json").write_text(f'{{"status": "{status}"}}')
    planned = [
        Job(name, (f"open({str(tmp_path / name)!r}, 'w')",), needs, out=tmp_path / "runs" / name)
        for name, needs in (("done", ()), ("half", ("done",)), ("new", ("half",)))
    ]
    assert run_jobs(planned, tmp_path / "logs", slots=1, label="test") == []
    assert {path.name for path in tmp_path.iterdir()} == {"half", "new", "logs", "runs"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")
@pytest.mark.parametrize("scripts", ["forked"], indirect=True)
def test_a_forked_job_is_a_process_like_any_other(tmp_path, scripts):
    """With a session, streams and a parent of its own, and an orderly end."""
    code = (
        "import atexit, os, sys, time; atexit.register(print, 'ended'); "
        "print(os.getsid(0) == os.getpid(), os.environ['DPH_PARENT'] == str(os.getppid())); sys.exit(%s)"
    )
    assert run_jobs([Job("a", (code % 0,)), Job("b", (code % 0,))], tmp_path, 2, "jobs") == []
    assert (tmp_path / "a.log").read_text() == (tmp_path / "b.log").read_text() == "True True\nended\n"
    with pytest.raises(UserError, match="killed failed: no output"):
        run_jobs([Job("killed", ("import os; os.kill(os.getpid(), 9)",))], tmp_path, 2, "jobs")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")
@pytest.mark.parametrize("scripts", ["forked"], indirect=True)
def test_forked_jobs_end_with_the_process_that_they_come_from(tmp_path, scripts):
    """As they do when the process that runs jobs is killed, because this one then ends too."""
    watching = (
        "import os, signal, time\nfrom dph.process.interrupts import when_parent_ends\n"
        f"when_parent_ends(lambda: (open({str(tmp_path / 'saved')!r}, 'w'), os._exit(3)))\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    with pytest.raises(UserError, match="watching failed: no output"):
        run_jobs([Job("watching", (watching,))], tmp_path / "logs", 1, "jobs")
    until = time.monotonic() + 20
    while not (tmp_path / "saved").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("scripts", ["started", "forked"], indirect=True)
def test_an_interruption_stops_all_jobs_and_waits_for_them(tmp_path, scripts, monkeypatch):
    saving = (
        f"import signal, sys, time; from pathlib import Path; own = Path({str(tmp_path)!r}, '%s')\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), own.write_text('saved'), sys.exit(143)))\n"
        "own.write_text('begun'); time.sleep(60)"
    )
    files, sleep = [tmp_path / "a", tmp_path / "b"], time.sleep

    def interrupt(seconds):
        if all(file.exists() and file.read_text() for file in files):
            monkeypatch.setattr(module.time, "sleep", sleep)
            raise KeyboardInterrupt
        sleep(seconds)

    monkeypatch.setattr(module.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([Job(name, (saving % name,)) for name in "ab"], tmp_path / "logs", 2, "jobs")
    assert [file.read_text() for file in files] == ["saved", "saved"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_job_imports_nothing_from_the_current_directory(tmp_path, monkeypatch, number):
    for name in ("dph.py", "json.py", "torch.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    planned = [Job(f"version{i}", ("--version",)) for i in range(number)]  # the second way forks them
    assert run_jobs(planned, tmp_path / "logs", 1, "jobs") == []
    for item in planned:
        assert (tmp_path / "logs" / f"{item.name}.log").read_text().split() == [dph.__version__]
    assert not (tmp_path / "ran").exists()


COMMAND = (
    "import dph.cli.main as cli, time; cli._run = lambda *_: (print('ready', flush=True), time.sleep(60)); "
    "cli.main(['train'])"
)
LAUNCHER = (
    "import os, subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env=os.environ | {sys.argv[2]: sys.argv[3] or "
    "str(os.getpid())}, stdout=sys.stdout); "
    "child.wait()"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("variable", "value"), [(PARENT, ""), (LAUNCHED, "none")])
def test_a_command_ends_when_its_launcher_is_killed(variable, value):
    """The pipe is closed when the command, which also holds it, has ended."""
    inherited = {name: text for name, text in os.environ.items() if name not in (PARENT, LAUNCHED)}
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, COMMAND, variable, value],
        env=inherited,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None and launcher.stdout.readline() == "ready\n"
    launcher.kill()
    launcher.communicate(timeout=30)
