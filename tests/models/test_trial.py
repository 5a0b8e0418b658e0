"""Trials: on the first layers of every kind, at the lengths that are computed, and with the errors that they expect."""

import pytest
import torch

from architectures import any_model
from dph.models.trial import Unsupported, attempt, differing, first_layers, scale, with_first_layers

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
