"""The built-in sampler: exact log-probabilities, independence of batch layout, and the right distribution."""

import inspect
import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from architectures import ARCHITECTURES, any_policy, architecture, skip_unless_known
from dph.config import ModelConfig
from dph.config.sampling import SamplingParams
from dph.errors import ModelError
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.sampling import decoders, shared_decode
from dph.sampling import generate as module
from dph.sampling.decoders import PlainDecoder, StateDecoder, WholeDecoder, why_not
from dph.sampling.generate import HFSampler
from dph.sampling.seeding import derive_key
from dph.sampling.shared_decode import SharedDecoder, why_not_shared
from dph.sampling.static_decode import StaticDecoder
from dph.training.rows import Row
from helpers import TEXTS, TINY, policy_with_outliers, random_rows, randomise, shrinking, tiny_policy

PROMPTS = [[4], [5, 6, 7], [8, 9, 10, 11, 4, 5], [12, 13], [7, 7, 7, 7], [14]]
KEYS = [derive_key(0, "test", i) for i in range(len(PROMPTS))]
EXACT = 1e-5
"""As in test_policy: fp32 kernels round differently for each batch shape."""


def sample(policy, params, prompts=PROMPTS, keys=KEYS, rows=256):
    return HFSampler(policy, rows).sample(prompts, params, keys)


@pytest.fixture(params=[SharedDecoder, StaticDecoder, PlainDecoder, StateDecoder, WholeDecoder])
def decoder(request, monkeypatch):
    """All decoders: one copy of the prompt per group, without and with fixed buffers, one per response, the model's own
    cache, and no cache."""
    if request.param is StaticDecoder:
        monkeypatch.setattr(HFSampler, "replays", lambda self, longest: True)
    elif request.param is WholeDecoder:
        monkeypatch.setattr(HFSampler, "way", lambda self, longest: (WholeDecoder, True))
    elif request.param is not SharedDecoder:
        monkeypatch.setattr(HFSampler, "works", lambda self, start, longest: start is request.param)
    return request.param


def tokens(groups):
    return [[tuple(completion.token_ids) for completion in group] for group in groups]


def assert_logprobs_are_the_trainers(policy, groups, prompts, temperature, exact=EXACT):
    for prompt, group in zip(prompts, groups, strict=True):
        rows = [Row(prompt, completion.token_ids, completion.logprobs) for completion in group]
        for row, values in zip(rows, policy.response_logprobs(rows, temperature, 10_000), strict=True):
            torch.testing.assert_close(torch.tensor(row.old_logprobs), torch.tensor(values), rtol=0, atol=exact)


# Log-probabilities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.8), (1.5, 0.5)])
def test_logprobs_are_the_trainers_untruncated_at_the_temperature(temperature, top_p, decoder):
    policy = tiny_policy()
    groups = sample(policy, SamplingParams(5, temperature, top_p, 12))
    assert_logprobs_are_the_trainers(policy, groups, PROMPTS, temperature)


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_architecture_samples_what_it_trains(name):
    """Also beyond a sliding window of 4 tokens and with left padding; the vocabulary has 18 tokens."""
    policy = architecture(name, vocab_size=18)
    groups = sample(policy, SamplingParams(3, 1.0, 1.0, 10))
    assert_logprobs_are_the_trainers(policy, groups, PROMPTS, 1.0)
    assert max(len(row) for group in tokens(groups) for row in group) == 10


