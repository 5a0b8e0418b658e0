"""Run the command line in this process and read its error message; inputs that others tried."""

import json

from dph.cli.main import main


def run(capsys, *words):
    """Exit status and the text on standard error."""
    try:
        main([str(word) for word in words])
        status = 0
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr().err


def complaint(capsys, *words):
    """The message of a UserError: exit status 2, one sentence on the last line, no traceback."""
    status, said = run(capsys, *words)
    assert status == 2, said
    lines = said.strip().splitlines()
    assert lines[-1].startswith("dph: ") and "Traceback" not in said
    assert not any(line.startswith("dph: ") for line in lines[:-1])
    return lines[-1].removeprefix("dph: ")


def inputs(shared, *kinds):
    """Tried inputs with what is right, by the first letters of their kinds: d (data and tables), m (mathematics),
    p (judged samples), s (SQL), t (templates). shared: the folder of public data."""
    for line in (shared / "complaints" / "inputs_2.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["kind"].startswith(kinds):
            yield case
