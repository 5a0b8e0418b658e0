"""Log-probabilities equal transformers' plain forward pass, and a saved model loads unchanged."""

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, AutoTokenizer

from architectures import ARCHITECTURES, any_policy, architecture
from dph.config import ModelConfig
from dph.errors import ModelError, SettingsError
from dph.models import logprobs as module
from dph.models.batch import by_prompt, microbatches, padded_length
from dph.models.packing import Tokens
from dph.models.policy import Policy
from dph.models.scratch import bpe_tokenizer, new_policy, word_tokenizer
from dph.training.rows import Row, batches, collate
from dph.types import Message
from helpers import (
    TEXTS,
    TINY,
    base_run,
    difference,
    gradient,
    random_rows,
    relative_difference,
    tiny_policy,
    weights,
)

pytestmark = pytest.mark.filterwarnings(  # peft asks a model for this before it has adapters
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)
EXACT = 1e-5
"""fp32 kernels round by batch shape: a few errors of 1e-7 relative to logits of about 10, in each of 2 layers."""


def plain_logprobs(policy, row, temperature=1.0):
    """log π of a row's response, from the logits of transformers' forward pass over only this row."""
    with torch.no_grad():
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        logits = policy.model(ids).logits[0, len(row.prompt_ids) - 1 : -1].double() / temperature
    return logits.log_softmax(-1)[range(len(row.response_ids)), list(row.response_ids)], logits


# Log-probabilities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logprobs_and_entropy_equal_a_plain_forward_pass(temperature):
    policy = tiny_policy()
    rows = random_rows(policy, 12)
    logprobs, entropy = policy.logprobs(collate(rows), temperature, entropy="value")
    assert entropy is not None
    for index, row in enumerate(rows):
        count = len(row.response_ids)
        expected, logits = plain_logprobs(policy, row, temperature)
        assert difference(logprobs[index, :count], expected) <= EXACT
        expected_entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        assert difference(entropy[index, :count], expected_entropy) <= EXACT
        assert not logprobs[index, count:].any() and not entropy[index, count:].any()


# falcon_h1's own code warns about its slow path
@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_equals_its_plain_forward_pass(name):
    policy = architecture(name, vocab_size=18)
    rows = random_rows(policy, 8)
    logprobs, _ = policy.logprobs(collate(rows))
    for index, row in enumerate(rows):
        expected, _ = plain_logprobs(policy, row)
        assert difference(logprobs[index, : len(row.response_ids)], expected) <= EXACT


def test_padding_order_and_microbatches_change_nothing():
    policy = tiny_policy()
    rows = random_rows(policy, 16)
    alone = [values for row in rows for values in policy.response_logprobs([row], 1.0, 1)]
    for budget in (1, 40, 100, 10_000):
        for order in (range(16), reversed(range(16))):
            chosen = list(order)
            found = policy.response_logprobs([rows[i] for i in chosen], 1.0, budget)
            for index, values in zip(chosen, found, strict=True):
                assert difference(torch.tensor(values), torch.tensor(alone[index])) <= EXACT
    assert len(microbatches(rows, 40)) >= 4


def test_padding_stays_within_a_context_that_is_no_round_number():
    policy = any_policy("gpt2", n_positions=100)  # has an embedding for each of 100 positions
    rows = [Row([1] * 60, [5, 6, 7] * 12 + [8], [-1.0] * 37), Row([2, 3], [4, 5], [-1.0] * 2)]
    assert max(row.length for row in rows) == 97 and padded_length(97) == 104
    found = policy.response_logprobs(rows, 1.0, 1000)
    [(_, batch)] = batches(policy, by_prompt(rows), 1000)
    trained, _ = policy.logprobs(batch)
    for index, row in enumerate(rows):
        expected, _ = plain_logprobs(policy, row)
        for values in (torch.tensor(found[index]), trained[index, : len(row.response_ids)]):
            assert difference(values, expected) <= EXACT


def test_a_row_without_a_response_has_no_logprobs():
    policy = tiny_policy()
    rows = random_rows(policy, 2)
    rows[0] = replace(rows[0], response_ids=[], old_logprobs=[])
    logprobs, _ = policy.logprobs(collate(rows))
    assert not logprobs[0].any() and logprobs[1].any()


