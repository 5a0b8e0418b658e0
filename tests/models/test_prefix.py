"""Rows that share prompts have the same log-probabilities and gradients as the same rows computed one by one."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from architectures import any_policy, skip_unless_known
from dph.config import ModelConfig
from dph.models import sharing
from dph.models.attention import using
from dph.models.batch import Tokens, by_prompt
from dph.models.policy import Policy
from dph.models.traits import attention_window
from dph.training.rows import Row, batches, collate
from helpers import gradient, random_policy, shares, tiny_policy
from shared_rows import EXACT, SHARING, error, evaluated, grouped_rows

pytestmark = pytest.mark.filterwarnings(  # peft asks a model for this before it has adapters
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)
PLAIN = {
    "mistral": ({"sliding_window": 12}, "its attention window of 12 tokens is shorter than the sequences"),
    "gemma2": ({"sliding_window": 64, "query_pre_attn_scalar": 8}, "its attention uses softcap"),
    "falcon_h1": (
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
        "its layers",  # mix tokens in other ways or (transformers 5.10) do not pass keyword arguments on to attention
    ),
    "bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4}, ""),
}


@pytest.mark.parametrize("name", SHARING)
def test_every_architecture_computes_the_same_with_shared_prompts(name):
    policy, rows = random_policy(name, **SHARING[name]), grouped_rows()
    assert shares(policy, rows)
    expected = evaluated(policy, rows, shared=False)
    assert float(expected[2].norm()) > 1
    assert error(evaluated(policy, rows, shared=True), expected) <= EXACT


def test_a_model_in_fp64_is_packed_too():
    policy, rows = random_policy("llama", **SHARING["llama"]), grouped_rows()
    policy.model.double()
    assert shares(policy, rows)
    assert error(evaluated(policy, rows, shared=True), evaluated(policy, rows, shared=False)) <= EXACT


def packed_apart(policy: Policy, length: int, prompts: int, budget: int) -> float:
    """Largest difference, in nats, between rows of `length` tokens as they are computed and one by one."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        Tokens([3 + prompt] * 4, torch.randint(3, 32, (length - 4,), generator=generator).tolist())
        for prompt in range(prompts)
        for _ in range(2)
    ]
    found = policy.response_logprobs(rows, 1.0, budget)
    expected = Policy(policy.model, policy.tokenizer, shared_prefix=False).response_logprobs(rows, 1.0, budget)
    return max(abs(one - other) for a, b in zip(found, expected, strict=True) for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        # scales queries by a token's place in the batch from some place on
        ("llama4_text", {"floor_scale": 64, "no_rope_layers": [0, 0], "layer_types": ["full_attention"] * 2}, "differ"),
        ("llama4_text", {"floor_scale": 64, "no_rope_layers": [1, 0], "layer_types": ["full_attention"] * 2}, "differ"),
        # hands its attention the keys that a layer selects
        ("minimax_m3_vl_text", {"layer_types": ["full_attention", "minimax_m3_sparse"]}, "its attention uses"),
        # makes masks by the kinds of its layers, whatever use_sliding_window says
        ("smollm3", {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 20}, "attention window"),
        ("gpt_oss", {}, "its attention uses s_aux"),
        ("deepseek_v32", {}, "its code does not run in this way"),  # it reads the mask by itself
    ],
)
def test_what_begins_beyond_a_few_tokens_is_not_packed_and_named(name, changes, reason, capsys):
    skip_unless_known(name)
    policy = any_policy(name, **changes)
    assert packed_apart(policy, 24, 9, 16384) < 1e-5
    assert packed_apart(policy, 62, 2, 16384) < 1e-5
    told = " ".join(capsys.readouterr().err.split())
    assert f"({name})" in told and reason in told


def test_a_scale_that_begins_beyond_all_tokens_of_a_run_changes_nothing():
    policy = any_policy("llama4_text", floor_scale=8192, no_rope_layers=[0, 0], layer_types=["full_attention"] * 2)
    rows = [Tokens([3, 4, 5], [index, 6]) for index in range(4)]
    assert shares(policy, rows, 64) and not shares(policy, rows * 4000, 16384)


