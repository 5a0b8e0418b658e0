"""What is found out about a model by running it: its head, its rotary embedding, and whether it can be a policy.
Trials: on the first layers of every kind, at the lengths that are computed, and with the errors that they expect.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from architectures import any_model, any_policy
from dph.config import ModelConfig
from dph.config.sampling import SamplingParams
from dph.errors import ModelError, UserError
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.models.traits import context_of, rotary_limit
from dph.models.trial import Unsupported, attempt, differing, first_layers, scale, with_first_layers
from dph.sampling.generate import HFSampler
from dph.training.rows import collate
from helpers import gradient, policy_with_outliers, random_rows, shares, tiny_policy

EXACT = 1e-5
"""Nats in fp32."""

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def plain_logprobs(model, row):
    """log π of each token from the logits after the tokens before it, one forward pass for each."""
    found = []
    with torch.no_grad():
        for step, token in enumerate(row.response_ids):
            ids = torch.tensor([[*row.prompt_ids, *row.response_ids[:step]]])
            found.append(float(model(input_ids=ids, use_cache=False).logits[0, -1].double().log_softmax(-1)[token]))
    return found


def assert_logprobs_are_the_models(policy, rows, budget=10_000):
    for row, found in zip(rows, policy.response_logprobs(rows, 1.0, budget), strict=True):
        assert found == pytest.approx(plain_logprobs(policy.model, row), abs=EXACT)


# Head ---------------------------------------------------------------------------------------------------------------


class Scaled(LlamaForCausalLM):
    """A Llama that transforms its logits by a setting that no other model has."""

    def forward(self, *args, **kwargs):
        output: Any = super().forward(*args, **kwargs)
        output.logits = output.logits * 0.5
        return output


class Narrowed(LlamaForCausalLM):
    """A Llama that scales the input of its output embedding."""

    def forward(self, *args, **kwargs):
        scaling = self.lm_head.register_forward_pre_hook(lambda _, inputs: (inputs[0] / 3,))
        output = super().forward(*args, **kwargs)
        scaling.remove()
        return output


class WrongBeyondAChunk(LlamaForCausalLM):
    """The last token of a row changes the logits at those before it, if the row is longer than a chunk."""

    def forward(self, *args, **kwargs):
        output: Any = super().forward(*args, **kwargs)
        ids = kwargs["input_ids"]
        if ids.shape[1] > max(getattr(self.config, name, 0) for name in ("chunk_size", "mamba_chunk_size")):
            output.logits[..., 0] += ids[:, -1:] / 10
        return output


@pytest.mark.parametrize("kind", [Scaled, Narrowed])
def test_a_model_that_transforms_logits_by_any_setting_is_found_by_trying(kind, capsys):
    policy = tiny_policy()
    model = kind(policy.model.config).eval()
    model.load_state_dict(policy.model.state_dict())
    transformed = Policy(model, policy.tokenizer)
    assert_logprobs_are_the_models(transformed, random_rows(policy, 6))
    assert transformed.head is None and policy.head is policy.model.lm_head
    assert capsys.readouterr().err.count("all logits are in memory at once") == 1


@pytest.mark.parametrize("name", ["recurrent_gemma", "xlstm", "roberta", "modernbert-decoder", "llama4_text"])
def test_models_with_heads_of_their_own(name):
    """Capped logits, a head with layers of its own, and a decoder that is not where others have it."""
    policy = any_policy(name)
    policy.model.eval()
    assert_logprobs_are_the_models(policy, random_rows(policy, 6))


# Models that cannot be policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("bert", {"is_decoder": False}, "it is not causal"),
        ("rwkv", {"num_hidden_layers": 12}, "its weights change whenever it runs"),
        ("bert", {"max_position_embeddings": 4, "type_vocab_size": 0}, "it does not run on token ids alone"),
    ],
)
def test_a_model_that_is_no_policy_is_refused_in_one_sentence(name, changes, reason):
    for use in (
        lambda policy: policy.response_logprobs([Tokens([3], [4])], 1.0, 100),
        lambda policy: HFSampler(policy).sample([[3]], SamplingParams(1, max_tokens=1), [0]),
    ):
        with pytest.raises(ModelError, match=reason) as caught:
            use(any_policy(name, **changes))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("setting", "size"), [("chunk_size", 128), ("mamba_chunk_size", 256)])
def test_a_model_is_tried_beyond_the_chunk_in_which_it_computes_a_sequence(setting, size):
    """Layers with a state may be wrong beyond one chunk only, as those of Nemotron-H in transformers 5.9."""
    policy = tiny_policy()
    model = WrongBeyondAChunk(policy.model.config).eval()
    model.load_state_dict(policy.model.state_dict())
    model.config.max_position_embeddings = 1024
    setattr(model.config, setting, size)
    with pytest.raises(ModelError, match="it is not causal"):
        _ = Policy(model, policy.tokenizer).head
    setattr(model.config, setting, 1024)  # too long to try
    _ = Policy(model, policy.tokenizer).head


def doge(**changes: int) -> Policy:
    policy = any_policy("doge", **changes)
    policy.model.eval()
    try:
        _ = policy.head
    except UserError:
        pytest.skip("with transformers 5.9 it looks ahead at any length, and is refused")
    return policy


def test_a_model_that_looks_ahead_in_long_rows_only_is_refused_for_those():
    """Doge drops keys beyond a window, by a score that later tokens have a part in."""
    policy = doge(keep_window_size=100, max_position_embeddings=256)
    row = [3 + 5 * index % 29 for index in range(120)]
    assert_logprobs_are_the_models(policy, [Tokens(row[:2], row[2:40])])
    with pytest.raises(ModelError, match="predicts a token also from later ones"):
        policy.response_logprobs([Tokens(row[:2], row[2:])], 1.0, 1000)
    with pytest.raises(ModelError, match="later ones"):
        HFSampler(policy).sample([row[:10]], SamplingParams(1, max_tokens=100), [0])


def test_a_trial_of_a_length_is_not_repeated_while_rows_grow(monkeypatch):
    """It vouches for all lengths of its size."""
    policy, tried = tiny_policy(), []
    policy.model.config.max_position_embeddings = 1024

    def causal(outputs, vocabulary, longest):
        tried.append(longest)
        return True

    monkeypatch.setattr("dph.models.policy.is_causal", causal)
    for tokens in [*range(1, 64, 7), *range(70, 101)]:
        policy.check_length(tokens)
    for tokens in (60, 100):
        policy.check_length(tokens)
    assert tried == [64, 128]


def test_a_model_with_a_large_error_in_bf16_is_tried_in_fp32():
    policy = policy_with_outliers()
    for kept in (torch.float32, torch.bfloat16):
        policy.model.to(kept)
        tried = Policy(policy.model, policy.tokenizer, precision="bf16")
        assert tried.head is not None and tried.sharing.obstacle(16, 64) is None
        assert {parameter.dtype for parameter in policy.model.parameters()} == {kept}


def test_such_a_model_is_refused_when_it_is_loaded(tmp_path):
    policy = any_policy("bert", is_decoder=False)
    policy.save(tmp_path)
    with pytest.raises(ModelError, match="it is not causal"):
        Policy.load(ModelConfig(path=str(tmp_path), device="cpu"))


# Dropout ------------------------------------------------------------------------------------------------------------

NOISY = ("opt", "gpt2", "qwen2", "phi", "bart", "biogpt", "mixtral")
"""Dropout as modules, as functions, of attention and of whole layers, and noise in a router."""
PEFT = ("ignore:fan_in_fan_out is set to False", "ignore:The following .*_pattern keys")


def saved(name, path):
    policy = any_policy(name, noise=0.4)
    policy.model.eval()
    policy.save(path)
    return policy


@pytest.mark.filterwarnings(*PEFT)
@pytest.mark.parametrize("name", NOISY)
def test_a_policy_with_adapters_never_runs_dropout(name, tmp_path):
    saved(name, tmp_path)
    policy = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", lora_rank=2))
    rows = random_rows(policy, 4)
    for _ in range(2):  # before and after sampling
        assert_logprobs_are_the_models(policy, rows)
        HFSampler(policy).sample([[4, 5]], SamplingParams(2, max_tokens=3), [0])
    expected = policy.response_logprobs(rows, 1.0, 1000)
    policy.model.train()
    assert policy.response_logprobs(rows, 1.0, 1000) == expected
    assert policy.model.training  # a caller's mode is not changed


@pytest.mark.parametrize("name", NOISY)
def test_recomputed_layers_never_run_dropout(name, tmp_path):
    saved(name, tmp_path)
    found = []
    for recomputes in (False, True):
        config = ModelConfig(path=str(tmp_path), device="cpu", gradient_checkpointing=recomputes)
        policy = Policy.load(config)
        rows = random_rows(policy, 4)
        policy.model.train(recomputes)
        for shared in {False, shares(policy, [rows[0], rows[0]])}:
            values, _ = policy.logprobs(collate([*rows, rows[0]], shared=shared))
            values.sum().backward()
            assert policy.model.training is recomputes
            found.append(values.detach())
        found.append(gradient(policy))
    plain, recomputed = found[: len(found) // 2], found[len(found) // 2 :]
    for one, other in zip(plain, recomputed, strict=True):
        assert float((other - one).norm()) <= EXACT * float(one.norm())


# Rotary embeddings that depend on the length ------------------------------------------------------------------------

ORIGINAL = 12
LONGROPE: dict[str, Any] = {
    "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "partial_rotary_factor": 1.0}
    | {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "original_max_position_embeddings": ORIGINAL},
    "original_max_position_embeddings": ORIGINAL,
}
DYNAMIC: dict[str, Any] = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}


def test_prompts_are_not_shared_where_the_rotary_embedding_depends_on_the_length(capsys):
    policy = any_policy("phi3", **LONGROPE)
    prompt = [3, 4, 5, 6]
    short = [Tokens(prompt, [token] * 8) for token in (5, 6)]
    assert shares(policy, short) and not shares(policy, [*short, Tokens(prompt, [7] * 9)])
    assert "sequences of more than 12 tokens" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("name", "changes"), [("llama", DYNAMIC), ("phi3", LONGROPE)])
def test_rows_in_which_frequencies_depend_on_the_length_are_refused(name, changes):
    policy = any_policy(name, **changes)
    policy.model.eval()
    longest = policy.context_length
    fitting, longer = Tokens([3] * (longest - 4), [5] * 4), Tokens([3] * (longest - 4), [5] * 5)
    assert longest == rotary_limit(policy.model.config)
    assert_logprobs_are_the_models(policy, [fitting, Tokens([4], [6])])
    with pytest.raises(ModelError, match=f"tokens, but beyond {longest} this"):
        policy.response_logprobs([Tokens([4], [6]), longer], 1.0, 1000)
    sampler = HFSampler(policy)
    with pytest.raises(ModelError, match=f"tokens, but beyond {longest} this"):
        sampler.sample([[3] * 10], SamplingParams(1, max_tokens=longest - 9), [0])
    assert sampler.sample([[3] * 10], SamplingParams(1, max_tokens=longest - 10), [0])


def test_lengths_are_read_from_embeddings_of_all_and_of_single_kinds_of_layers():
    config = any_model("phi3", **LONGROPE).config
    assert rotary_limit(config) == ORIGINAL
    config.rope_parameters = {"full_attention": {}, "sliding_attention": {"rope_type": "dynamic"}}
    assert rotary_limit(config) == 64
    assert rotary_limit(tiny_policy().model.config) == 1 << 62


def test_a_context_without_a_limit_is_huge():
    """XLNet's is -1, with which rows of a trial would be empty."""
    sizes = [context_of(SimpleNamespace(max_position_embeddings=size)) for size in (-1, None, 0, 64)]
    assert sizes == [1 << 30, 1 << 30, 1 << 30, 64] and context_of(SimpleNamespace()) == 1 << 30
    for name in ("max_seq_len", "max_target_positions", "n_positions"):
        assert context_of(SimpleNamespace(**{name: 48})) == 48


