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