def test_only_known_keywords_of_attention_are_ignored():
    sharing.refuse_unknown({"position_ids": torch.ones(1), "use_cache": True, "anything": None, "output_attentions": 1})
    for value in (torch.ones(1), 1.0, 0, "x"):
        with pytest.raises(sharing.NotShareable, match="anything"):
            sharing.refuse_unknown({"anything": value})


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({"layer_types": ["full_attention"], "sliding_window": 8}, 1 << 40),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8, "use_sliding_window": False}, 8),
        ({"sliding_window": 8, "use_sliding_window": False}, 1 << 40),
        ({"sliding_window": 8}, 8),
        ({"layer_types": ["chunked_attention"], "attention_chunk_size": 9}, 9),
        ({"layer_types": ["full_attention"], "attention_chunk_size": 9}, 1 << 40),
    ],
)
def test_a_window_counts_where_layers_have_it(settings, window):
    assert attention_window(SimpleNamespace(**settings)) == window


@pytest.mark.filterwarnings("default::UserWarning")  # falcon_h1's own code warns about its slow path
@pytest.mark.parametrize("name", PLAIN)
def test_models_that_cannot_share_do_not_and_report_it_once(name, capsys):
    changes, reason = PLAIN[name]
    policy, rows = random_policy(name, **changes), grouped_rows()
    assert not shares(policy, rows) and not shares(policy, rows)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("this model computes the prompt again for each response") == 1 and reason in told
    for part, batch in batches(policy, by_prompt(rows), 60):
        assert batch.layout is None and len(part) == len(batch.input_ids)
    with torch.no_grad():
        logprobs, _ = policy.logprobs(collate(rows))
        alone = [policy.logprobs(collate([row]))[0][0] for row in rows]
    for values, own in zip(logprobs, alone, strict=True):
        assert float((values[: len(own)] - own).abs().max() if len(own) else 0) <= EXACT


def test_a_budget_too_small_for_sharing_is_reported_once(capsys):
    policy = random_policy("llama")
    rows = [Row(list(range(1, 31)), [token, 0], old_logprobs=[0.0, 0.0]) for token in range(12)]
    for budget, computed in ((42, 1), (30, 12), (31, 12)):
        parts = [part for part, _ in batches(policy, by_prompt(rows), budget)]
        assert len(parts) == computed, budget
        told = " ".join(capsys.readouterr().err.split())
        said = "each prompt is computed 12.0 times, because a micro-batch of 30 tokens does not hold all its responses"
        assert (said in told) == (budget == 30)  # and not again for 31


def test_a_window_as_long_as_the_sequences_allows_sharing():
    policy, rows = random_policy("mistral", sliding_window=33), grouped_rows()
    assert max(row.length for row in rows) <= 33 and shares(policy, rows)
    assert error(evaluated(policy, rows, True), evaluated(policy, rows, False)) <= EXACT
    assert attention_window(policy.model.config) == 33
    with pytest.raises(sharing.NotShareable, match="window has only 33 tokens"):
        policy.logprobs(collate([*rows, replace(rows[0], prompt_ids=[1] * 40)], shared=True))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_reference_for_other_devices_computes_the_same(kv_heads):
    policy, rows = random_policy("llama", num_key_value_heads=kv_heads), grouped_rows()
    expected = evaluated(policy, rows, shared=False)
    assert error(evaluated(policy, rows, shared=True), expected) <= EXACT
    with using("gather"):
        assert error(evaluated(policy, rows, shared=True), expected) <= EXACT


@pytest.mark.parametrize("lengths", [(4, 4, 4), (4, 3, 1), (1, 1), (9,)])
def test_groups_of_equal_and_of_ragged_length(lengths):
    """Suffixes of equal length are read in place; others are padded within attention."""
    policy = tiny_policy()
    rows = [
        Row([2, 3, prompt], [4 + index, *range(5, 4 + length)], ())
        for prompt in (0, 1)
        for index, length in enumerate(lengths)
    ]
    assert error(evaluated(policy, rows, shared=True), evaluated(policy, rows, shared=False)) <= EXACT