def _loss(policy, rows, entropy):
    logprobs, entropies = policy.logprobs(collate(rows), 0.8, entropy=entropy)
    policy.model.zero_grad()
    loss = (logprobs * torch.linspace(-1, 1, logprobs.numel()).view_as(logprobs)).sum()
    if entropies is not None:
        loss = loss + 0.3 * entropies.square().sum()
    loss.backward()
    return logprobs.detach(), entropies, gradient(policy)


@pytest.mark.parametrize("entropy", ["none", "value", "gradient"])
def test_chunks_of_logits_change_neither_values_nor_gradients(monkeypatch, entropy):
    policy = tiny_policy()
    rows = random_rows(policy, 9)
    whole = _loss(policy, rows, entropy)
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 7 * policy.model.config.vocab_size)  # 7 tokens a chunk
    chunked = _loss(policy, rows, entropy)
    assert difference(chunked[0], whole[0]) <= EXACT
    if entropy != "none":
        assert whole[1] is not None and chunked[1] is not None
        assert difference(chunked[1], whole[1]) <= EXACT
    # gradients are sums over tokens, taken in another order: 1e-6 relative to the largest
    assert relative_difference(chunked[2], whole[2]) <= 1e-6


def test_entropy_has_the_right_gradient_or_none_as_asked():
    policy = tiny_policy()
    rows = random_rows(policy, 5)
    _, value = policy.logprobs(collate(rows), entropy="value")
    assert value is not None and not value.requires_grad
    _, entropies = policy.logprobs(collate(rows), entropy="gradient")
    policy.model.zero_grad()
    assert entropies is not None
    entropies.sum().backward()
    found = gradient(policy)
    # the same through transformers' logits and torch's own entropy
    policy.model.zero_grad()
    for row in rows:
        logits = policy.model(torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits
        logits = logits[0, len(row.prompt_ids) - 1 : -1]
        torch.distributions.Categorical(logits=logits).entropy().sum().backward()
    expected = gradient(policy)
    assert relative_difference(found, expected) <= 1e-5  # sums of some 20 tokens' gradients in fp32


def test_bfloat16_affects_only_autocast():
    policy = tiny_policy()
    rows = random_rows(policy, 6)
    exact, _ = policy.logprobs(collate(rows))
    rounded, _ = Policy(policy.model, policy.tokenizer, precision="bf16").logprobs(collate(rows))
    exact, rounded = exact.detach(), rounded.detach()
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32} and rounded.dtype == torch.float32
    # bfloat16 has 8 bits: a relative error of 2^-8 on logits that reach about 10, over 2 layers
    assert 0 < float((rounded - exact).abs().max()) < 0.3


