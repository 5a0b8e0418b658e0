"""Sampling parameters: how responses are drawn. Each parameter is declared once, here, with its names in other engines.

Samplers take a `SamplingParams`. The settings under `rollout`, their flags, the manifests of presampled sets, and the
translations for vLLM, verl and TRL are made from this declaration. A new parameter is a field with a `Drawing` mark,
and its use in the built-in sampler (`dph.sampling.generate`).

With π the policy's distribution of the next token at the temperature, a truncating parameter draws from

    q(y) = π(y) / K for y in a set S of tokens, and 0 outside of it;   K = Σ_{y ∈ S} π(y).

Log-probabilities in this package are always those of π. Training compares log π with log π, so its ratios do not
contain K, and its gradient is that of π on tokens that q drew: tokens outside of S are never tried. An engine that
reports log q = log π − log K is −log K ≥ 0 nats above the trainer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, Self

from dph.config.settings import (
    FieldError,
    NonNegative,
    PositiveInt,
    PositiveShare,
    Settings,
    Share,
    Usual,
    hints_of,
)


@dataclass(frozen=True)
class Drawing:
    """Marks a sampling parameter that decides which responses are drawn: a presampled set records its value, and
    training on that set must have the same one."""

    truncates: bool = False
    """With another value than its default, tokens are drawn from a part of the distribution only (q above)."""
    vllm: str = ""
    """Its name in vLLM's SamplingParams; empty: the same."""
    transformers: str = ""
    """Its name in transformers' GenerationConfig; empty: the same."""
    with_vllm: tuple[tuple[str, Any], ...] = ()
    """Further settings of vLLM, needed unless the parameter has its default."""
    of_verl: bool = False
    """Whether the rollout settings of verl have it, under the same name."""
    ours: bool = False
    """Whether only this package has it, and no sampler: it says how a response is made of what samplers draw."""


@dataclass(frozen=True)
class SamplingParams(Settings):
    """How responses to a prompt are drawn. Temperature 0 means greedy decoding."""

    n: PositiveInt = 1
    """Responses per prompt."""
    temperature: Annotated[NonNegative, Usual(0.1, 2), Drawing(of_verl=True)] = 1.0
    """Sampling temperature; training computes log-probabilities at the same temperature. 0 decodes greedily: one
    response to a prompt, so that an evaluation of several is refused, and training too."""
    top_p: Annotated[PositiveShare, Usual(0.1), Drawing(truncates=True, of_verl=True)] = 1.0
    """Nucleus sampling: keep the smallest set of tokens with this much probability."""
    max_tokens: Annotated[PositiveInt, Usual(high=262144)] = 1024
    """Longest response, in tokens."""
    min_p: Annotated[Share, Usual(high=0.5), Drawing(truncates=True)] = 0.0
    """Min-p sampling: keep the tokens that have at least this share of the most likely token's probability, before
    top-p; 0 keeps all."""
    stop: Annotated[
        tuple[str, ...],
        Drawing(
            transformers="stop_strings",
            with_vllm=(("detokenize", True), ("include_stop_str_in_output", True)),
        ),
    ] = ()
    """Texts that end a response, after the first token with which its text, without special tokens, contains one of
    them. The response keeps this token, as its last."""

    turns: Annotated[PositiveInt, Usual(high=16), Drawing(ours=True)] = 1
    """Most turns of a response. In each but the last, the policy may call a tool that queries the SQLite database of
    the problem: `<tool_call>`, a query, `</tool_call>`. It then reads the result, and goes on. 1: no tool."""
    tool_tokens: Annotated[PositiveInt, Usual(32, 16384), Drawing(ours=True)] = 256
    """With turns above 1: longest result of a call, in tokens; what is longer is cut. Results do not count towards
    max_tokens, which limits what the policy writes in all turns together."""

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest response, with the results of a tool."""
        return self.max_tokens + (self.turns - 1) * self.tool_tokens

    def check(self) -> None:
        """Raises FieldError for an empty stop string."""
        if not all(self.stop):
            raise FieldError("stop", "has an empty text, which every response contains; leave it out")

    @property
    def truncations(self) -> dict[str, Any]:
        """The parameters that truncate the distribution, with their values; empty if tokens are drawn from all of it.
        Greedy decoding takes the most likely token, which no truncation removes."""
        return {
            name: getattr(self, name)
            for name, mark in marks().items()
            if self.temperature > 0 and mark.truncates and getattr(self, name) != DEFAULTS[name]
        }

    def greedy(self) -> Self:
        """The same with one response, decoded greedily."""
        untruncated = {name: DEFAULTS[name] for name, mark in marks().items() if mark.truncates}
        return replace(self, n=1, temperature=0.0, **untruncated)


DEFAULTS: Mapping[str, Any] = {item.name: item.default for item in fields(SamplingParams)}
"""The value with which each parameter changes nothing (but `n`, `temperature` and `max_tokens`, which always count)."""


@cache
def marks() -> Mapping[str, Drawing]:
    """The parameters that decide which responses are drawn, by their names."""
    return {name: mark for name, _, of in hints_of(SamplingParams) for mark in of if isinstance(mark, Drawing)}


def sampling_facts(params: SamplingParams) -> dict[str, Any]:
    """The parameters that decide which responses are drawn, as the manifest of a presampled set records them."""
    shown = params if params.turns > 1 else replace(params, tool_tokens=DEFAULTS["tool_tokens"])
    return {name: plain(getattr(shown, name)) for name in marks()}


def plain(value: Any) -> Any:
    """A parameter's value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


