# pyright: reportMissingImports=false
"""The bank in verl's trainer, on two CPU ranks: a run admits what it draws and rehearses it, verl's checkpoint holds
the bank, and a resumed run goes on with it. Minutes, not seconds: scripts/test-verl runs them."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dph.config import BankConfig
from dph.errors import DataError, RunError, SettingsError, UserError
from dph.rehearsal.bank import Bank
from dph.rehearsal.bank_files import BankFiles
from dph.rehearsal.modes import BankKey, Forms
from dph.rehearsal.store import Rehearsal, read_rehearsal
from dph.types import Completion, Outcome, Problem, Rollout, Verdict, problem_json
from helpers import needs

pytestmark = [*needs("verl"), pytest.mark.timeout(3600)]

SUPPORT = Path(__file__).resolve().parents[1] / "verl_cpu"
ROWS = 12
"""Stored responses of a step: more than the bank has before the second one, so that all of them are rehearsed."""


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Model, presample run and verl's Parquet, of all prompts."""
    sys.path.insert(0, str(SUPPORT))
    import harness

    return harness.make_launch(tmp_path_factory.mktemp("launch"), prompt_set="all")


def train(launch: tuple[Path, Path, Path], folder: Path) -> dict[int, dict[str, float]]:
    """Up to two steps of one mini-batch each, saved after each; returns the metrics of each step."""
    import harness

    settings = {"trainer.save_freq": 1, "actor_rollout_ref.actor.ppo_mini_batch_size": 4}
    settings |= {"dph.bank.key": "text", "dph.divergence": "forward_kl_raw", "dph.rows": ROWS}
    done = harness.train(harness.overrides(*launch, folder / "checkpoints") | settings, folder)
    assert done.returncode == 0, done.stdout[-4000:]
    return harness.metrics_of(folder)


