"""examples/plain_loop.py: the objective in a user's own training loop."""

import runpy
from pathlib import Path

PATH = Path(__file__).parents[2] / "examples" / "plain_loop.py"


def test_the_loop_is_short_and_rehearsal_keeps_what_was_mastered():
    assert len(PATH.read_text(encoding="utf-8").splitlines()) <= 40
    train = runpy.run_path(str(PATH))["train"]
    forgotten, learned = train(0.0)
    kept, learned_too = train(0.2)
    assert min(learned, learned_too) > 0.95
    assert forgotten < 0.1 and kept > 0.6
