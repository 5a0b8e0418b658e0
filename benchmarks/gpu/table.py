"""The results of all parts as one page of tables, from the lines that they have written so far."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._support.lines import read_lines
from benchmarks.gpu.plan import LIMITS

Line = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a Markdown table."""
    cells = [list(map(str, row)) for row in rows]
    return ["| " + " | ".join(row) + " |" for row in [list(head), ["---"] * len(head), *cells]]


def exactness(lines: Sequence[Line]) -> list[str]:
    """Architectures compared, and the largest errors, by precision."""
    rows = []
    for precision in ("fp32", "bf16"):
        here = [line for line in lines if line["precision"] == precision]
        compared = [line for line in here if "plain" in line]
        packed = [line for line in compared if line["packed"]]

        def worst(of: Iterable[float]) -> str:
            return f"{max(of, default=float('nan')):.1e}"

        rows.append([
            precision,
            len(compared),
            len(packed),
            worst(line["packed_plain"]["largest"] for line in packed),
            worst(line["packed_plain"]["gradient"] for line in packed),
            worst(line["sampled"]["sampler_trainer"] for line in compared),
            ", ".join(line["name"] for line in here if not line["ok"]) or "none",
        ])  # fmt: skip
    head = (
        "precision",
        "architectures",
        "packed",
        "packed − plain, nats",
        "gradient",
        "sampler − trainer",
        "too large",
    )
    return table(head, rows)


def attention(lines: Sequence[Line]) -> list[str]:
    """Which way of attention is chosen, and why not earlier ones."""
    rows = [
        (line["dtype"], line["model"], line["chosen"], "; ".join(f"{k}: {v}" for k, v in line["failures"].items()))
        for line in lines
    ]
    return table(("type", "heads of", "attention", "not used"), rows)


def updates(lines: Sequence[Line]) -> list[str]:
    """Updates with each prompt once against the plain path."""

    def key(line: Line) -> tuple[Any, ...]:
        return tuple(line[name] for name in ("model", "precision", "prompt", "response", "n", "method"))

    plain = {key(line): line for line in lines if not line["shared"]}
    rows = []
    for line in lines:
        if line["shared"]:
            rival = plain.get(key(line), {"seconds": float("nan"), "bytes": 0, "mfu": float("nan")})
            rows.append([
                *(line["model"], line["precision"], line["attention"]),
                *(f"{line['prompt']}+{line['response']} × {line['n']}", line["method"]),
                *(f"{1000 * one['seconds']:.0f}" for one in (rival, line)),
                f"{rival['seconds'] / line['seconds']:.2f}",
                *(f"{one['mfu']:.0%}" for one in (rival, line)),
                *(f"{one['bytes'] / 1e9:.1f}" for one in (rival, line)),
                f"{line['square_rate'] / 1e12:.1f}",
            ])  # fmt: skip
    head = (
        *("model", "precision", "attention", "tokens", "method"),
        *("plain ms", "shared ms", "ratio", "plain MFU", "MFU", "plain GB", "GB", "TFLOP/s of a square product"),
    )
    return table(head, rows)


def steps(lines: Sequence[Line]) -> list[str]:
    """Whole steps, by engine."""
    phases = ("generation", "forward", "backward", "total")
    rows = [
        (
            *(line["engine"], line["model"], "yes" if line["graphs"] else "no"),
            *(f"{line['prompt']}+{line['response']} × {line['n']}", line["prompts"]),
            *(f"{1000 * line[name]:.0f}" for name in phases),
            f"{line['bytes'] / 1e9:.1f}",
        )
        for line in lines
    ]
    return table(("engine", "model", "graphs", "tokens", "prompts", *(f"{name} ms" for name in phases), "GB"), rows)


def decoding(lines: Sequence[Line]) -> list[str]:
    """Steps of decoding alone."""
    rows = [
        (
            *(line["model"], line["precision"], line["rows"], "yes" if line["replayed"] else "no"),
            *(f"{1000 * line[name]:.2f}" for name in ("step", "drawing", "limit")),
            f"{line['rows'] / line['step']:.0f}",
        )
        for line in lines
    ]
    return table(("model", "precision", "rows", "graph replayed", "ms a token", "drawing", "limit", "tokens/s"), rows)


def generation(lines: Sequence[Line]) -> list[str]:
    """Tokens per second of the samplers, by the length of responses."""
    rows = [
        (
            *(line[name] for name in ("model", "precision", "size", "mean")),
            line["prompts"] * line["n"],
            engine,
            round(rate),
        )
        for line in lines
        for engine, rate in line["rates"].items()
    ]
    return table(("model", "precision", "tokens", "mean length", "responses", "engine", "tokens/s"), rows)