@pytest.mark.parametrize("entropy", ["value", "gradient"])
def test_entropies_and_chunks_of_logits(monkeypatch, entropy):
    policy, rows = tiny_policy(), grouped_rows()
    expected = evaluated(policy, rows, False, entropy)
    for elements in (1 << 25, 7 * 18):
        monkeypatch.setattr("dph.models.logprobs.LOGITS_AT_ONCE", elements)
        found = evaluated(policy, rows, True, entropy)
        assert error(found, expected) <= EXACT
        assert found[1] is not None and expected[1] is not None
        assert float((found[1] - expected[1]).detach().abs().max()) <= EXACT


@pytest.mark.parametrize("budget", [1, 25, 60, 10_000])
def test_any_budget_gives_the_same_sum_of_gradients(budget):
    policy, rows = tiny_policy(), grouped_rows()

    def total(parts):
        policy.model.zero_grad(set_to_none=True)
        for part, batch in parts:
            logprobs, _ = policy.logprobs(batch)
            (logprobs * torch.tensor([row.advantage for row in part])[:, None]).sum().backward()
        return gradient(policy)

    alone = total((part, collate(part)) for part in ([row] for row in rows))
    found = total(batches(policy, by_prompt(rows[::-1]), budget))
    assert float((found - alone).norm()) <= EXACT * float(alone.norm())


def test_recomputed_layers_use_the_same_attention_in_the_backward_pass(tmp_path):
    tiny_policy().save(tmp_path)
    rows, found = grouped_rows(), []
    for checkpointing in (False, True):
        policy = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", gradient_checkpointing=checkpointing))
        calls = []
        policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        functions = [layer.__dict__.get("_gradient_checkpointing_func") for layer in policy.model.model.layers]
        policy.check_length(64)  # makes its check
        calls.clear()
        found.append(evaluated(policy, rows, shared=True))
        assert len(calls) == (2 if checkpointing else 1)  # recomputed in the backward pass
        assert policy.model.config._attn_implementation == "sdpa"
        assert functions == [layer.__dict__.get("_gradient_checkpointing_func") for layer in policy.model.model.layers]
    assert error(found[1], found[0]) == 0


def test_adapters_get_the_same_gradients(tmp_path):
    tiny_policy().save(tmp_path)
    policy = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", lora_rank=3, lora_alpha=12))
    with torch.no_grad():
        for _, parameter in policy.trainable():
            parameter.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(parameter.numel()))
    rows = grouped_rows()
    assert shares(policy, rows)
    assert error(evaluated(policy, rows, shared=True), evaluated(policy, rows, shared=False)) <= EXACT


def test_bfloat16_errors_are_like_those_of_the_plain_path():
    exact, rows = tiny_policy(), grouped_rows()
    rounded = Policy(exact.model, exact.tokenizer, precision="bf16")
    truth = evaluated(exact, rows, shared=False)
    errors = []
    for shared in (False, True):
        found = evaluated(rounded, rows, shared)
        assert found[0].dtype == torch.float32
        errors.append(float((found[0] - truth[0]).abs().mean()))
        # bfloat16 has 8 bits: a relative error of 2^-8 on logits that reach about 10, over 2 layers
        assert float((found[0] - truth[0]).abs().max()) < 0.3
        assert float((found[2] - truth[2]).norm()) < 0.1 * float(truth[2].norm())
    assert 0 < errors[1] < 2 * errors[0]


def test_sharing_is_used_if_it_saves_tokens_and_is_enabled():
    policy, rows = tiny_policy(), grouped_rows()
    alone = [rows[0], rows[6], rows[9]]
    assert shares(policy, rows) and not shares(policy, alone)
    assert [batch.layout is None for _, batch in batches(policy, by_prompt(alone), 1000)] == [True]
    packed = [batch for _, batch in batches(policy, by_prompt(rows), 1000)]
    assert len(packed) == 1 and packed[0].layout is not None
    without = Policy(policy.model, policy.tokenizer, shared_prefix=False)
    assert not shares(without, rows)


def test_the_models_own_attention_is_restored_after_an_error():
    policy = tiny_policy()
    with contextlib.suppress(ZeroDivisionError), sharing.shared_attention(policy.model.get_decoder()):
        assert policy.model.config._attn_implementation == sharing.NAME
        raise ZeroDivisionError
    assert policy.model.config._attn_implementation == "sdpa"
