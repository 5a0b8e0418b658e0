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


def test_a_reader_that_has_left_ends_the_command():
    script = SCRIPT.format(setup="show_messages()", rank=0) + "for _ in range(100_000): say('more')"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        run.stderr.readline()
        run.stderr.close()
        assert run.wait(timeout=60) == 1