def profiles(lines: Sequence[Line]) -> list[str]:
    """What the time of an update consists of."""
    kinds = list(lines[0]["kinds"])
    rows = [
        (
            *(line["model"], f"{line['prompt']}+{line['response']}", f"{1000 * line['seconds']:.0f}"),
            *(f"{1000 * line['busy']:.0f}", line["kernels"]),
            *(f"{1000 * line['kinds'][name]:.0f}" for name in kinds),
        )
        for line in lines
    ]
    return table(("model", "tokens", "ms", "ms in kernels", "kernels", *(f"{name}, ms" for name in kinds)), rows)


def scaling(lines: Sequence[Line]) -> list[str]:
    """How updates scale."""
    rows = [
        (
            *(line["sweep"], line[line["sweep"]]),
            *(f"{line[way] * 1000:.0f}" for way in ("shared", "repeated")),
            *(f"{line['repeated_of_shared']:.2f}", f"{line['of_limit']:.0%}"),
        )
        for line in lines
    ]
    return table(("varied", "value", "shared ms", "plain ms", "ratio", "of the limit"), rows)


def real(lines: Sequence[Line]) -> list[str]:
    """A real model's scores, by method and split; without scores, the step that the method has reached."""
    rows = []
    for line in lines:
        reached = (line["model"], line["method"], line["step"])
        for split, metrics in line.get("scores", {}).items():
            passes = sorted((name for name in metrics if name.startswith("pass@")), key=lambda name: int(name[5:]))
            chosen = ("greedy", passes[0], passes[-1], "styles_correct")
            found = [f"{name} {metrics[name]['mean']:.3f}" for name in chosen if name in metrics]
            rows.append((*reached, split, ", ".join(found)))
        if "scores" not in line:
            rows.append((*reached, "", f"reward {line['reward']}"))
    return table(("model", "method", "step", "split", "scores"), rows)


def runs(lines: Sequence[Line]) -> list[str]:
    """Runs of training: against the CPU, and killed; without what is long."""
    left_out = {"what", "by_step"}
    return [
        f"- {line['what']}: " + ", ".join(f"{name} {value}" for name, value in line.items() if name not in left_out)
        for line in lines
    ]


def trainers(lines: Sequence[Line]) -> list[str]:
    """TRL's and verl's steps with shared prompts, against without; and which of them are not installed."""

    def both(line: Line, name: str, form: str) -> str:
        return " / ".join(form.format(line[way].get(name, float("nan"))) for way in ("stock", "shared"))

    rows = []
    for line in (line for line in lines if line["what"] == "trainer"):
        ratios = [line["stock"][name] / line["shared"][name] for name in ("update", "step")]
        rows.append([
            *(line["trainer"], "vLLM" if line["vllm"] else "a stand-in", line["model"]),
            *(f"{line['prompt']}+{line['response']} × {line['responses']}", line["prompts"]),
            *(both(line, "update", "{:.2f}"), f"{ratios[0]:.2f}", both(line, "step", "{:.2f}"), f"{ratios[1]:.2f}"),
            *(both(line, name, "{:.2f}") for name in ("generation", "log-probs")),
            " / ".join(f"{line[way]['bytes'] / 1e9:.1f}" for way in ("stock", "shared")),
            *(both(line, name, "{:.1e}") for name in ("from fp32", "sampler")),
        ])  # fmt: skip
    head = (
        *("trainer", "sampler", "model", "tokens", "prompts", "update, s: stock / shared", "ratio", "step, s", "ratio"),
        *("generation, s", "log-probabilities, s", "GB", "from fp32, nats", "sampler from trainer"),
    )
    said = [f"- {line['says']}" for line in lines if line["what"] == "missing"]
    return [*said, *[""] * bool(said and rows), *(table(head, rows) if rows else [])]


SECTIONS: tuple[tuple[str, tuple[str, ...], Callable[[Sequence[Line]], list[str]]], ...] = (
    ("Attention", ("attention",), attention),
    ("Exactness", ("exactness",), exactness),
    ("Runs", ("devices", "kill", "demo"), runs),
    ("A real model", ("real",), real),
    ("Updates", ("update",), updates),
    ("Steps", ("step",), steps),
    ("Decoding", ("decode",), decoding),
    ("Generation", ("generate",), generation),
    ("Profiles", ("profile",), profiles),
    ("Scaling", ("scaling",), scaling),
    ("Trainers", ("missing", "trainer"), trainers),
    (
        "Commands",
        ("command",),
        lambda lines: table(("command", "end", "s"), [[x["name"], x["end"], x["seconds"]] for x in lines]),
    ),
)


def page(out: Path) -> str:
    """Markdown of all results under a folder; sections without results are left out."""
    lines = read_lines(out / f"{part}.jsonl" for part in LIMITS)
    devices = sorted({f"{line['device']}, torch {line['torch']}" for line in lines if "torch" in line})
    text = ["# What scripts/gpu measured", "", *devices]
    for title, whats, show in SECTIONS:
        if chosen := [line for line in lines if line["what"] in whats]:
            text += ["", f"## {title}", "", *show(chosen)]
    return "\n".join(text) + "\n"
