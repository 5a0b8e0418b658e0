"""A library logs, a command prints, and of several processes the leading one."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging, os
os.environ["RANK"] = "{rank}"
from dph.process.progress import progress, say, show_messages
{setup}
say("one [/red] message")
with progress("work", 2) as shown:
    shown.advance(2, "[/red]")
"""


def said(setup: str, rank: int = 0) -> str:
    script = SCRIPT.format(setup=setup, rank=rank)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_library_prints_nothing():
    assert said("") == ""


def test_a_library_logs_to_whoever_listens():
    assert (
        said("logging.basicConfig(level=logging.INFO, format='%(name)s: %(message)s')") == "dph: one [/red] message\n"
    )


@pytest.mark.parametrize("calls", ["show_messages()", "show_messages(); show_messages()"])
def test_a_command_prints_messages_once_and_progress(calls):
    lines = said(calls).splitlines()
    assert lines[0] == "one [/red] message" and lines[1].startswith("work 2/2 [/red]") and len(lines) == 2


def test_other_processes_than_the_leading_one_are_silent():
    assert said("show_messages()", rank=1) == ""


WITHIN = """
import dph.process.progress as module
from dph.process.progress import doing, progress, show_messages
show_messages()
doing("nothing is shown")
with progress("work", 2) as shown:
    doing("soon after the start")
    module._SECONDS_BETWEEN_LINES = 0.0
    doing("part 1 of 3")
    with progress("inner", 5, quiet=True):
        doing("part 2 of 3")
    with progress("other", 4):
        doing("half")
    shown.advance(1)
doing("nothing is shown")
"""


def test_what_is_done_within_a_unit_is_said_now_and_then():
    done = subprocess.run([sys.executable, "-c", WITHIN], capture_output=True, text=True, timeout=60)
    *parts, end = done.stderr.splitlines()
    assert parts == ["work 0/2, next: part 1 of 3", "work 0/2, next: part 2 of 3", "other 0/4, next: half"]
    assert end.startswith("work 1/2 ")


ON_A_TERMINAL = """
import os, pty, subprocess, sys
lead, follow = pty.openpty()
run = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stderr=follow)
os.close(follow)
found = b""
try:
    while chunk := os.read(lead, 4096):
        found += chunk
except OSError:  # the end
    pass
sys.stdout.buffer.write(found)
sys.exit(run.wait())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
def test_a_terminal_shows_a_bar_and_messages_above_it():
    script = SCRIPT.format(setup="show_messages()", rank=0)
    script = script.replace("    shown.advance(2", '    say("amid")\n    shown.advance(2')
    done = subprocess.run([sys.executable, "-c", ON_A_TERMINAL, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "one [/red] message" in done.stdout and "amid" in done.stdout and "2/2" in done.stdout
    assert "\x1b[" in done.stdout  # the bar is drawn again and again


def test_a_reader_that_has_left_does_not_end_the_work(tmp_path):
    script = SCRIPT.format(setup="show_messages()", rank=0) + "for _ in range(100_000): say('more')\n"
    script += f"open({str(tmp_path / 'reached')!r}, 'w')"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        run.stderr.readline()
        run.stderr.close()
        assert (run.wait(timeout=60), (tmp_path / "reached").exists()) == (0, True)


LASTING = """
import os, subprocess, sys, warnings
from dph.process.progress import keep_streams
keep_streams(); keep_streams()
first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)  # would get the number of a closed stream
for _ in range(3):
    print("out", flush=True)
    print("error", file=sys.stderr, flush=True)
    warnings.warn("of a library", stacklevel=1)
os.write(2, b"by C code")
code = "import sys; print('child', flush=True); print('child', file=sys.stderr, flush=True); sys.stdin.read()"
subprocess.run([sys.executable, "-c", code], check=True)  # its streams are those of this process
os.close(first)
sys.exit(0 if os.path.getsize(sys.argv[1]) == 0 and first > 2 else 9)
"""


@pytest.mark.parametrize("option", [[], ["-u"]])
@pytest.mark.parametrize(
    "closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-", "2>&1 | true", "2>&1 >&- | true", "2>/dev/full"]
)
def test_a_process_without_readers_does_its_work(tmp_path, closed, option):
    command = " ".join(["set -o pipefail;", sys.executable, *option, "-c", '"$1"', '"$2"', closed])
    done = subprocess.run(["bash", "-c", command, "bash", LASTING, str(tmp_path / "file")], timeout=60)
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("option", [[], ["-u"]])
def test_results_that_cannot_be_written_are_an_error(option):
    code = "from dph.process.progress import keep_streams; keep_streams()\nprint('result', flush=True)"
    with open("/dev/full", "w") as full:
        words = [sys.executable, *option, "-c", code]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "No space left on device: 'standard output'" in done.stderr.splitlines()[-1]


HANGING_UP = """
import os, pty, subprocess, sys
lead, follow = pty.openpty()
run = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=follow, stderr=follow)
os.close(follow)
os.read(lead, 10)
os.close(lead)  # the terminal is gone
run.communicate(b"go")
sys.exit(run.returncode)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
def test_a_terminal_that_is_gone_does_not_end_the_work():
    script = SCRIPT.format(setup="show_messages(); say('begun'); import sys; sys.stdin.read()", rank=0)
    script += "print('result', flush=True)"
    done = subprocess.run([sys.executable, "-c", HANGING_UP, script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
