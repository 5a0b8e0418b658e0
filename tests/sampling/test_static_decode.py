"""Decoding in steps that a CUDA graph replays. The oracle is decoding with shared prompts as it was before.

`Tape` does on a CPU what a CUDA graph does: it records the operations of one step, with their memory and every number
from Python as it was then, and repeats them in that memory.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from architectures import ARCHITECTURES, architecture
from dph.config.sampling import SamplingParams
from dph.sampling import generate, static_decode
from dph.sampling.generate import HFSampler
from dph.sampling.shared_decode import SharedDecoder, why_not_shared
from dph.sampling.static_decode import StaticDecoder
from helpers import shrinking, tiny_policy

PROMPTS, KEYS = [[3, 4, 5], [6], [7, 8, 9, 3, 4]], [11, 12, 13]
SHARING = [name for name in sorted(ARCHITECTURES) if name not in ("falcon_h1", "gemma2", "mistral")]
EXACT = 1e-5
"""Nats; a sum over masked places adds zeros in another order."""
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "is_nonzero", "equal")


class Tape(TorchDispatchMode):
    """A recorded step; see above."""

    def __init__(self) -> None:
        super().__init__()
        self._done: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self._done.append((function, args, kwargs or {}, found))
        return found

    def replay(self) -> None:
        for function, args, kwargs, then in self._done:
            now = function(*args, **kwargs)
            for old, new in zip(tree_leaves(then), tree_leaves(now), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextmanager
def taping(decoder: StaticDecoder) -> Iterator[Tape]:
    """In place of a CUDA graph: recording does not compute, so what the step has changed is put back."""
    own = [buffer for layer in decoder.layers for buffer in layer.buffers]
    changing = [decoder.positions, decoder.at, decoder.next_logits, *own]
    before = [tensor.clone() for tensor in changing]
    with Tape() as tape:
        yield tape
    for tensor, value in zip(changing, before, strict=True):
        tensor.copy_(value)


def record(decoder: StaticDecoder) -> None:
    with taping(decoder) as tape:
        decoder.compute()
    decoder.graph = tape


@contextmanager
def replaying(monkeypatch: pytest.MonkeyPatch, *, tape: bool, places: int) -> Iterator[list[int]]:
    """The sampler decodes in fixed steps, with so many places at first; yields the number of slots of each tape."""
    recorded: list[int] = []

    def note(decoder: StaticDecoder) -> None:
        recorded.append(len(decoder.tokens))
        record(decoder)

    begin = StaticDecoder.__init__

    def begun(decoder: StaticDecoder, *given: Any) -> None:
        begin(decoder, *given)
        decoder.records = tape

    with monkeypatch.context() as patch:
        patch.setattr(static_decode, "FIRST_TOKENS", places)
        patch.setattr(StaticDecoder, "__init__", begun)
        patch.setattr(StaticDecoder, "record", note)
        patch.setattr(HFSampler, "replays", lambda *_: True)
        yield recorded


def drawn(policy: Any, tokens: int = 24) -> list[Any]:
    groups = HFSampler(policy).sample(PROMPTS, SamplingParams(6, max_tokens=tokens), KEYS)
    return [one for group in groups for one in group]


def apart(found: list[Any], expected: list[Any]) -> float:
    """The largest distance of log-probabilities; infinite if other tokens were drawn."""
    if [one.token_ids for one in found] != [one.token_ids for one in expected]:
        return float("inf")
    pairs = [(a, b) for x, y in zip(found, expected, strict=True) for a, b in zip(x.logprobs, y.logprobs, strict=True)]
    return max(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize("tape", [False, True])
@pytest.mark.parametrize("name", SHARING)
def test_fixed_steps_draw_the_same_tokens(name: str, tape: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers double twice and shrink as rows end."""
    policy = architecture(name, vocab_size=18)
    policy.eos_ids = frozenset({1, 4, 9, 13})
    expected = drawn(policy)
    assert len({len(one.token_ids) for one in expected}) > 3
    with replaying(monkeypatch, tape=tape, places=6) as recorded:
        assert why_not_shared(policy, StaticDecoder) == ""
        recorded.clear()
        assert apart(drawn(policy), expected) < EXACT
    assert not tape or (len(recorded) >= 3 and min(recorded) < max(recorded) == 18), recorded