OWN = {
    "mamba": StateDecoder,
    "mamba2": StateDecoder,
    "lfm2": StateDecoder,
    "qwen3_next": StateDecoder,
    "qwen3_5_text": StateDecoder,
    "falcon_h1": StateDecoder,
    "jamba": StateDecoder,
    "bart": StateDecoder,
    "rwkv": WholeDecoder,
    "bamba": WholeDecoder,
    "minimax": WholeDecoder,
    "roberta": WholeDecoder,
}
"""How models are decoded that keep a state, count positions in their own way or keep their cache in their own way."""


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", OWN)
def test_models_with_a_state_sample_what_they_train(name, capsys):
    policy, params = any_policy(name), SamplingParams(3, max_tokens=10)
    sampler = HFSampler(policy)
    if OWN[name] is WholeDecoder:  # slow, so only if the user chooses it
        with pytest.raises(ModelError, match="decoder to whole"):
            sampler.sample(PROMPTS, params, KEYS)
        sampler = HFSampler(policy, decoder="whole")
    groups = sampler.sample(PROMPTS, params, KEYS)
    # a state that is updated token by token is the same sum as over the whole sequence, in another order
    assert_logprobs_are_the_trainers(policy, groups, PROMPTS, 1.0, exact=1e-4)
    assert sampler.way(10)[0] is OWN[name]
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("because of this model: ") == 2
    assert ("decodes with the cache that the model makes" in told) == (OWN[name] is StateDecoder)


@pytest.mark.parametrize("error", [FutureWarning, TypeError, torch.OutOfMemoryError, MemoryError])
def test_what_says_nothing_about_the_model_is_raised_by_a_trial(error):
    """As when transformers renames an argument: the sampler would be slow for the whole run without a word."""
    policy = tiny_policy()

    def refuse(_model, _args, given):
        if given.get(policy.arguments.cache) is not None:
            raise error("of the trial")

    policy.model.register_forward_pre_hook(refuse, with_kwargs=True)
    with pytest.raises(error):
        sample(policy, SamplingParams(2, max_tokens=4))


@pytest.mark.parametrize("name", ["cache", "past_key_values", "cache_params"])
def test_a_cache_is_given_under_the_name_that_the_signature_has(name):
    """transformers before 5.24 called it past_key_values, and recurrent models cache_params."""
    policy = tiny_policy()
    inner, own, used = policy.model.forward, str(policy.arguments.cache), []

    def forward(*, input_ids, **given):
        assert not set(given) & {"cache", "past_key_values", "cache_params"} - {name}
        if name in given:
            used.append(name)
            given[own] = given.pop(name)
        return inner(input_ids=input_ids, **given)

    names = ["input_ids", name, "attention_mask", "position_ids", "logits_to_keep", "use_cache"]
    parameters = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in names]
    forward.__signature__ = inspect.Signature(parameters)
    policy.model.forward = forward
    renamed = Policy(policy.model, policy.tokenizer)
    assert why_not_shared(renamed) == "" and why_not(PlainDecoder, renamed, ragged=True) == "" and used


LONG = {
    "llama4_text": {"floor_scale": 24, "no_rope_layers": [0, 0], "layer_types": ["full_attention"] * 2},
    "smollm3": {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 20},
    "minimax_m3_vl_text": {
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "index_block_size": 8,
        "index_topk_blocks": 2,
    },
}
"""Models with something that begins beyond the first few tokens: a scale, a window, a selection of keys."""


@pytest.mark.parametrize("name", LONG)
def test_long_prompts_of_different_length_are_sampled_as_they_are_trained(name):
    skip_unless_known(name)
    policy = any_policy(name, **LONG[name])
    prompts = [[3 + index * 7 % 29 for index in range(length)] for length in (40, 6, 25)]
    groups = sample(policy, SamplingParams(2, max_tokens=20), prompts, KEYS[:3])
    assert_logprobs_are_the_trainers(policy, groups, prompts, 1.0, exact=1e-4)


def test_a_model_whose_prefill_is_wrong_only_with_shared_prompts_does_not_share_them():
    """Whisper returns the logits after every token of a prompt, whatever is asked for."""
    policy = any_policy("whisper")
    assert why_not_shared(policy) == "its logits differ from its plain forward pass's"
    groups = sample(policy, SamplingParams(3, max_tokens=10))
    assert_logprobs_are_the_trainers(policy, groups, PROMPTS, 1.0)