class Casts(TorchDispatchMode):
    """Counts the casts of matrices of a shape to bf16."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.number = shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default and args[0].shape == self.shape:
            self.number += (kwargs or {}).get("dtype") == torch.bfloat16
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("saves_memory", [False, True])
def test_weights_are_cast_once_for_several_passes_and_gradients_are_the_same(saves_memory):
    policy = tiny_policy()
    policy.precision = "bf16"
    if saves_memory:
        policy.save_memory()
    parts = [collate([row]) for row in random_rows(policy, 3)]
    name, weight = next((n, p) for n, p in policy.trainable() if "gate_proj" in n)
    layers = sum("gate_proj" in n for n, _ in policy.trainable())

    def passes(context):
        policy.model.zero_grad()
        with Casts(weight.shape) as casts, context:
            for part in parts:
                policy.logprobs(part)[0].sum().backward()
            with torch.no_grad():
                policy.logprobs(parts[0])
        return casts.number, {n: p.grad.clone() for n, p in policy.trainable() if p.grad is not None}

    number, expected = passes(nullcontext())
    fewer, found = passes(policy.casting_once())
    assert number == 4 * fewer and fewer == layers * 2, name  # up_proj has the same shape
    assert found.keys() == expected.keys() == dict(policy.trainable()).keys()
    assert all(torch.equal(found[n], value) for n, value in expected.items())
    with torch.no_grad():
        weight.mul_(2.0)
        outside, _ = policy.logprobs(parts[0])
        with policy.casting_once():
            assert torch.equal(policy.logprobs(parts[0])[0], outside)  # no cast outlives its context


def test_checkpointing_recomputes_and_changes_nothing(tmp_path):
    tiny_policy().save(tmp_path)
    found = []
    for checkpointing in (False, True):
        policy = Policy.load(ModelConfig(path=str(tmp_path), device="cpu", gradient_checkpointing=checkpointing))
        calls = []
        policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        rows = random_rows(policy, 5)
        policy.check_length(64)  # makes its check
        calls.clear()
        values = _loss(policy, rows, "none")
        assert len(calls) == (2 if checkpointing else 1)  # recomputed in the backward pass
        assert not any(part.training for part in policy.model.modules())  # so no dropout
        found.append(values)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][2], found[1][2])


# Text ---------------------------------------------------------------------------------------------------------------


def test_prompts_and_responses_as_tokens():
    policy = tiny_policy()
    eos = policy.tokenizer.eos_token_id
    ids = policy.encode_response(" yes no")
    assert ids[-1] == eos and policy.decode(ids) == " yes no" and policy.eos_ids == {eos}
    assert policy.encode_prompt("easy 1") == policy.tokenizer("easy 1")["input_ids"]
    chat: tuple[Message, ...] = ({"role": "system", "content": "easy"}, {"role": "user", "content": "hard"})
    assert policy.encode_prompt(chat) == policy.encode_prompt("easy\n\nhard")


@pytest.mark.parametrize(
    ("before", "after"), [("", "$EOS"), ("$BOS", "$EOS"), ("$BOS", ""), ("$BOS $BOS", "$EOS $EOS")]
)
def test_a_plain_prompt_keeps_what_the_tokenizer_puts_before_it_and_loses_what_it_appends(before: str, after: str):
    from tokenizers.processors import TemplateProcessing

    policy = tiny_policy()
    tokenizer = policy.tokenizer
    plain, eos = policy.encode_prompt("yes no yes"), tokenizer.eos_token_id
    bos = plain[0] if plain[0] != eos else plain[1]  # any token may be one
    names = {"$BOS": tokenizer.convert_ids_to_tokens(bos), "$EOS": tokenizer.eos_token}
    single = " ".join(f"{names[word]}:0" if word in names else word for word in f"{before} $A:0 {after}".split())
    special = [(names["$BOS"], bos), (names["$EOS"], eos)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    assert len(tokenizer("yes no yes")["input_ids"]) == len(plain) + len(before.split()) + len(after.split())
    assert policy.encode_prompt("yes no yes") == [bos] * len(before.split()) + plain
    assert policy.encode_prompt([{"role": "user", "content": "yes no yes"}])[-1] != eos


def test_a_chat_template_is_applied():
    policy = tiny_policy()
    turn = "{% for m in messages %}{{ m['role'][0] }} {{ m['content'] }}\n{% endfor %}"
    policy.tokenizer.chat_template = turn + "{% if add_generation_prompt %}no{% endif %}"
    expected = policy.tokenizer("u easy 1\nno", add_special_tokens=False)["input_ids"]
    assert policy.encode_prompt("easy 1") == expected
    chat: tuple[Message, ...] = ({"role": "system", "content": "yes"}, {"role": "user", "content": "easy 1"})
    assert policy.encode_prompt(chat) == policy.tokenizer("s yes\nu easy 1\nno", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("text", ["  SELECT a_b, 'x'\n\tFROM t;", "1234 + 5", "ü ∑ 漢\r\n", " "])
def test_new_tokenizers_lose_nothing(text):
    for raw in (word_tokenizer([text]), bpe_tokenizer(["SELECT a FROM b"], 300)):
        encoded = raw.encode(text)
        assert raw.decode(encoded.ids) == text
        assert not any(token.strip().isdigit() and len(token.strip()) > 1 for token in encoded.tokens)


def test_new_models_depend_only_on_their_seed():
    torch.manual_seed(1)
    first = new_policy(TINY, TEXTS, seed=3)
    before = torch.random.get_rng_state()
    again, other = new_policy(TINY, TEXTS, seed=3), new_policy(TINY, TEXTS, seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.weight_hash() == again.weight_hash() != other.weight_hash()
    with pytest.raises(SettingsError, match=r"new\.hidden 32 divided by new\.heads 5"):
        new_policy(replace(TINY, heads=5), TEXTS, seed=0)


def test_end_tokens_of_both_model_and_tokenizer_count():
    policy = tiny_policy()
    policy.model.generation_config.eos_token_id = [5, 7]
    assert Policy(policy.model, policy.tokenizer).eos_ids == {5, 7, policy.tokenizer.eos_token_id}


# Storage ------------------------------------------------------------------------------------------------------------


def test_a_saved_policy_loads_unchanged(tmp_path):
    policy = tiny_policy()
    policy.save(tmp_path)
    again = Policy.load(ModelConfig(path=str(tmp_path), device="cpu"))
    assert again.weight_hash() == policy.weight_hash() and again.tokenizer_hash() == policy.tokenizer_hash()
    rows = random_rows(policy, 4)
    assert torch.equal(again.logprobs(collate(rows))[0], policy.logprobs(collate(rows))[0])
    assert again.encode_prompt(TEXTS[0]) == policy.encode_prompt(TEXTS[0])
    assert (again.context_length, again.eos_ids) == (TINY.context, policy.eos_ids)


def test_hashes_distinguish_weights_tokenizers_and_templates():
    policy = tiny_policy()
    weight, tokenizer = policy.weight_hash(), policy.tokenizer_hash()
    with torch.no_grad():
        next(policy.model.parameters())[0, 0] += 1e-6
    assert policy.weight_hash() != weight and policy.tokenizer_hash() == tokenizer
    policy.tokenizer("easy 1 2 3")
    assert policy.tokenizer_hash() == tokenizer
    policy.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert policy.tokenizer_hash() != tokenizer
    assert new_policy(TINY, ["other"], 0).tokenizer_hash() != tokenizer


ADAPTERS: dict[str, Any] = {"lora_rank": 3, "lora_alpha": 12}


def adapted(path, **changes):
    """A policy with adapters that are not zero."""
    policy = Policy.load(ModelConfig(path=str(path), device="cpu", **{**ADAPTERS, **changes}))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in policy.trainable():
            parameter.normal_(0.0, 0.1, generator=generator)
    return policy


def test_only_adapters_are_trained_and_they_are_merged_on_saving_and_off_in_the_reference(tmp_path):
    base = tiny_policy()
    base.save(tmp_path / "base")
    policy = adapted(tmp_path / "base")
    assert policy.trainable() and all("lora_" in name for name, _ in policy.trainable())
    assert policy.weight_hash() == base.weight_hash() and policy.tokenizer_hash() == base.tokenizer_hash()
    rows = random_rows(policy, 6)
    live = policy.logprobs(collate(rows))[0]
    original = base.logprobs(collate(rows))[0]
    assert float((live - original).detach().abs().max()) > 0.1
    with policy.reference():
        assert difference(policy.logprobs(collate(rows))[0], original) <= EXACT
    assert torch.equal(policy.logprobs(collate(rows))[0], live)
    before = gradient(policy)
    policy.save(tmp_path / "merged")
    assert torch.equal(policy.logprobs(collate(rows))[0], live) and torch.equal(gradient(policy), before)
    merged = Policy.load(ModelConfig(path=str(tmp_path / "merged"), device="cpu"))
    assert difference(merged.logprobs(collate(rows))[0], live) <= EXACT
    assert weights(tmp_path / "merged").keys() == weights(tmp_path / "base").keys()


def test_named_adapter_targets(tmp_path):
    tiny_policy().save(tmp_path)
    policy = adapted(tmp_path, lora_targets="q_proj,down_proj")
    parts = {name.split(".lora_")[0].rsplit(".", 1)[1] for name, _ in policy.trainable()}
    assert parts == {"q_proj", "down_proj"}


def test_initial_adapters_depend_only_on_their_seed(tmp_path):
    tiny_policy().save(tmp_path)
    config = ModelConfig(path=str(tmp_path), device="cpu", **ADAPTERS)
    found = []
    for noise, seed in ((1, 0), (2, 0), (1, 1)):
        torch.manual_seed(noise)  # other random numbers drawn in the process must not matter
        policy = Policy.load(config, seed=seed)
        found.append(torch.cat([p.detach().flatten() for _, p in policy.trainable()]))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_a_policy_without_adapters_is_not_its_own_reference():
    with pytest.raises(RuntimeError, match="adapters"):
        tiny_policy().reference()


# User errors --------------------------------------------------------------------------------------------------------


def load(path, **changes):
    return Policy.load(ModelConfig(path=str(path), device="cpu", **changes))


def test_an_unknown_name_or_no_name_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no model was named; add --model\.path"):
        load("")
    with pytest.raises(ModelError, match="no such directory, and downloading it"):
        load("nobody/has-this-model")
    with pytest.raises(ModelError, match="cannot load a model from"):
        load(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "config", "tokenizer", "lost", "shape"])
def test_a_damaged_model_is_refused_by_name(tmp_path, damage):
    tiny_policy().save(tmp_path)
    tensors = tmp_path / "model.safetensors"
    if damage == "cut":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "empty":
        tensors.write_bytes(b"")
    elif damage == "lost":
        tensors.unlink()
    elif damage == "shape":
        settings = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**settings, "vocab_size": settings["vocab_size"] + 3}))
    else:
        name = {"config": "config.json", "tokenizer": "tokenizer.json"}[damage]
        (tmp_path / name).write_text('{"model": ')
    with pytest.raises(ModelError, match="cannot load a model from") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_without_an_end_token_or_an_unusable_device_is_refused(tmp_path):
    policy = tiny_policy()
    policy.tokenizer.eos_token = None
    policy.save(tmp_path)
    with pytest.raises(ModelError, match="no EOS token"):
        load(tmp_path)
    with pytest.raises(SettingsError, match="device 'abacus' cannot be used"):
        Policy.load(ModelConfig(path=str(tmp_path), device="abacus"))


@pytest.mark.parametrize("loaded", [{}, {"is_local": False, "local_files_only": False}, {"local_files_only": True}])
def test_a_policy_is_saved_alike_wherever_it_was_loaded_from(tmp_path, loaded):
    """transformers notes in a tokenizer whether it came from a directory and whether the hub was forbidden."""

    def files(folder):
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    tiny_policy().save(tmp_path / "new")
    policy = Policy.load(ModelConfig(str(tmp_path / "new"), device="cpu"))
    policy.tokenizer.init_kwargs |= loaded
    policy.save(tmp_path / "again")
    assert files(tmp_path / "new") == files(tmp_path / "again")


def test_saved_models_load_with_plain_transformers():
    path = base_run() / "model"
    model: Any = AutoModelForCausalLM.from_pretrained(path)  # transformers does not declare `generate`
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = tokenizer("easy 3", return_tensors="pt")["input_ids"]
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True).strip() == "yes"


def test_a_template_may_not_make_a_prompt_huge():
    policy = tiny_policy()
    policy.tokenizer.chat_template = "{{ 'yes ' * 300000 }}"
    with pytest.raises(ModelError, match="makes one prompt 1200000 characters"):
        policy.encode_prompt("easy 1")
    policy.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert len(policy.encode_prompt("yes " * 300_000)) == 300_001, "a long prompt of the data is not the template's"


WRONG_INPUTS = {
    "present": (lambda batch: batch.present.long(), "a bool tensor [B, T] = [2, 3], but is int64 [2, 3]"),
    "response_ids": (lambda batch: batch.response_ids[:1], "an int tensor [B, T] = [2, 3], but is int64 [1, 3]"),
    "input_ids": (lambda batch: batch.input_ids[:1], r"an int tensor [B, L] = [2, 6], but is int64 [1, 6]"),
    "sources": (lambda batch: batch.sources.float(), "an int tensor [U] = [5], but is float32 [5]"),
    "states": (lambda batch: batch.states[1:], "an int tensor [K] = [5], but is int64 [4]"),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_inputs_of_another_shape_or_type_are_refused(name):
    """Two rows of 2 + 3 and 4 + 2 tokens are padded to 6 tokens."""
    policy = tiny_policy()
    batch = policy.collate([Tokens([1, 2], [3, 4, 5]), Tokens([1, 2, 3, 4], [5, 6])])
    change, wanted = WRONG_INPUTS[name]
    with pytest.raises(ValueError) as caught:
        policy.logprobs(replace(batch, **{name: change(batch)}))
    assert str(caught.value) == f"{name} must be {wanted}"