# vLLM and verl -------------------------------------------------------------------------------------------------------


def vllm_settings(params: SamplingParams) -> dict[str, Any]:
    """The parameters as vLLM's SamplingParams names them, without those that change nothing; greedy decoding has
    temperature 0 and no truncation."""
    shown = params if params.temperature > 0 else replace(params.greedy(), n=params.n)
    settings: dict[str, Any] = {"n": shown.n, "max_tokens": shown.max_tokens, "temperature": shown.temperature}
    for name, mark in marks().items():
        if (value := getattr(shown, name)) != DEFAULTS[name] and not mark.ours:
            settings |= {mark.vllm or name: plain(value), **dict(mark.with_vllm)}
    return settings


def verl_settings(params: SamplingParams) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters that verl's rollout settings have, and the others unless they change nothing (for our block of
    verl's configuration), by their names here."""
    shown = params if params.temperature > 0 else params.greedy()
    values = {name: plain(getattr(shown, name)) for name, mark in marks().items() if not mark.ours}
    unshared = {name: value for name, value in values.items() if not marks()[name].of_verl}
    changed = {name: value for name, value in unshared.items() if value != plain(DEFAULTS[name])}
    return {name: value for name, value in values.items() if name not in unshared}, changed


# transformers and TRL ------------------------------------------------------------------------------------------------


def transformers_names() -> dict[str, str]:
    """The name of each parameter in transformers' GenerationConfig."""
    names = {name: mark.transformers or name for name, mark in marks().items() if not mark.ours}
    return names | {"max_tokens": "max_new_tokens"}


def vllm_names() -> dict[str, str]:
    """The name of each parameter in vLLM's SamplingParams."""
    return {name: mark.vllm or name for name, mark in marks().items() if not mark.ours}


def named_params(settings: Mapping[str, Any], names: Mapping[str, str]) -> SamplingParams:
    """The parameters in the settings of an engine, by its names (`transformers_names`, `vllm_names`). A setting that is
    absent or None has its default; one text stands for a list of texts."""
    values: dict[str, Any] = {}
    for name, engine_name in names.items():
        value = settings.get(engine_name)
        if value is not None:
            lists = isinstance(DEFAULTS[name], tuple)
            values[name] = (value,) if lists and isinstance(value, str) else tuple(value) if lists else value
    return SamplingParams(**values)