def test_a_decoder_is_tested_at_the_first_token_after_dropping_rows_and_at_every_step(monkeypatch):
    """A fault in any single place is found."""
    policy = tiny_policy()

    class Faulty(PlainDecoder):
        fault = ""

        def __init__(self, *args):
            super().__init__(*args)
            self._spoil("start")

        def step(self, tokens):
            super().step(tokens)
            self._spoil("step")

        def select(self, keep):
            super().select(keep)
            self._spoil("select")
            if self.fault == "rows":
                self._positions = self._positions.flip(0)

        def _spoil(self, place):
            if self.fault == place:
                self.logits = self.logits + 0.05 * self.logits.abs().amax() * torch.arange(18)

    for fault in ("", "start", "step", "rows"):
        monkeypatch.setattr(Faulty, "fault", fault)
        reason = why_not(Faulty, policy, ragged=True)
        assert reason == ("its logits differ from its plain forward pass's" if fault else "")


# Layout -------------------------------------------------------------------------------------------------------------


def test_a_response_does_not_depend_on_its_batch(monkeypatch, decoder):
    policy, params = tiny_policy(), SamplingParams(6, 1.0, 1.0, 14)
    whole = sample(policy, params)
    for rows in (1, 6, 13, 1000):
        assert tokens(sample(policy, params, rows=rows)) == tokens(whole)
    order = [3, 0, 5, 1, 4, 2]
    shuffled = sample(policy, params, [PROMPTS[i] for i in order], [KEYS[i] for i in order])
    assert tokens(shuffled) == [tokens(whole)[i] for i in order]
    for i in range(len(PROMPTS)):
        assert tokens(sample(policy, params, PROMPTS[i : i + 1], KEYS[i : i + 1])) == tokens(whole)[i : i + 1]
    fewer = tokens(sample(policy, replace(params, n=2)))
    assert fewer == [group[:2] for group in tokens(whole)]
    shorter = tokens(sample(policy, replace(params, max_tokens=5)))
    assert shorter == [[row[:5] for row in group] for group in tokens(whole)]
    for share in (0.0, 1.1):  # never, and after every finished row
        monkeypatch.setattr(module, "COMPACT_BELOW", share)
        assert tokens(sample(policy, params)) == tokens(whole)
    monkeypatch.setattr(decoders, "GROW_TOKENS", 1)
    assert tokens(sample(policy, params)) == tokens(whole)
    monkeypatch.setattr(shared_decode, "PREFILL_TOKENS", 8)
    assert tokens(sample(policy, params)) == tokens(whole)


def test_finished_rows_leave_the_batch(monkeypatch, decoder):
    policy = tiny_policy()
    prompts = PROMPTS if decoder is not StateDecoder else [prompt[:1] for prompt in PROMPTS]  # decoded together
    sizes, select, sampler = [], decoder.select, HFSampler(policy)
    sampler.sample(prompts, SamplingParams(1, max_tokens=30), KEYS)  # the test of the decoder selects rows, too
    monkeypatch.setattr(decoder, "select", lambda self, keep: sizes.append(len(keep)) or select(self, keep))
    groups = sampler.sample(prompts, SamplingParams(8, 1.0, 1.0, 30), KEYS)
    lengths = Counter(len(row) for group in tokens(groups) for row in group)
    assert sizes == sorted(sizes, reverse=True) and len(sizes) >= 3 and len(lengths) >= 5
    assert_logprobs_are_the_trainers(policy, groups, prompts, 1.0)


def test_a_group_is_yielded_as_soon_as_its_last_response_has_ended():
    policy, params = tiny_policy(), SamplingParams(4, 1.0, 1.0, 30)
    whole = sample(policy, params)
    streamed = list(HFSampler(policy).stream(PROMPTS, params, KEYS))
    assert sorted(index for index, _ in streamed) == list(range(len(PROMPTS)))
    assert tokens(group for _, group in streamed) == [tokens(whole)[index] for index, _ in streamed]
    lengths = [max(len(completion.token_ids) for completion in group) for _, group in streamed]
    assert lengths == sorted(lengths) and len(set(lengths)) >= 3


