"""The command line of the experiments: studies, flags, files, and what it says about mistakes."""

import re
import shlex
from pathlib import Path

import pytest

from dph.errors import SettingsError
from experiments.anchor.run import parse as parse_anchor
from experiments.bank.run import parse as parse_bank
from experiments.command import ANCHOR, BANK, FACTORIAL, STRATEGIES, STUDIES, parse, run
from experiments.factorial.run import parse as parse_factorial
from experiments.grid import grid_names
from experiments.strategies.run import parse as parse_strategies

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(page for name in ("docs", "experiments") for page in (ROOT / name).rglob("*.md"))]


def test_every_study_is_a_command_and_the_paper_is_first() -> None:
    assert next(iter(STUDIES)) == "paper"
    assert {scale for scale, _ in STUDIES.values()} == {*grid_names(), "bench", "full"}
    for name, (scale, _) in STUDIES.items():
        assert parse([name]).scale == parse(["reproduce", "--scale", scale]).scale == scale


def test_flags_override_files_and_files_override_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('methods = ["all"]\njobs = 3\n')
    found = parse(["tiny", "--config", str(file), "--jobs", "4", "--resume", "--seeds", "1", "2"])
    assert (found.methods, found.jobs, found.seeds, found.scale) == (("all",), 4, (1, 2), "tiny")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["huge"], "no study is named 'huge'"),
        (["tiny", "--job", "1"], "python -m experiments tiny --help"),
        (["tiny", "--jobs", "0"], "jobs is 0"),
        (["anchor", "--starts", "x"], "--starts: invalid int value"),
        (["anchor", "--arms", "k4"], "no arm 'k4'"),
        (["tiny", "--config"], "--config: expected one argument"),
        (["tiny", "--config", "nowhere.toml"], "nowhere.toml"),
        (["reproduce", "--scale", "huge"], "no scale is named 'huge'"),
        (["tiny", "--report-only", "--out", "nowhere"], "no reproduction at nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        run(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and message in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('jobs = "many"\n')
    with pytest.raises(SettingsError, match="'jobs'"):
        parse(["tiny", "--config", str(tmp_path / "mine.toml")])


def test_the_commands_of_the_pages_can_be_read() -> None:
    called = 0
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:scripts/(reproduce)|python -m experiments)(?=\s|$)(.*)", line)
                if found and found[2].split()[:1] == [ANCHOR]:
                    parse_anchor(shlex.split(found[2], comments=True)[1:])
                elif found and found[2].split()[:1] == [FACTORIAL]:
                    parse_factorial(shlex.split(found[2], comments=True)[1:])
                elif found and found[2].split()[:1] == [STRATEGIES]:
                    parse_strategies(shlex.split(found[2], comments=True)[1:])
                elif found and found[2].split()[:1] == [BANK]:
                    parse_bank(shlex.split(found[2], comments=True)[1:])
                elif found:
                    parse([*([found[1]] if found[1] else []), *shlex.split(found[2], comments=True)])
                    called += 1
    assert called > 20
