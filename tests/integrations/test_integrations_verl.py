"""The verl plug-in where verl is not needed: placing stored rows, settings, the reward function, verl's Parquet."""

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dph.config import (
    ModelConfig,
    MonitorConfig,
    MonitorSet,
    OptimConfig,
    RolloutConfig,
    TaskConfig,
    TrainConfig,
    VerlConfig,
    from_dict,
)
from dph.errors import UserError
from dph.integrations.verl import data, settings
from dph.integrations.verl.__main__ import date_in_template, one_sentence
from dph.integrations.verl.configuration import verl_config
from dph.integrations.verl.data import verl_row, write_rows
from dph.integrations.verl.layout import ModelShape, plan
from dph.integrations.verl.ordering import group_load, grouped_order, mixed_order, stored_places
from dph.integrations.verl.reward import compute_score, score
from dph.integrations.verl.settings import NO_DUAL_CLIP, TRAINER_MODE, DPHSettings, configured
from dph.models.policy import Policy
from dph.types import Outcome, Problem, Verdict, problem_json, read_problem
from dph.verifiers import register_verifier
from helpers import tiny_policy

# Placing stored rows ------------------------------------------------------------------------------------------------


any_cut = given(
    ranks=st.integers(1, 4),
    minibatches=st.integers(1, 3),
    share=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 99), min_size=0, max_size=30),
)


@any_cut
def test_every_cell_gets_its_rollouts_in_order_and_as_many_stored_rows(
    ranks: int, minibatches: int, share: int, lengths: list[int]
) -> None:
    cells = ranks * minibatches
    lengths += [1] * (-len(lengths) % cells)
    rollouts = share * cells
    order = mixed_order(rollouts, lengths, ranks, minibatches)
    assert sorted(order) == list(range(rollouts + len(lengths)))
    size = len(order) // cells
    for cell in range(cells):  # verl cuts rank by rank, and within a rank mini-batch by mini-batch
        rows = order[cell * size : (cell + 1) * size]
        assert [row for row in rows if row < rollouts] == list(range(cell * share, (cell + 1) * share))
        assert len([row for row in rows if row >= rollouts]) == len(lengths) // cells


