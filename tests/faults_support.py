"""Shared by the tests of interruptions and faults: a short run, a way to interrupt it, and a comparison."""

from helpers import train_config

SETTINGS = {"steps": 4, "checkpoint_every": 1, "monitor": {"every": 2, "limit": 2, "n": 2}}


def config_of(run, **changes):
    """Settings of a run of four steps with stored responses, a checkpoint after each."""
    return train_config(run, "dph_js", SETTINGS, **changes)


def same(run, other):
    """Assert that two runs hold the same metrics and, byte for byte, the same models, checkpoints and responses. Only a
    model's card names its run, in its title and with its folder."""

    def content(path, file):
        found = file.read_bytes()
        if file.name == "README.md":
            found = found.replace(str(path).encode(), b"RUN").replace(f"# {path.name}\n".encode(), b"# RUN\n")
        return found

    def files(path):
        folders = (path / "model", path / "checkpoints", path / "samples")
        return {
            str(file.relative_to(path)): content(path, file)
            for folder in folders
            for file in folder.rglob("*")
            if file.is_file()
        }

    assert (run / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert files(run) == files(other)
    names = [{entry.name for entry in path.iterdir()} for path in (run, other)]
    assert names[0] == names[1]
    return True


def at_call(number, action, original):
    """A function that runs `action` before its n-th call."""
    calls = []

    def wrapped(*args, **more):
        calls.append(1)
        if len(calls) == number:
            action()
        return original(*args, **more)

    return wrapped
