"""Sampling parameters: one declaration, its translations, and where stop strings end a response."""

from dataclasses import fields, replace

import pytest
from transformers import GenerationConfig

from dph.config import RolloutConfig, TrainConfig, from_dict
from dph.config.sampling import (
    DEFAULTS,
    SamplingParams,
    marks,
    named_params,
    sampling_facts,
    transformers_names,
    verl_settings,
    vllm_names,
    vllm_settings,
)
from dph.errors import SettingsError
from dph.models.scratch import new_policy
from dph.sampling import generate as module
from dph.sampling.generate import HFSampler
from dph.sampling.stopping import Stopping
from helpers import TINY, randomise

EVERY = SamplingParams(4, 0.7, 0.9, 20, 0.05, ("\n\n", "</s>"), 3, 64)

SHARED = ("temperature", "top_p", "max_tokens", "min_p", "stop")
"""Other engines have these; several turns are ours."""


def test_the_settings_of_rollouts_are_the_parameters():
    names = [item.name for item in fields(SamplingParams)]
    values = {name: getattr(EVERY, name) for name in names}
    assert RolloutConfig(**values).params() == EVERY
    assert RolloutConfig(**values).params(9) == replace(EVERY, n=9)
    assert set(marks()) == set(names) - {"n", "max_tokens"}


def test_an_empty_stop_string_is_refused():
    with pytest.raises(SettingsError, match=r"^stop has an empty text"):
        SamplingParams(stop=("x", ""))
    with pytest.raises(SettingsError, match=r"^rollout\.stop has an empty text"):
        from_dict(TrainConfig, {"rollout": {"stop": ["x", ""]}})


def test_what_truncates_and_what_greedy_decoding_keeps():
    assert EVERY.truncations == {"top_p": 0.9, "min_p": 0.05}
    assert SamplingParams(stop=("x",)).truncations == {}
    assert replace(EVERY, temperature=0.0).truncations == {}
    assert EVERY.greedy() == SamplingParams(1, 0.0, 1.0, 20, 0.0, EVERY.stop, 3, 64)


def test_the_names_in_other_engines():
    facts = {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05, "stop": ["\n\n", "</s>"]}
    assert sampling_facts(EVERY) == facts | {"turns": 3, "tool_tokens": 64}
    assert sampling_facts(replace(EVERY, turns=1)) == facts | {"turns": 1, "tool_tokens": DEFAULTS["tool_tokens"]}
    usual = {"n": 4, "max_tokens": 20, "temperature": 0.7}
    texts = {"stop": ["\n\n", "</s>"], "detokenize": True, "include_stop_str_in_output": True}
    assert vllm_settings(EVERY) == {**usual, "top_p": 0.9, "min_p": 0.05, **texts}
    assert vllm_settings(replace(EVERY, temperature=0.0)) == {**usual, "temperature": 0.0, **texts}
    assert vllm_settings(SamplingParams()) == {"n": 1, "max_tokens": 1024, "temperature": 1.0}
    assert verl_settings(EVERY) == ({"temperature": 0.7, "top_p": 0.9}, {"min_p": 0.05, "stop": ["\n\n", "</s>"]})
    assert verl_settings(SamplingParams()) == ({"temperature": 1.0, "top_p": 1.0}, {})


def test_the_names_of_transformers_lead_there_and_back():
    names = transformers_names()
    config = GenerationConfig(**{theirs: getattr(EVERY, ours) for ours, theirs in names.items()})
    assert named_params(config.to_dict(), names) == SamplingParams(1, *[getattr(EVERY, name) for name in SHARED])
    assert named_params({"stop": "x", "min_p": None}, vllm_names()) == SamplingParams(stop=("x",))
    assert named_params({}, names) == SamplingParams(**DEFAULTS)


# Stop strings --------------------------------------------------------------------------------------------------------

TEXTS = ("ab abc abd", "é ü ab", "acb cab  bac", "日本 ab")


def bytes_policy():
    """A random model over pieces of byte-level BPE: a letter such as é may be two tokens, and "abc" one or several."""
    policy = new_policy(replace(TINY, tokenizer="bpe", vocab_size=270), TEXTS, 0)
    randomise(policy.model, 0)
    return policy


def brute(policy, ids, stop):
    """The oracle: the least number of tokens whose whole text contains a stop string; None without one."""
    counts = range(1, len(ids) + 1)
    return next((count for count in counts if any(one in policy.decode(ids[:count]) for one in stop)), None)


@pytest.mark.parametrize("look", [1, 5, 8])
@pytest.mark.parametrize("stop", [("b",), ("a", "c"), ("ba", "ca", "é", " b"), ("never said",)])
def test_a_response_ends_with_the_first_token_whose_text_contains_a_stop_string(stop, look, monkeypatch):
    policy, params = bytes_policy(), SamplingParams(24, max_tokens=33)
    ids = [policy.encode_response("ab")[:-1], policy.encode_response("cab é")[:-1]]
    whole = HFSampler(policy).sample(ids, params, [1, 2])
    monkeypatch.setattr(module, "LOOK_EVERY", {"cpu": look})
    cut = HFSampler(policy).sample(ids, replace(params, stop=stop), [1, 2])
    ended = 0
    for plain, stopped in zip([x for group in whole for x in group], [x for group in cut for x in group], strict=True):
        end = brute(policy, plain.token_ids, stop)
        ended += end is not None
        assert list(stopped.token_ids) == list(plain.token_ids)[:end]
        # the policy's own; fp32 rounding depends on how many rows are left in the batch
        assert stopped.logprobs == pytest.approx(list(plain.logprobs)[:end], abs=1e-5)
        assert stopped.finish_reason == (plain.finish_reason if end is None else "stop")
    assert (ended == 0) == (stop == ("never said",))


@pytest.mark.parametrize("stop", ["a longer text", "xy", "é"])
def test_a_string_over_many_tokens_is_found_at_its_last_one(stop):
    """Tokens of one byte each; the string begins and ends anywhere, after any number of tokens without a text."""

    def decode(ids):
        return bytes(i for i in ids if i).decode(errors="replace")

    watch = Stopping(decode, [stop], 1)
    for start in (0, 1, 7, 8, 9, 40, 300):
        for silent in (0, 1, 50):
            ids = [*b"." * start, *[0] * silent, *stop.encode()]
            before = len(ids) - 1
            assert watch.end(ids, before) == len(ids), (start, silent)
            assert watch.end([*ids, *b"..."], before) == len(ids)
            assert watch.end(ids[:-1], before - 1) == 0