# Shared prompts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_shared_decoding_gives_the_logits_of_plain_decoding(seed):
    """Groups shrink unevenly; some vanish."""
    policy = tiny_policy()
    with torch.inference_mode():
        pair = SharedDecoder(policy, PROMPTS, 4), PlainDecoder(policy, PROMPTS, 4)
        for one, other in shrinking(pair, seed, 12):
            torch.testing.assert_close(one, other, rtol=0, atol=EXACT)
        assert 0 < len(pair[0].logits) < 12


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_models_that_cannot_share_prompts_are_recognised(name):
    expected = {"falcon_h1": "without a plain cache", "gemma2": "only 4 tokens", "mistral": "only 4 tokens"}
    reason = why_not_shared(architecture(name, vocab_size=18))
    assert expected.get(name, "") in reason and bool(reason) == bool(expected.get(name))


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_prompts_are_shared_only_within_the_window_and_without_capped_scores(name, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, name, {**ARCHITECTURES[name], "sliding_window": 10})
    policy = architecture(name, vocab_size=18)
    assert why_not_shared(policy) == {"mistral": "", "gemma2": "its attention uses softcap"}[name]
    for max_tokens, shared in ((7, name == "mistral"), (8, False)):  # 10 tokens fill the window, 11 exceed it
        groups = sample(policy, SamplingParams(6, max_tokens=max_tokens), [[4, 5, 6]], [1])
        assert max(len(row) for row in tokens(groups)[0]) == max_tokens
        assert_logprobs_are_the_trainers(policy, groups, [[4, 5, 6]], 1.0)
        assert (HFSampler(policy).way(3 + max_tokens)[0] is SharedDecoder) is shared


def test_a_model_whose_shared_logits_are_wrong_decodes_plainly(monkeypatch, capsys):
    policy, params = tiny_policy(), SamplingParams(3, max_tokens=8)
    expected = tokens(sample(policy, params))
    attend = SharedDecoder.attend
    monkeypatch.setattr(SharedDecoder, "attend", lambda *args: 1.1 * attend(*args))
    assert "differ from its plain forward pass" in why_not_shared(policy)
    assert tokens(sample(policy, params)) == expected
    assert "a copy of the prompt for each response" in capsys.readouterr().err


def test_sampling_in_bf16_is_close_to_training():
    """bfloat16 has 8 bits: a few rounding errors of 2⁻⁹ of logits of about 10, the mean well below one of them."""
    policy = tiny_policy()
    policy.precision = "bf16"
    groups = sample(policy, SamplingParams(4, max_tokens=12))
    rows = [
        Row(prompt, completion.token_ids, completion.logprobs)
        for prompt, group in zip(PROMPTS, groups, strict=True)
        for completion in group
    ]
    trained = policy.response_logprobs(rows, 1.0, 10_000)
    sampled, trained = (list(itertools.chain(*values)) for values in ([row.old_logprobs for row in rows], trained))
    differences = [abs(a - b) for a, b in zip(sampled, trained, strict=True)]
    assert sum(differences) / len(differences) < 0.05


@pytest.mark.parametrize("start", [SharedDecoder, PlainDecoder])
def test_a_model_with_a_large_error_in_bf16_is_decoded_as_in_fp32(start):
    """Real models have outliers, whose error in bf16 is larger than any constant tolerance."""
    policy = policy_with_outliers()
    policy.precision = "bf16"
    ids = torch.tensor([[3, 4, 5, 6, 7, 4, 3]])
    with torch.no_grad():
        exact = policy.model(input_ids=ids).logits
        with policy.autocast():
            rounded = policy.model(input_ids=ids).logits.float()
    assert (rounded - exact).abs().max() > 0.1 * (1 + exact.abs().max()), "more than rounding in fp32 could explain"
    assert why_not(start, policy, ragged=True) == ""