@pytest.fixture(scope="module")
def whole(launch: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a run without interruption, and its metrics."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(launch, folder)


def bank_of(folder: Path, step: int) -> Bank:
    """The bank that verl's checkpoint of a step holds."""
    problems = [f"p{index}" for index in range(48)]
    bank = Bank(BankKey("text", Forms({}, lambda *_: None, lambda *_: None)), 16, 0, problems)
    checkpoints = folder / "checkpoints"
    BankFiles(checkpoints).restore(bank, checkpoints / f"global_step_{step}" / "dph_bank")
    return bank


def tokens_of(rows: Sequence[Rehearsal]) -> int:
    return sum(len(row.response_ids) for row in rows)


def test_a_run_admits_what_it_draws_and_rehearses_it(launch: tuple[Path, Path, Path], whole: tuple[Path, Any]) -> None:
    folder, metrics = whole
    assert sorted(metrics) == [1, 2]
    begun = read_rehearsal(launch[1] / "rehearsal.parquet")
    assert 0 < len(begun) <= ROWS, "of the partition's near-perfect prompts"
    first, second = bank_of(folder, 1), bank_of(folder, 2)
    assert metrics[1]["actor/pef/tokens"] == tokens_of(begun) and metrics[1]["dph/ref_deviation"] < 1e-5
    rehearsed, _ = first.draw(0, ROWS)
    assert metrics[2]["actor/pef/tokens"] == tokens_of(rehearsed)
    assert metrics[2]["dph/rehearsal_rows"] == len(rehearsed) == min(ROWS, len(first))
    for step, bank, before in ((1, first, len(begun)), (2, second, len(first))):
        new = [entry for entry in bank.entries if entry.found == step]
        assert metrics[step]["bank/new"] == len(new) == metrics[step]["bank/modes"] - before == len(bank) - before
        assert metrics[step]["bank/problems"] == len({entry.row.problem_id for entry in bank.entries})
        for entry in new:
            assert entry.row.text.count("a") % 2 == 0 and not entry.row.text.startswith("z"), "it was judged correct"
            assert entry.mode == " ".join(entry.row.text.split()) and entry.drawn >= 1 and entry.last == step
    assert any(entry.found == 1 for entry in first.entries), "the second step rehearses what the first one found"
    assert not sum(entry.drawn for entry in second.entries if entry.found == 0 and not entry.visited)


def test_what_is_kept_of_a_response_is_what_the_policy_that_drew_it_said(
    launch: tuple[Path, Path, Path], whole: tuple[Path, Any]
) -> None:
    """Its prompt as verl rendered it, its tokens up to the end, and their log-probabilities."""
    model = AutoModelForCausalLM.from_pretrained(launch[0], dtype=torch.float32)
    found = [entry.row for entry in bank_of(whole[0], 1).entries if entry.found == 1]
    table = pq.read_table(launch[2] / "train.parquet").to_pylist()
    texts = {json.loads(row["extra_info"]["problem"])["id"]: row["prompt"][0]["content"] for row in table}
    tokenizer = AutoTokenizer.from_pretrained(launch[0])
    for row in found:
        assert tokenizer.decode(row.prompt_ids, skip_special_tokens=True).strip() == texts[row.problem_id]
        assert row.response_ids[-1] == tokenizer.eos_token_id
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        values = model(ids).logits[0].log_softmax(-1)[len(row.prompt_ids) - 1 : -1]
        own = values.gather(1, torch.tensor(list(row.response_ids))[:, None])[:, 0]
        assert own.tolist() == pytest.approx(list(row.ref_logprobs), abs=1e-4)


def test_a_resumed_run_has_the_same_bank(
    launch: tuple[Path, Path, Path], whole: tuple[Path, Any], tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(whole[0] / "checkpoints", checkpoints)
    shutil.rmtree(checkpoints / "global_step_2")
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("1")
    metrics = train(launch, tmp_path)
    assert sorted(metrics) == [2]
    names = [name for name in metrics[2] if name.startswith("bank/") or name == "actor/pef/tokens"]
    assert len(names) > 5 and {name: metrics[2][name] for name in names} == {n: whole[1][2][n] for n in names}
    tables = [pq.read_table(one / "checkpoints/global_step_2/dph_bank/bank.parquet") for one in (tmp_path, whole[0])]
    assert tables[0].equals(tables[1])
    both = [sorted(bank_of(one, 2).entries, key=lambda entry: entry.age) for one in (tmp_path, whole[0])]
    for again, once in zip(*both, strict=True):
        assert (again.row.prompt_ids, again.row.response_ids) == (once.row.prompt_ids, once.row.response_ids)
        assert (again.mode, again.found, again.row.problem_id) == (once.mode, once.found, once.row.problem_id)
        assert list(again.row.ref_logprobs) == pytest.approx(list(once.row.ref_logprobs), abs=1e-5)
    files = [sorted(file.name for file in (one / "checkpoints/bank").iterdir()) for one in (tmp_path, whole[0])]
    assert files[0] == files[1] == ["step-00000000.parquet", "step-00000002.parquet"]


# In one process -------------------------------------------------------------------------------------------------------

PROBLEMS = [Problem(f"p{index}", f"ask {index}", "-", "parity") for index in range(4)]
DATA = SimpleNamespace(dataframe={"extra_info": [{"problem": problem_json(one)} for one in PROBLEMS]})


def made(folder: Path, dataset: Any = DATA, presampled: Any = None, **settings: Any) -> Any:
    from dph.integrations.verl.bank import DriverBank
    from dph.integrations.verl.settings import DPHSettings

    settings = {"bank": BankConfig(key="text", begun=presampled is not None), "rows": 4, **settings}
    return DriverBank(DPHSettings(**settings), dataset, presampled, folder)


@pytest.fixture
def sees(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Shows a bank responses, each with its problem, tokens, reward, and what else differs."""
    from dph.integrations.verl import bank as module
    from dph.integrations.verl.judged import JudgedResponse

    def see(bank: Any, *rows: tuple[int, list[int], float], outcome: str | None = None, own: bool = True) -> None:
        judged, columns = [], {"prompts": [], "extra_info": []}
        for problem, tokens, reward in rows:
            said = outcome if outcome is not None else "correct" if reward == 1 else "wrong"
            verdict = Verdict(Outcome(said or ("correct" if reward >= 1 else "wrong")), reward)
            rollout = Rollout(Completion(tokens, [-0.5] * len(tokens), "stop"), " ".join(map(str, tokens)), verdict)
            mask = torch.ones(len(tokens), dtype=torch.long)
            judged.append(JudgedResponse("g", rollout, said, [], mask.bool() & own, mask))
            columns["prompts"].append(torch.tensor([1, problem]))
            columns["extra_info"].append(SimpleNamespace(data={"problem": problem_json(PROBLEMS[problem])}))
        monkeypatch.setattr(module.tq, "kv_batch_get", lambda **_: columns)
        bank.see(SimpleNamespace(keys=[], partition_id="train"), judged)

    return see


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path, sees: Callable[..., None]) -> None:
    """verl's batches come in the order in which responses ended."""
    rows = [(2, [5], 1.0), (0, [6, 7], 1.0), (2, [8], 1.0), (0, [9], 0.0), (1, [5], 1.0), (2, [5], 1.0)]
    found = []
    for number, order in enumerate((rows, rows[::-1], sorted(rows, key=str))):
        bank = made(tmp_path / str(number))
        bank.start(None)
        sees(bank, *order[:3])
        sees(bank, *order[3:])
        metrics = bank.admit(1)
        assert metrics["bank/modes"] == metrics["bank/new"] == 4 and metrics["bank/problems"] == 3
        bank.save(tmp_path / str(number) / "global_step_1")
        bank.finish(1)
        folder = tmp_path / str(number)
        found.append({file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.*") if file.is_file()})
        assert [len(row.response_ids) for row in bank.draw(9)] == [2, 1, 1, 1]
    assert found[0] == found[1] == found[2] and len(found[0]) == 5


def test_what_it_cannot_do_is_one_sentence(tmp_path: Path, sees: Callable[..., None]) -> None:
    for dataset in (SimpleNamespace(), SimpleNamespace(dataframe={"extra_info": [{"index": 0}]})):
        with pytest.raises(UserError, match=r"has to know the problem of each prompt.*data\.sh of a launch"):
            made(tmp_path, dataset)
    with pytest.raises(SettingsError, match=r"bank\.key is 'style', but the task has no canonical form"):
        made(tmp_path, bank=BankConfig(key="style"))
    with pytest.raises(SettingsError, match=r"bank\.key is 'style', but the task has no canonical form"):
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"id": "p0", "prompt": "ask 0", "answer": "-", "verifier": "parity"}) + "\n")
        made(tmp_path, bank=BankConfig(key="style"), task="records", task_options={"path": str(rows)})
    stored = [Rehearsal([1, 0], [5], "p9", [-0.5], "5")]
    with pytest.raises(DataError, match=r"problems that training does not draw \(first 'p9'\).*--prompt-set all"):
        made(tmp_path, presampled=SimpleNamespace(stored=stored))
    bank = made(tmp_path)
    with pytest.raises(UserError, match=r"pays graded rewards \(0\.5\).*the key `outcome` too"):
        sees(bank, (0, [5], 0.5), outcome="")
    sees(bank, (0, [5], 0.5), outcome="correct")
    with pytest.raises(UserError, match="keeps responses of one turn"):
        sees(bank, (0, [5], 1.0), own=False)


def test_checkpoints_of_another_bank_and_without_one_are_refused(tmp_path: Path, sees: Callable[..., None]) -> None:
    bank = made(tmp_path)
    bank.start(None)
    sees(bank, (0, [5], 1.0), (1, [6], 1.0))
    bank.admit(1)
    bank.save(tmp_path / "global_step_1")
    again = made(tmp_path)
    again.start(tmp_path / "global_step_1")
    assert [row.problem_id for row in again.draw(4)] == ["p0", "p1"]
    shutil.copytree(tmp_path / "global_step_1", tmp_path / "begun" / "global_step_1")
    made(tmp_path / "begun").start(None)  # verl was stopped while it wrote its first checkpoint
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("1")
    with pytest.raises(RunError, match=r"another training with a bank \(global_step_1/dph_bank\)"):
        made(tmp_path).start(None)
    with pytest.raises(RunError, match=r"set trainer\.default_local_dir=" + str(tmp_path)):
        made(tmp_path / "other").start(tmp_path / "global_step_1")
    (tmp_path / "global_step_2").mkdir()
    with pytest.raises(RunError, match=r"global_step_2/dph_bank has no bank; resume with dph\.bank\.key=''"):
        made(tmp_path).start(tmp_path / "global_step_2")
    (tmp_path / "global_step_1/dph_bank/bank_state.json").write_text("{")
    with pytest.raises(RunError, match=r"bank_state\.json is damaged"):
        made(tmp_path).start(tmp_path / "global_step_1")