FULL, SLIDING = ["full_attention"] * 2, ["sliding_attention"] * 2
WINDOW = {"sliding_window": 8, "use_sliding_window": True}


@pytest.mark.parametrize(
    ("name", "changes", "kept"),
    [
        ("llama", {"num_hidden_layers": 6}, 1),
        # entries of a list in the config
        ("qwen3", {"num_hidden_layers": 4, "layer_types": FULL + SLIDING} | WINDOW, 3),
        ("llama4_text", {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 0, 1], "layer_types": FULL * 2}, 3),
        # layers that are of another kind by their number only
        ("qwen3_moe", {"num_hidden_layers": 5, "mlp_only_layers": [0, 1]}, 3),
        ("deepseek_v3", {"num_hidden_layers": 5, "first_k_dense_replace": 2}, 3),
        ("jamba", {"num_hidden_layers": 8, "attn_layer_period": 4, "attn_layer_offset": 3}, 4),
        ("llama", {"num_hidden_layers": 1}, 1),
    ],
)
def test_one_layer_of_every_kind_is_kept(name, changes, kept):
    model = any_model(name, **changes)
    decoder, ids = getattr(model, "model", model), torch.tensor([[3, 4, 5]])
    layers = decoder.layers
    with torch.no_grad():
        before = model(ids, use_cache=False).logits
        with first_layers(model) as fewer:
            assert len(decoder.layers) == kept and fewer == (kept < len(layers))
            found = model(ids, use_cache=False).logits
        assert torch.equal(found, before) == (kept == len(layers))
        assert decoder.layers is layers and torch.equal(model(ids, use_cache=False).logits, before)


