"""Commands end when the process that started them ends."""

import os
import subprocess
import sys

import pytest

from dph.process.interrupts import LAUNCHED, PARENT

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
