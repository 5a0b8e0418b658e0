"""Is training with shared prompts, and sampling, on this device what the plain forward pass computes?

    python -m benchmarks.gpu.exactness --device cuda --lines FILE [--names llama qwen2] [--seconds 200]

Tiny random models, one of each architecture, evaluate the same rows in three ways: padded in fp32 on the CPU (taken as
exact), padded on the device, and packed with shared prompts on the device; log-probabilities and the gradient of a
weighted sum of them. Then the sampler's log-probabilities are compared with the trainer's. In fp32 two ways may differ
by `EXACT`. In bf16 an error may be `LARGEST_ERROR` times the padded one's; both are root mean squares. On a GPU in
bf16, attention over shared prompts must be varlen.
"""

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from architectures import ARCHITECTURES, NAMES, any_model, evaluated, some_rows
from benchmarks._support.lines import Lines
from benchmarks._support.shapes import Where, add_options, settings
from dph.config.sampling import SamplingParams
from dph.errors import UserError
from dph.models.attention import choose
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.sampling.generate import HFSampler
from helpers import shares, tiny_policy

EXACT = 1e-5
"""Nats, and gradients relative to their norm: two hundred roundings of fp32."""
SAMPLED = 1e-4
"""Nats between sampler and trainer in fp32; recurrent layers sum in another order when they decode."""
LARGEST_ERROR = 1.5
_LEAST = 2.0**-9
"""A root mean square error of bf16 that is never too large: half a unit in the last of eight places, of one nat."""
Evaluated = tuple[torch.Tensor, torch.Tensor]
"""Log-probabilities of all tokens, and a gradient; on the CPU, in float64."""


def values_of(policy: Policy, rows: Sequence[Tokens], shared: bool) -> Evaluated:
    """What the policy computes for rows, padded or packed."""
    found, gradient = evaluated(policy, rows, shared)
    return torch.cat(found).double().cpu(), gradient.double().cpu()


def errors(found: Evaluated, expected: Evaluated) -> dict[str, float]:
    """Largest and root mean square error of log-probabilities, and the error of a gradient relative to its norm."""
    gap, gradient = (a - b for a, b in zip(found, expected, strict=True))
    return {
        "largest": float(gap.abs().max()),
        "rms": float(gap.square().mean().sqrt()),
        "gradient": float(gradient.norm() / expected[1].norm()),
    }


def sampled(policy: Policy, exact: Policy, rows: Sequence[Tokens]) -> dict[str, float]:
    """Errors of the sampler's and of the trainer's log-probabilities of sampled responses, and their distance."""
    prompts = [row.prompt_ids for row in rows[::3]]
    groups = HFSampler(policy).sample(prompts, SamplingParams(2, max_tokens=9), [1, 2, 3])
    drawn = [(prompt, one) for prompt, group in zip(prompts, groups, strict=True) for one in group]
    responses = [Tokens(prompt, one.token_ids) for prompt, one in drawn]
    sampler = torch.tensor([value for _, one in drawn for value in one.logprobs]).double()
    trainer, true = (
        torch.tensor([value for row in one.response_logprobs(responses, 1.0, 1000) for value in row]).double()
        for one in (policy, exact)
    )
    return {
        "sampler_trainer": float((sampler - trainer).abs().max()),
        "sampler_rms": float((sampler - true).square().mean().sqrt()),
        "trainer_rms": float((trainer - true).square().mean().sqrt()),
    }


def within(error: float, plain: float) -> bool:
    """Whether an error in bf16 is no larger than the plain path's own allows."""
    return error <= LARGEST_ERROR * max(plain, _LEAST)


def compare(make: Callable[[], Any], where: Where) -> dict[str, Any]:
    """Errors of one architecture on a device, in a precision, and whether all of them are small enough."""
    rows, tokenizer = some_rows(), tiny_policy().tokenizer
    exact, policy = Policy(make(), tokenizer), Policy(make().to(where.device), tokenizer, precision=where.precision)
    _ = exact.head  # may refuse the model
    true, plain = values_of(exact, rows, False), values_of(policy, rows, False)
    found: dict[str, Any] = {"plain": errors(plain, true), "sampled": sampled(policy, exact, rows)}
    found |= {"packed": None, "packed_plain": None}
    packs = shares(policy, rows)
    if packs:
        packed = values_of(policy, rows, True)
        found |= {"packed": errors(packed, true), "packed_plain": errors(packed, plain)}
    one = found["sampled"]
    if where.precision == "fp32":
        gaps = [found["packed_plain"][name] for name in ("largest", "gradient")] if packs else []
        found["ok"] = all(gap <= EXACT for gap in gaps) and one["sampler_trainer"] <= SAMPLED
    else:
        pairs = [(one["sampler_rms"], one["trainer_rms"])]
        pairs += [(found["packed"][name], found["plain"][name]) for name in ("rms", "gradient") if packs]
        found["ok"] = all(within(error, plain_error) for error, plain_error in pairs)
    return found


def note_attention(device: str, dtypes: Sequence[torch.dtype], lines: Lines) -> bool:
    """Note which way of attention over shared prompts is chosen for the heads of models of 0.5 and 1.5 billion; returns
    whether it is the fastest wherever the type allows it."""
    fastest = True
    for dtype in dtypes:
        for model in ("0.5B", "1.5B"):
            config = settings(model)
            heads, shared = config.num_attention_heads, config.num_key_value_heads
            name, failures = choose(torch.device(device), dtype, heads, shared, config.hidden_size // heads)
            lines.add("attention", dtype=str(dtype), model=model, chosen=name, failures=failures)
            print(f"attention in {dtype}, heads of {model}: {name} {failures or ''}", flush=True)
            fastest = fastest and (dtype != torch.bfloat16 or device == "cpu" or name == "varlen")
    return fastest


def judge(name: str, where: Where) -> dict[str, Any] | None:
    """As `compare`; the reason where the model is refused or fails; None if it cannot be built."""
    try:
        any_model(name)
    except Exception:  # parts of other models, or of packages that are not here
        return None
    try:
        return compare(lambda: any_model(name), where)
    except UserError as error:
        return {"ok": True, "refused": str(error)}
    except Exception as error:  # of any kind, on a device where nothing was tried before
        return {"ok": False, "failed": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--names", nargs="+", help="architectures; by default all, the well-known ones first")
    parser.add_argument("--kernels", action="store_true", help="only which attention is chosen")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further model after this time")
    parser.add_argument("--lines", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = False  # convolutions of recurrent layers
    types = (torch.float64,) if options.device == "cpu" else (torch.float32, torch.bfloat16)  # float64 needs no trial
    fastest = note_attention(options.device, types, Lines(options.lines))
    if options.kernels:
        return 0 if fastest else 1
    names = options.names or [*ARCHITECTURES, *(name for name in NAMES if name not in ARCHITECTURES and name != "blt")]
    started, wrong, counted = time.monotonic(), [], 0
    for name in names:
        if time.monotonic() - started > options.seconds:
            break
        for precision in ("fp32", "bf16"):
            where = Where(options.device, precision)
            found = judge(name, where)
            if found is None:
                break
            gc.collect()
            torch._dynamo.reset()  # compiled kernels of many models are more than it keeps
            Lines(options.lines, **where.facts()).add("exactness", name=name, **found)
            counted += 1
            if not found["ok"]:
                wrong.append(f"{name} in {precision}")
                print(f"{name} in {precision}: {found}", flush=True)
    print(f"{counted} comparisons, {len(wrong)} beyond their tolerance: {', '.join(wrong) or 'none'}")
    return 1 if wrong or not fastest else 0


if __name__ == "__main__":
    sys.exit(main())