@any_cut
def test_every_stored_row_is_in_the_mini_batch_that_verl_cuts(
    ranks: int, minibatches: int, share: int, lengths: list[int]
) -> None:
    cells, stored = ranks * minibatches, len(lengths)
    lengths += [1] * (-stored % cells)
    order = mixed_order(share * cells, lengths, ranks, minibatches)
    size = len(order) // ranks
    whole = [order[rank * size : (rank + 1) * size] for rank in range(ranks)]  # verl's share of each rank
    cells_of = [[rank[n * size // minibatches :][: size // minibatches] for rank in whole] for n in range(minibatches)]
    cut = [list(chain(*one)) for one in cells_of]
    expected = [sorted(row - share * cells for row in rows if 0 <= row - share * cells < stored) for rows in cut]
    assert stored_places(order, share * cells, stored, ranks, minibatches) == expected


def test_stored_rows_are_dealt_by_length() -> None:
    # Lengths 8 … 1 over 2 ranks × 1 mini-batch, forwards and backwards: 8+5+4+1 = 7+6+3+2
    order = mixed_order(2, [8, 7, 6, 5, 4, 3, 2, 1], ranks=2, minibatches=1)
    lengths = {2 + index: 8 - index for index in range(8)}
    assert [sum(lengths[row] for row in half if row >= 2) for half in (order[:5], order[5:])] == [18, 18]


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="do not divide evenly"):
        mixed_order(4, [1, 1, 1], ranks=2, minibatches=1)


# Whole groups ------------------------------------------------------------------------------------------------------


@given(
    ranks=st.integers(1, 4),
    minibatches=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    loads=st.lists(st.integers(1, 99), min_size=31, max_size=31),
)
def test_every_cell_gets_as_many_rows_and_few_groups_are_cut(
    ranks: int, minibatches: int, sizes: list[int], loads: list[float]
) -> None:
    cells = ranks * minibatches
    sizes = [*sizes, -sum(sizes) % cells or cells]  # as verl pads
    ends = list(accumulate(sizes))
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    order = grouped_order(groups, loads[: len(groups)], ranks, minibatches)
    every = [cell for rank in order for cell in rank]
    assert sorted(chain(*every)) == list(range(ends[-1]))
    assert [len(rank) for rank in order] == [minibatches] * ranks
    assert {len(cell) for cell in every} == {ends[-1] // cells}
    if len(set(sizes)) == 1 and len(sizes) % cells == 0:
        assert all(any(set(group) <= set(cell) for cell in every) for group in groups)


def test_groups_that_fit_stay_whole_and_the_work_is_even() -> None:
    """64 prompts with 8 responses on 8 ranks with 4 mini-batches; long-tailed responses to prompts of 512 tokens."""
    generator = random.Random(0)
    loads = [min(4096.0, 64 * generator.paretovariate(2.0)) + 512 for _ in range(64)]
    groups = [list(range(8 * index, 8 * index + 8)) for index in range(64)]
    order = grouped_order(groups, loads, ranks=8, minibatches=4)
    assert all({row // 8 for row in cell} == {cell[0] // 8, cell[-1] // 8} for rank in order for cell in rank)
    work = [sum(loads[row // 8] / 8 for cell in rank for row in cell) for rank in order]
    assert max(work) < 1.05 * sum(work) / 8


def test_the_heaviest_group_gets_the_lightest_company() -> None:
    # Loads 9, 8, 2, 1 in two cells of two groups: 9 + 1 and 8 + 2
    assert grouped_order([[0], [1], [2], [3]], [9, 8, 2, 1], ranks=2, minibatches=1) == [[[0, 3]], [[1, 2]]]


def test_a_prompt_counts_once_in_the_work_of_its_group() -> None:
    assert group_load(100, [110, 120, 130]) == 100 + 10 + 20 + 30


# Settings -----------------------------------------------------------------------------------------------------------


def configuration(**changes: Any) -> dict[str, Any]:
    """What the plug-in reads of verl's configuration, with verl's names; keys of changes are dotted, with __."""
    config: dict[str, Any] = {
        "algorithm": {
            "adv_estimator": "grpo",
            "use_kl_in_reward": False,
            "norm_adv_by_std_in_grpo": True,
            "rollout_correction": {"bypass_mode": False},
        },
        "distillation": {"enabled": False},
        "data": {"max_response_length": 64},
        "actor_rollout_ref": {
            "actor": {
                "policy_loss": {"loss_mode": "vanilla"},
                "loss_agg_mode": "token-mean",
                "loss_scale_factor": None,
                "clip_ratio_low": 0.2,
                "clip_ratio_high": 0.28,
                "clip_ratio_c": 1e6,
                "use_kl_loss": False,
                "kl_loss_type": "low_var_kl",
                "kl_loss_coef": 0.001,
                "entropy_coeff": 0,
            }
        },
        "dph": {"rows": 6, "rehearsal": "presample"},
    }
    for name, value in changes.items():
        *path, last = name.split("__")
        target = config
        for key in path:
            target = target[key]
        target[last] = value
    return config


@pytest.mark.parametrize(
    ("rollout", "found"),
    [
        ({"top_k": 50}, "top_k=50"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"ignore_eos": True}, "ignore_eos=True"),
        (
            {"engine_kwargs": {"vllm": {"logits_processors": ["own:P"]}}},
            r"engine_kwargs.vllm=\['own:P'\]",
        ),
    ],
)
def test_another_distribution_than_the_stored_responses_is_refused(rollout: dict[str, Any], found: str) -> None:
    with pytest.raises(UserError, match=rf"actor_rollout_ref\.rollout\.{found} samples from another"):
        configured(configuration(actor_rollout_ref__rollout=rollout))
    configured(configuration(actor_rollout_ref__rollout=rollout, dph={"rows": 0}))


def test_a_bank_that_could_do_nothing_is_refused() -> None:
    def block(**changes: Any) -> dict[str, Any]:
        return {"rows": 6, "bank": {"key": "text", "begun": False}, **changes}

    found = configured(configuration(dph=block()))[0]
    assert not found.begins_with_stored and found.bank.capacity == 16, "an empty bank needs no presample run"
    assert configured(configuration(dph=block(rehearsal="run", bank={"key": "text"})))[0].begins_with_stored
    with pytest.raises(
        UserError, match=r"with whose responses the bank begins; name one, or set dph\.bank\.begun=false"
    ):
        configured(configuration(dph=block(bank={"key": "text"})))
    with pytest.raises(UserError, match=r"dph\.bank\.key is 'text', but dph\.rows is 0"):
        configured(configuration(dph=block(rows=0)))
    with pytest.raises(UserError, match="would compare with one reference policy"):
        configured(configuration(dph=block(estimator="definition")))
    with pytest.raises(UserError, match=r"responses of one turn, which multi_turn\.enable has not"):
        configured(configuration(dph=block(), actor_rollout_ref__rollout={"multi_turn": {"enable": True}}))
    configured(configuration(dph=block(), actor_rollout_ref__rollout={"top_k": 50}))  # what it draws is its own


def test_verls_usual_sampling_is_the_models_distribution() -> None:
    usual = {"temperature": 1.0, "top_k": -1, "top_p": 0.9, "repetition_penalty": 1.0, "ignore_eos": False}
    configured(configuration(actor_rollout_ref__rollout=usual | {"engine_kwargs": {"vllm": {}, "sglang": None}}))


def test_verl_renders_prompts_with_one_date(tmp_path: Path) -> None:
    path = tmp_path / "model"
    tiny_policy().save(path)
    model: dict[str, Any] = {"path": str(path), "trust_remote_code": False, "custom_chat_template": None}
    assert date_in_template(model, "2026-09-07") == "", "without a chat template"
    policy = Policy.load(ModelConfig(path=str(path), device="cpu"))
    for template in ("{{ messages[0].content }}", "{{ strftime_now('%d %B') }} {{ messages[0].content }}"):
        policy.tokenizer.chat_template = template
        policy.tokenizer.save_pretrained(path)
        writes = "strftime_now" in template
        assert bool(date_in_template(model, "2026-09-07")) == writes
        assert (
            bool(date_in_template(model | {"custom_chat_template": template, "path": "nowhere"}, "2026-09-07"))
            == writes
        )
    policy.tokenizer.chat_template = date_in_template(model, "2026-09-07")
    message = [{"role": "user", "content": "easy 1"}]
    assert policy.tokenizer.apply_chat_template(message, tokenize=False) == "07 September easy 1"


def test_a_launch_gives_verl_the_variables_and_the_date() -> None:
    shape = ModelShape(8_030_261_248, 4096, 32, 128_256, 32, 8, 128)
    chosen = {"path": "some/model", "chat_template_kwargs": {"enable_thinking": "false"}, "date": "2026-09-07"}
    for model, variables, date in ((chosen, {"enable_thinking": False}, "2026-09-07"), ({}, None, ModelConfig.date)):
        config = from_dict(VerlConfig, {"model": {"path": "some/model"} | model})
        written = verl_config(config, plan(shape, config), Path("launch"))
        assert written["data"].get("apply_chat_template_kwargs") == variables and written["dph"]["date"] == date


def objective(**changes: Any) -> Any:
    return configured(configuration(**changes))[1]


def test_the_objective_combines_verls_settings_and_ours() -> None:
    loss = objective(
        actor_rollout_ref__actor__use_kl_loss=True,
        actor_rollout_ref__actor__kl_loss_coef=0.01,
        actor_rollout_ref__actor__clip_ratio_c=3.0,
        dph={"rows": 6, "rehearsal": "presample", "divergence": "alpha", "eta": 0.01, "reduction": "per_set"},
    )
    assert (loss.clip_low, loss.clip_high, loss.dual_clip, loss.aggregation) == (0.2, 0.28, 3.0, "token")
    assert (loss.kl, loss.kl_coef) == ("k3", 0.01)
    assert (loss.divergence, loss.eta, loss.reduction) == ("alpha", 0.01, "per_set")


def test_the_file_of_defaults_is_what_the_settings_say() -> None:
    file = Path(settings.__file__).with_name("dph_defaults.yaml")
    defaults = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert from_dict(DPHSettings, defaults["dph"]) == DPHSettings()
    assert list(defaults["dph"]) == list(asdict(DPHSettings()))
    assert defaults["trainer"]["v1"]["trainer_mode"] == TRAINER_MODE
    assert defaults["actor_rollout_ref"]["actor"]["clip_ratio_c"] == NO_DUAL_CLIP


def test_without_stored_rows_there_is_no_rehearsal_term() -> None:
    assert objective(dph={"eta": 0.2}).eta == 0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"dph": {"etta": 0.1}}, "etta"),
        ({"dph": {"rows": 6}}, "names no run of `dph presample`"),
        ({"dph": {"rows": -1}}, "under .dph.: rows is -1; it must be 0 or more"),
        ({"algorithm__adv_estimator": "gae"}, "algorithm.adv_estimator=grpo"),
        ({"algorithm__use_kl_in_reward": True}, "algorithm.use_kl_in_reward=False"),
        ({"actor_rollout_ref__actor__loss_agg_mode": "seq-mean-token-sum"}, "loss_agg_mode"),
        ({"actor_rollout_ref__actor__use_kl_loss": True, "actor_rollout_ref__actor__kl_loss_type": "full"}, "kl_loss"),
        ({"dph": {"rows": 6, "rehearsal": "run", "estimator": "definition"}}, "needs a reference model"),
        ({"dph": {"rows": 6, "rehearsal": "run", "divergence": "chi"}}, "chi"),
        ({"dph": {"advantage": "best"}}, "best"),
        ({"dph": {"advantage": "mara", "advantage_options": {"beta": "0.1"}}}, "reads a reference model"),
        ({"dph": {"advantage": "uniqueness"}}, "by text"),
        ({"dph": {"advantage_options": {"normalize_std": "false"}}}, "norm_adv_by_std_in_grpo"),
        ({"dph": {"advantage": "maxrl"}, "algorithm__norm_adv_by_std_in_grpo": False}, "leave it at true"),
        ({"dph": {"policy": "kl_cov"}}, "'kl_cov' selects tokens of the whole"),
        ({"dph": {"policy": "clip_cov"}}, "'clip_cov' selects tokens of the whole"),
        ({"dph": {"policy": "gspo"}, "actor_rollout_ref__actor__clip_ratio_c": 3.0}, "'gspo' has no dual clip"),
        ({"dph": {"alpha": 0.2}}, "loss.alpha"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        objective(**changes)


# The reward function -----------------------------------------------------------------------------------------------

PROBLEM = Problem("p/1", "What is 2 + 2?", ["four", "4"], "exact", {"kind": "sum"})


def judge(response: str, **options: Any) -> dict[str, Any]:
    info = {"index": 0, "problem": problem_json(PROBLEM), "num_turns": 2}
    return asyncio.run(compute_score("toy", response, "4", info, **options))


def test_a_problem_survives_the_way_through_another_engine() -> None:
    back = read_problem(problem_json(PROBLEM))
    assert (back.id, back.answer, back.verifier, back.meta) == ("p/1", ["four", "4"], "exact", {"kind": "sum"})


def test_responses_are_judged_by_the_problems_verifier() -> None:
    assert judge("four") == {"score": 1.0, "outcome": "correct", "scored": 1.0, "acc": 1.0, "problem": "p/1"}
    assert judge("five") == {"score": 0.0, "outcome": "wrong", "scored": 1.0, "acc": 0.0, "problem": "p/1"}


def test_an_option_that_no_verifier_has_is_refused() -> None:
    with pytest.raises(UserError, match="comparer"):
        judge("four", comparer="strict")


def test_a_response_that_could_not_be_judged_has_no_accuracy_and_is_not_scored() -> None:
    for outcome in (Outcome.INFRA_ERROR, Outcome.GOLD_ERROR):
        assert score(Verdict(outcome, 0.0)) == {"score": 0.0, "outcome": str(outcome), "scored": 0.0, "problem": ""}


def test_a_partial_reward_is_not_a_correct_answer() -> None:
    assert score(Verdict(Outcome.WRONG, 0.1)) == {
        "score": 0.1,
        "outcome": "wrong",
        "scored": 1.0,
        "acc": 0.0,
        "problem": "",
    }


@pytest.fixture(scope="module")
def pairs() -> str:
    """The name of a verifier that judges a response only while it judges another one."""
    both = threading.Barrier(2)

    class Pairs:
        def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
            if items[0][1] == "broken":
                raise OSError("no memory")
            both.wait(10)
            return [Verdict(Outcome.CORRECT, float(response)) for _, response in items]

        def check(self, problems: Sequence[Problem]) -> dict[str, str]:
            return {}

        def close(self) -> None: ...

    register_verifier("test_pairs")(Pairs)
    return "test_pairs"


def test_as_many_responses_are_judged_at_once_as_there_are_workers(pairs: str) -> None:
    """Each gets its own verdict."""
    info = {"problem": problem_json(Problem("p/1", "", "", pairs))}

    async def ask() -> list[dict[str, Any]]:
        return await asyncio.gather(*(compute_score("toy", str(i), "", info, workers=2) for i in range(8)))

    assert [found["score"] for found in asyncio.run(ask())] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_judge_that_fails_gives_no_verdict_and_continues(pairs: str) -> None:
    info = {"problem": problem_json(Problem("p/1", "", "", pairs))}
    broken = asyncio.run(compute_score("toy", "broken", "", info))
    assert broken == {"score": 0.0, "outcome": "infra_error", "scored": 0.0, "problem": "p/1"}
    assert judge("four")["acc"] == 1.0


# verl's Parquet -----------------------------------------------------------------------------------------------------


def test_problems_are_written_as_verl_reads_them(tmp_path: Any) -> None:
    chat = Problem("p/2", ({"role": "system", "content": "s"}, {"role": "user", "content": "u"}), 7, "math")
    write_rows(tmp_path / "train.parquet", [(problem, "toy", "train") for problem in (PROBLEM, chat)])
    first, second = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert first["prompt"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert [message["role"] for message in second["prompt"]] == ["system", "user"]
    assert second["reward_model"] == {"style": "rule", "ground_truth": "7"}
    assert (second["data_source"], second["ability"]) == ("toy", "math")
    assert json.loads(second["extra_info"]["problem"])["answer"] == 7
    assert Counter(row["extra_info"]["split"] for row in (first, second)) == {"train": 2}


def test_a_problem_with_variables_of_its_own_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.tokenizer.chat_template = "{{ messages[0].content }}{{ enable_thinking }}"
    policy.save(tmp_path / "model")
    row = {"prompt": "easy 1", "answer": "1", "verifier": "exact", "chat_template_kwargs": {"enable_thinking": False}}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n")
    config = TrainConfig(
        model=ModelConfig(path=str(tmp_path / "model")),
        task=TaskConfig("records", {"path": str(tmp_path / "own.jsonl")}),
        rollout=RolloutConfig(prompts=1),
        optim=OptimConfig(minibatches=1),
        monitor=MonitorConfig(split="train"),
    )
    with pytest.raises(UserError, match=r"problem own-1 sets variables .* which verl does not read"):
        data.convert(config, tmp_path / "data")


def test_each_held_out_set_is_a_source_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chat_tokenizer", "check_variables", "encode_problem"):  # nothing is tokenised here
        monkeypatch.setattr(data, name, lambda *_: None)
    for name, count in (("own", 4), ("other", 5)):
        rows = [{"id": f"p{i}", "prompt": f"{name} {i}", "answer": "1", "verifier": "exact"} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = MonitorSet("records", {"path": str(tmp_path / "other.jsonl")}, split="train", limit=3)
    config = TrainConfig(
        task=TaskConfig("records", {"path": str(tmp_path / "own.jsonl")}),
        rollout=RolloutConfig(prompts=2),
        monitor=MonitorConfig(split="train", limit=2, sets={"more": other}),
    )
    data.convert(config, tmp_path / "data")
    rows = pq.read_table(tmp_path / "data" / "val.parquet").to_pylist()
    found = [(row["data_source"], row["extra_info"]["index"], row["prompt"][0]["content"]) for row in rows]
    assert found == [
        *(("records", i, f"own {i}") for i in range(2)),
        *(("monitor/more", 2 + i, f"other {i}") for i in range(3)),
    ]
    assert pq.read_table(tmp_path / "data" / "train.parquet").num_rows == 4
    data.convert(config, tmp_path / "data")  # its own tables are replaced
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "data" / "val.parquet")
    with pytest.raises(UserError, match=r"val\.parquet is there already and would be replaced"):
        data.convert(config, tmp_path / "data")
    assert pq.read_table(tmp_path / "data" / "val.parquet").to_pylist() == [{"mine": 1}]


def test_a_row_does_not_repeat_the_prompt() -> None:
    row = verl_row(PROBLEM, 0, "toy", "train")
    assert PROBLEM.prompt not in row["extra_info"]["problem"]


# Messages -----------------------------------------------------------------------------------------------------------


def test_an_error_from_another_process_is_printed_without_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    class RayCopy(UserError):
        """As Ray raises it in the driver: of the error's class, with the traceback as its text."""

        cause = UserError("the rehearsal set is empty")

    def task() -> None:
        raise RayCopy("Traceback (most recent call last): …")

    with pytest.raises(SystemExit) as end:
        one_sentence(task)()
    assert end.value.code == 2
    assert capsys.readouterr().err == "dph: the rehearsal set is empty\n"