def test_a_step_that_depends_on_a_number_from_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a model counts positions itself: the tape repeats the count that it has seen."""
    policy = tiny_policy()
    compute = StaticDecoder.compute

    def counting(self: StaticDecoder) -> None:
        self.positions.copy_(self.positions - self.at + int(self.at))
        compute(self)

    monkeypatch.setattr(StaticDecoder, "compute", counting)
    for tape, reason in ((False, ""), (True, "its logits differ from its plain forward pass's")):
        with replaying(monkeypatch, tape=tape, places=8):
            assert why_not_shared(policy, StaticDecoder) == reason


@pytest.mark.parametrize("seed", range(3))
def test_rows_and_groups_may_end_in_any_order(seed: int) -> None:
    policy = tiny_policy()
    with torch.inference_mode():
        pair = SharedDecoder(policy, PROMPTS, 4), StaticDecoder(policy, PROMPTS, 4)
        for one, other in shrinking(pair, seed, 14):
            torch.testing.assert_close(one, other, rtol=0, atol=EXACT)
    assert 0 < len(pair[0].logits) < 6, "fewer than half of the slots were left"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", SHARING)
def test_nothing_in_a_step_waits_for_the_device(name: str, precision: str) -> None:
    policy = architecture(name, vocab_size=18)
    policy.precision = precision
    waited: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called = function.overloadpacket.__name__
            masks = [x for x in tree_leaves(args[1:]) if isinstance(x, torch.Tensor) and x.dtype == torch.bool]
            if called in WAITING or (called in ("index", "index_put", "index_put_") and masks):
                waited.append(called)
            return function(*args, **(kwargs or {}))

    with torch.no_grad():
        decoder = StaticDecoder(policy, PROMPTS, 2)
        with Watch():
            for _ in range(2):
                decoder.step(torch.arange(3, 9))
            assert waited == []
            decoder.logits[decoder.logits > 0].sum().item()
    assert waited == ["index", "_local_scalar_dense"], "the watch sees what waits"


@pytest.mark.parametrize("start", [SharedDecoder, StaticDecoder])
@pytest.mark.parametrize("name", SHARING)
def test_keys_and_values_kept_in_bf16_change_no_bit(name: str, start: type[SharedDecoder]) -> None:
    """The oracle keeps them as the model makes them, and autocast casts them for every token."""

    class AsMade(start.layer_type):  # type: ignore[misc, name-defined]
        def __init__(self, keys: Any, values: Any, width: int, stored: Any) -> None:
            assert stored == torch.bfloat16
            super().__init__(keys, values, width, None)

    class Oracle(start):  # type: ignore[misc, valid-type]
        layer_type = AsMade

    policy = architecture(name, vocab_size=18)
    policy.precision = "bf16"
    with torch.no_grad(), policy.autocast():
        pair = start(policy, PROMPTS, 4), Oracle(policy, PROMPTS, 4)
        for ours, exact in shrinking(pair, 1, 14):
            assert torch.equal(ours, exact)
    kept, made = ([one for layer in decoder.layers for one in (layer.prompt_keys, *layer.buffers)] for decoder in pair)
    assert {one.dtype for one in kept} == {torch.bfloat16}
    assert (torch.float32 in {one.dtype for one in made}) == (name != "cohere"), "else nothing would be cast"


def test_weights_are_cast_before_the_first_step() -> None:
    policy = tiny_policy()
    policy.precision = "bf16"
    own, casts = {p.data_ptr() for p in policy.model.parameters() if p.dim() == 2}, []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in own:
                casts.append(tuple(args[0].shape))
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Count():
        decoder = StaticDecoder(policy, PROMPTS, 2)
        assert casts
        casts.clear()
        decoder.step(torch.arange(3, 9))
    assert casts == []
    assert why_not_shared(policy, StaticDecoder) == ""


def test_how_often_the_sampler_looks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    expected = drawn(policy)
    monkeypatch.setattr(generate, "LOOK_EVERY", {"cpu": 5})
    assert apart(drawn(policy), expected) < EXACT
    assert [one.finish_reason for one in drawn(policy)] == [one.finish_reason for one in expected]


@pytest.mark.parametrize("name", ["gemma2", "falcon_h1"])
def test_models_that_cannot_share_prompts_cannot_have_fixed_steps(name: str) -> None:
    policy = architecture(name, vocab_size=18)
    assert why_not_shared(policy) and why_not_shared(policy, StaticDecoder)


class Cuda:
    """In place of torch.cuda: what a decoder asks for, with tapes for graphs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> None:
        self.decoder: Any = None
        self.fails = fails
        self.pools: list[object] = []
        self.live: weakref.WeakSet[Any] = weakref.WeakSet()
        self.recorded: list[tuple[int, Any, Any, str, int]] = []
        """Of each recording: its decoder, pool, stream and mode, and the graphs of the same pool that were alive."""
        self.current: Any = "default"
        for name in ("CUDAGraph", "graph", "graph_pool_handle", "Stream", "stream", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(static_decode, "FIRST_TOKENS", 6)
        monkeypatch.setattr(HFSampler, "replays", lambda *_: True)
        static_decode.recording_stream.cache_clear()
        static_decode.say_unrecorded.cache_clear()
        begin = StaticDecoder.__init__

        def begun(decoder: StaticDecoder, *given: Any) -> None:
            begin(decoder, *given)
            decoder.records, self.decoder = True, decoder

        monkeypatch.setattr(StaticDecoder, "__init__", begun)

    class CUDAGraph:
        pool: Any
        tape: Tape

        def replay(self) -> None:
            self.tape.replay()

    @contextmanager
    def graph(self, graph: Any, *, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        alive = sum(other.pool == pool for other in self.live)
        self.recorded.append((id(self.decoder), pool, stream, capture_error_mode, alive))
        assert self.current == "default"
        self.current = stream
        with taping(self.decoder) as graph.tape:
            yield
        if self.fails:  # as torch does, without going back to the stream before
            raise torch.OutOfMemoryError("CUDA out of memory")
        graph.pool = pool
        self.live.add(graph)
        self.current = "default"

    def graph_pool_handle(self) -> object:
        self.pools.append(object())
        return self.pools[-1]

    def Stream(self, device: torch.device) -> tuple[str, torch.device]:
        return ("recording", device)

    def current_stream(self, device: torch.device) -> Any:
        return self.current

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


def test_graphs_of_a_decoder_share_a_pool_and_let_other_threads_use_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = architecture("llama", vocab_size=18)
    policy.eos_ids = frozenset({1, 4, 9, 13})
    expected = drawn(policy)
    cuda = Cuda(monkeypatch)
    assert why_not_shared(policy, StaticDecoder) == ""
    cuda.recorded.clear()
    assert apart(drawn(policy), expected) < EXACT
    assert len(cuda.recorded) >= 3
    _, pools, streams, modes, alive = zip(*cuda.recorded, strict=True)
    assert set(streams) == {("recording", policy.device)} and set(modes) == {"thread_local"}
    assert len(set(pools)) == 1 and pools[0] is cuda.pools[-1]
    assert alive[0] == 0 and all(number == 1 for number in alive[1:]), "a pool without graphs cannot be used again"


def test_a_step_that_cannot_be_recorded_runs_on_the_stream_of_before_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = architecture("llama", vocab_size=18)
    expected = drawn(policy)
    cuda = Cuda(monkeypatch, fails=True)
    assert why_not_shared(policy, StaticDecoder) == "" and apart(drawn(policy), expected) < EXACT
    assert cuda.recorded and cuda.current == "default" and not cuda.live
    assert capsys.readouterr().err.count("could not be recorded: CUDA out of memory") == 1