def test_a_decoder_that_rounds_more_than_the_model_is_not_used(monkeypatch):
    policy = tiny_policy()
    policy.precision = "bf16"
    assert why_not_shared(policy) == ""
    attend = SharedDecoder.attend

    def coarse(self, layer, query, *given):
        found = attend(self, layer, query, *given)
        return found if policy.precision == "fp32" else found.float().round()

    monkeypatch.setattr(SharedDecoder, "attend", coarse)
    assert why_not_shared(policy) == "in bf16 its logits have a larger error than its plain forward pass's"
    assert policy.precision == "bf16"


def test_a_decoder_is_not_judged_by_the_large_error_of_one_row():
    """Trained models have rows whose error in bf16 is ten times another's, by chance, in any way of computing them."""

    class Unlucky(SharedDecoder):
        def step(self, tokens):
            super().step(tokens)
            if policy.precision == "bf16":
                self.logits[0] += 30 * 2**-9 * self.logits[0].square().mean().sqrt()

    policy = tiny_policy()
    policy.precision = "bf16"
    assert why_not(Unlucky, policy, ragged=True) == ""


def test_weights_are_cast_once_for_all_tokens():
    policy = tiny_policy()
    policy.precision = "bf16"
    sampler, own, casts = HFSampler(policy), {p.data_ptr(): n for n, p in policy.model.named_parameters()}, Counter()
    params = SamplingParams(4, max_tokens=12)
    list(sampler.stream(PROMPTS[:1], params, KEYS[:1]))  # the model is tried before its first use

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in own:
                casts[own[args[0].data_ptr()]] += 1
            return function(*args, **(kwargs or {}))

    found = []
    with Count():
        for _, group in sampler.stream(PROMPTS[:1], params, KEYS[:1]):
            assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled(), "whoever takes them is outside"
            found += group
    assert max(len(completion.token_ids) for completion in found) > 3
    assert len(casts) > 10 and set(casts.values()) == {1}


def test_equal_prompts_get_equal_responses_only_with_equal_keys():
    policy, params = tiny_policy(), SamplingParams(8, 1.0, 1.0, 10)
    a, b, again = tokens(sample(policy, params, [[5, 6]] * 3, [KEYS[0], KEYS[1], KEYS[0]]))
    assert a == again != b and len(set(a)) > 1


def test_sampling_leaves_the_model_as_it_was(tmp_path):
    policy = tiny_policy()
    policy.save(tmp_path)
    plain = tokens(sample(policy, SamplingParams(4, max_tokens=8)))
    recomputing = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", gradient_checkpointing=True))
    assert tokens(sample(recomputing, SamplingParams(4, max_tokens=8))) == plain
    for training in (True, False):
        policy.model.train(training)
        sample(policy, SamplingParams(1, max_tokens=2))
        assert policy.model.training is training
    assert all(p.requires_grad and p.grad is None for p in policy.model.parameters())


# Ends ---------------------------------------------------------------------------------------------------------------


def test_responses_end_at_the_first_end_token_or_at_the_limit():
    policy = tiny_policy()
    policy.eos_ids = frozenset({1, 9})
    reasons = Counter()
    for prompt, group in zip(PROMPTS, sample(policy, SamplingParams(16, 1.0, 1.0, 9)), strict=True):
        for completion in group:
            ended = [token in policy.eos_ids for token in completion.token_ids]
            assert not any(ended[:-1]) and len(completion.token_ids) == len(completion.logprobs) <= 9, prompt
            assert completion.finish_reason == ("stop" if ended[-1] else "length")
            assert ended[-1] or len(completion.token_ids) == 9
            reasons[completion.finish_reason, len(completion.token_ids) == 9] += 1
    assert reasons["length", True] and reasons["stop", False] and reasons["stop", True]


def test_one_token_and_no_prompt():
    policy = tiny_policy()
    assert {len(row) for group in tokens(sample(policy, SamplingParams(4, max_tokens=1))) for row in group} == {1}
    assert sample(policy, SamplingParams(4), [], []) == []
    with pytest.raises(ValueError, match="without tokens"):
        sample(policy, SamplingParams(1), [[4], []], KEYS[:2])