def test_a_trial_that_cannot_run_with_fewer_layers_runs_with_all():
    model, seen = any_model("llama", num_hidden_layers=3), []

    def trial():
        seen.append(len(model.model.layers))
        return model.model.layers[2] and "ran"

    assert with_first_layers(model, trial) == "ran" and seen == [1, 3]


def test_expected_errors_are_reasons_and_others_are_raised():
    def raises(error):
        raise error

    for kind in (RuntimeError, ValueError, IndexError, NotImplementedError):
        assert attempt(lambda kind=kind: raises(kind("a reason"))).endswith(f"({kind.__name__}: a reason)")
    assert attempt(lambda: raises(Unsupported("it has sinks"))) == "it has sinks"
    assert "NoneType" in attempt(lambda: raises(TypeError("'NoneType' object is not subscriptable")))
    for error in (TypeError("x"), FutureWarning("x"), torch.OutOfMemoryError("x"), RuntimeError("CUDA out of memory")):
        with pytest.raises(type(error)):
            attempt(lambda error=error: raises(error))


def test_a_trial_is_a_quarter_longer_and_doubles():
    assert [scale(n, 1 << 20) for n in (1, 50, 51, 52, 102, 103, 1000)] == [64, 64, 64, 128, 128, 256, 2048]
    assert scale(100, 110) == 110
    assert len({scale(n, 1 << 20) for n in range(1, 10_000)}) == 9
    assert all(scale(n, 1 << 20) >= 1.2 * n for n in range(1, 10_000))


def test_a_hundredth_of_the_tokens_may_differ():
    expected = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    found = expected + 1e-6
    found[[5, 7, 9]] += 1
    assert differing(found, expected, 1e-4).tolist() == []
    found[11] = torch.nan
    assert differing(found, expected, 1e-4).tolist() == [5, 7, 9, 11]
    expected[7] = torch.inf
    assert differing(found, expected, 1e-4).tolist() == []
    assert differing(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]), 1e-4).tolist() == [1]
