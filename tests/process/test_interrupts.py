"""Signals: two in quick succession count as one, a later one ends the process; none is lost while libraries load."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dph
from dph.errors import Interrupted
from dph.process.interrupts import CommandInterrupts, Interrupts
from helpers import base_run

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
SOURCE = Path(dph.__file__).parents[1]
SENTENCE = "dph: interrupted; the same command with --resume continues\n"
AGAIN = "dph: interrupted; run the same command again\n"


def started(words, *more_path, **options):
    path = os.pathsep.join([*map(str, more_path), str(SOURCE), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *words], env=environment, text=True, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)])
@pytest.mark.parametrize("pause", [0.05, 1.2])
def test_a_second_signal_counts_as_one_with_the_first_or_ends_the_process(number, pause):
    code = (
        "import time; from dph.process.interrupts import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    print('ready', flush=True)\n"
        "    while not interrupts.signal: time.sleep(0.01)\n"
        "    print('noted', flush=True)\n"
        "    for _ in range(30): time.sleep(0.1)\n"
        "    print('saved', flush=True)\n"
    )
    process = started(["-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "noted\n"
    time.sleep(pause)
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == ((0, "saved\n") if pause < 1 else (-number, ""))


def test_a_process_that_ignores_the_end_of_its_terminal_goes_on_doing_so():
    code = (
        "import os, signal; from dph.process.interrupts import CommandInterrupts, Interrupts\n"
        "with CommandInterrupts(), Interrupts() as inner:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print(inner.signal, flush=True)\n"
    )
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    words = ["nohup", sys.executable, "-c", code]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.parametrize("inner", ["", "with Interrupts() as inner:\n        "])
def test_the_second_signal_does_not_change_the_status_when_it_comes_in_the_last_moment(inner):
    code = (
        "import os, signal, sys\n"
        "from dph.process.interrupts import CommandInterrupts, Interrupts\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, own=os.getpid()):\n"
        "        kill(own, signal.SIGINT)\n"
        "last = Last()\n"  # a global is deleted after Python has taken its handlers away
        f"with CommandInterrupts():\n    {inner}signal.raise_signal(signal.SIGINT)\n"
        "sys.exit(130)\n"
    )
    assert started(["-c", code], stderr=subprocess.DEVNULL).wait(60) == 130


def test_a_signal_whose_exception_was_swallowed_is_not_lost(signals, capfd):
    with pytest.raises(SystemExit) as end, CommandInterrupts():
        with contextlib.suppress(Interrupted):  # as a destructor does
            signal.raise_signal(signal.SIGTERM)
        with Interrupts() as inner:
            inner.check()
    assert (end.value.code, capfd.readouterr().err) == (143, AGAIN)


def test_a_signal_in_a_destructor_is_not_lost_and_prints_no_traceback(signals, capfd):
    class Last:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    reported = []
    hook, sys.unraisablehook = sys.unraisablehook, reported.append
    try:
        with pytest.raises(SystemExit) as end, CommandInterrupts():
            last = Last()
            del last  # Python drops the exception of a destructor
            with Interrupts() as inner:
                inner.check()
    finally:
        sys.unraisablehook = hook
    assert (end.value.code, capfd.readouterr().err, reported) == (130, AGAIN, [])


def test_a_signal_that_a_library_turned_into_an_error_stays_an_interruption(signals, capfd):
    with pytest.raises(SystemExit) as end, CommandInterrupts():
        try:
            signal.raise_signal(signal.SIGINT)
        except Interrupted:
            raise SystemError("initialization failed") from None
    assert (end.value.code, capfd.readouterr().err) == (130, AGAIN)


IMPORTS = {
    "passed on": "",
    "swallowed": "except BaseException: pass",
    "turned into an error": "except BaseException: raise ImportError('cannot be loaded')",
}


@pytest.mark.parametrize("name", IMPORTS)
@pytest.mark.parametrize("module", ["tomli_w", "torch"])
def test_a_signal_while_a_library_loads_ends_the_command_with_one_sentence(tmp_path, name, module):
    """A library in the place of a real one gets the signal in the middle of its import."""
    wait = "import signal, time; signal.raise_signal(signal.SIGINT); time.sleep(0.01)"
    body = f"try: {wait}\n{IMPORTS[name]}" if IMPORTS[name] else wait
    (tmp_path / f"{module}.py").write_text(body + "\n" + "raise ImportError('this is not the library')")
    words = ["train", "--preset", "grpo", "--task.name", "countdown"]
    words += ["--out", str(tmp_path / "run"), "--model.path", str(base_run() / "model")]
    process = started(["-m", "dph", *words], tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, "", SENTENCE)


def catches(pid, number):
    """Whether a process has a handler for a signal; also True for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")]
    return not masks or bool(masks[0] >> (number - 1) & 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads /proc, which only Linux has")
def test_signals_at_random_moments_of_the_start_are_never_lost(tmp_path):
    """Twenty times, from the moment when the handler is there (Python's own start cannot be protected) until training
    has begun; every second time the signal comes twice within 50 ms."""
    rng = random.Random(0)
    words = ["-m", "dph", "train", "--preset", "grpo", "--task.name", "countdown", "--task.limit", "8"]
    words += ["--rollout.n", "2", "--rollout.prompts", "2", "--rollout.max-tokens", "4", "--steps", "100000"]
    words += ["--model.path", str(base_run() / "model"), "--out"]

    def ends(said):
        """The lines that say how the command ended; that a signal came is said before, within the first step."""
        own = [line for line in said.splitlines() if line.startswith("dph: ")]
        return [line for line in own if not line.startswith("dph: a signal came")]

    def begun(run):
        process = started([*words, str(run)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        while not catches(process.pid, signal.SIGTERM):  # Python itself handles SIGINT only
            time.sleep(0.002)
        return process, time.monotonic()

    process, start = begun(tmp_path / "whole")
    while not (tmp_path / "whole" / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    seconds = time.monotonic() - start
    process.send_signal(signal.SIGINT)
    assert len(ends(process.communicate(timeout=60)[1])) == 1 and process.returncode == 130
    for attempt in range(20):
        process, _ = begun(tmp_path / str(attempt))
        time.sleep(rng.uniform(0, 1.1 * seconds))
        for _ in range(1 + attempt % 2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, len(ends(said)), "Traceback" in said) == (130, 1, False), said