# Distribution -------------------------------------------------------------------------------------------------------


def test_greedy_equals_transformers_own():
    policy = tiny_policy()
    for prompt, (completion,) in zip(PROMPTS, sample(policy, SamplingParams(1, 0.0, 1.0, 12)), strict=True):
        ids = torch.tensor([prompt])
        eos = sorted(policy.eos_ids)
        options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": eos, "pad_token_id": 0}
        out = policy.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert out[0, len(prompt) :].tolist() == list(completion.token_ids)
    assert_logprobs_are_the_trainers(policy, sample(policy, SamplingParams(1, 0.0, 1.0, 12)), PROMPTS, 1.0)


def small_policy():
    """A model over six tokens, three of them special."""
    policy = new_policy(TINY, ["a b c"], seed=0)
    randomise(policy.model, seed=0, spread=0.12)
    assert policy.model.config.vocab_size == 6
    return policy


def exact_distribution(policy, prompt, steps, temperature, top_p, min_p=0.0):
    """Probability of every response of at most `steps` tokens, from transformers' logits one prefix at a time: tokens
    below min_p of the most likely one are left out, then those outside the nucleus of the rest."""
    chances, fringe = {}, {(): 1.0}
    for _ in range(steps):
        following = {}
        for prefix, chance in fringe.items():
            with torch.no_grad():
                logits = policy.model(torch.tensor([[*prompt, *prefix]])).logits[0, -1].double()
            probs = (logits / temperature).softmax(-1).tolist()
            likely = {token: p for token, p in enumerate(probs) if p >= min_p * max(probs)}
            kept, mass = {}, 0.0
            for token in sorted(likely, key=lambda token: -probs[token]):
                if mass < top_p * sum(likely.values()):
                    kept[token] = probs[token]
                mass += probs[token]
            for token, p in kept.items():
                whole = chance * p / sum(kept.values())
                (chances if token in policy.eos_ids else following)[(*prefix, token)] = whole
        fringe = following
    return {**chances, **fringe}


@pytest.mark.parametrize(
    ("temperature", "top_p", "min_p"),
    [
        *((1.0, 1.0, 0.0), (0.8, 1.0, 0.0), (1.0, 0.75, 0.0), (1.6, 0.9, 0.0)),
        *((1.0, 1.0, 0.4), (0.8, 1.0, 0.2), (1.6, 1.0, 0.5), (1.3, 0.8, 0.3)),
    ],
)
def test_frequencies_are_the_exact_probabilities(temperature, top_p, min_p):
    policy, prompt, count = small_policy(), [3, 4], 6000
    expected = exact_distribution(policy, prompt, 3, temperature, top_p, min_p)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-12)
    if min_p:
        assert len(expected) < len(exact_distribution(policy, prompt, 3, temperature, top_p)), "min-p leaves some out"
    params = SamplingParams(count, temperature, top_p, 3, min_p)
    (group,) = sample(policy, params, [prompt], [7], rows=count)
    found = Counter(tuple(completion.token_ids) for completion in group)
    assert found.keys() <= expected.keys()  # nothing that was left out
    # Pearson's statistic over classes with an expected count of at least 5 has mean d and variance 2d: d + 5·√(2d) is
    # 5 standard deviations above the mean
    large = {key: p for key, p in expected.items() if count * p >= 5}
    rest = count - sum(found[key] for key in large), count * (1 - sum(large.values()))
    pairs = [(found[key], count * p) for key, p in large.items()] + ([rest] if rest[1] > 1e-6 else [])
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in pairs)
    degrees = len(pairs) - 1
    assert degrees >= 8 and statistic < degrees + 5 * math.sqrt(2 * degrees)


def test_the_policy_of_the_test_helpers_is_far_from_uniform():
    policy = tiny_policy()
    rows = random_rows(policy, 10)
    values = [value for row in policy.response_logprobs(rows, 1.0, 1000) for value in row]
    assert len(TEXTS) == 2 and max(values) - min(values) > 3
