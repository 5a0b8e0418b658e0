"""The arms of experiment B2, as its protocol (experiments/results/bank.md) has them, the choice that its development
starts make, and its tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from experiments.anchor.confirm import ROWS_ONLY
from experiments.anchor.design import DISTINCT, FAST, Arm
from experiments.anchor.tables import Design
from experiments.factorial.tables import METRICS, Effect, Start, effect_of, level, mean_at

DEVELOPMENT = tuple(range(111, 114))
STARTS = tuple(range(121, 133))
"""Seeds of the worlds. None was used before."""
STEPS, SHORT = 500, 125
LENGTHS = (SHORT, STEPS)
RATES = ("2.5e-5", "5e-5", FAST, "2e-4")
KEYS = ("style", "once", "every")
ETAS = ("0.3", "1", "3")
LEAD = "begun-style"
"""The family of the bank that is tested; the others say which of its parts acts."""
CONTROLS = ("k3", "sft")
"""Families that the bank has to be above, besides GRPO's learning rates."""
LINE = tuple(f"grpo-{rate}" for rate in RATES)
HALFWAY = f"grpo-{FAST}-share0.5"
RESPONSES = 8 * 16
"""Of a step."""
Starts = Mapping[int, Start]


def _arm(name: str, family: str, flags: Iterable[str], rows: str | None, prompts: int = 8) -> Arm:
    length = ("--steps", str(STEPS), *(("--rollout.prompts", str(prompts)) if prompts != 8 else ()))
    trained = STEPS * RESPONSES * prompts // 8
    shares = (0.5,) if name == f"grpo-{FAST}" else ()
    return Arm(name, family, (*flags, *length), rows, stops=(SHORT,), shares=shares, trained=trained, steps=STEPS)


def _grpo(rate: str, *flags: str) -> tuple[str, ...]:
    return ("--preset", "grpo", "--optim.lr", rate, *flags)


def _bank(begun: bool, key: str, eta: str, rate: str = FAST, *flags: str) -> tuple[str, ...]:
    preset = "bank" if begun else "bank_online"
    return ("--preset", preset, "--optim.lr", rate, "--bank.key", key, "--loss.eta", eta, *flags)


def controls() -> tuple[Arm, ...]:
    """The runs without a bank, in their order."""
    found = [_arm(name, "grpo", _grpo(rate), None) for name, rate in zip(LINE, RATES, strict=True)]
    found += [_arm(f"grpo-24-{rate}", "grpo-24", _grpo(rate), None, prompts=24) for rate in ("5e-5", FAST)]
    for beta in ("0.1", "0.3"):
        found.append(_arm(f"k3-{beta}", "k3", _grpo(FAST, "--loss.kl", "k3", "--loss.kl-coef", beta), None))
    for eta in ("0.3", "1"):
        flags = ("--preset", "grpo_sft", "--optim.lr", FAST, "--loss.eta", eta)
        found.append(_arm(f"sft-{eta}", "sft", flags, DISTINCT))
    return tuple(found)


def banks() -> tuple[Arm, ...]:
    """The runs with a bank, in their order: the lead first."""
    found = []
    for key in KEYS:
        for begun, name in ((True, "begun"), (False, "online")):
            family, rows = f"{name}-{key}", DISTINCT if begun else None
            found += [_arm(f"{family}-{eta}", family, _bank(begun, key, eta), rows) for eta in ETAS]
    found.append(_arm(f"{LEAD}-1-slow", LEAD, _bank(True, "style", "1", "5e-5"), DISTINCT))
    js, k3 = ("--loss.divergence", "js"), ("--loss.kl", "k3", "--loss.kl-coef", "0.1")
    found.append(_arm("js-3", "js", _bank(True, "style", "3", FAST, *js), DISTINCT))
    found.append(_arm("with-k3-1", "with-k3", _bank(True, "style", "1", FAST, *k3), DISTINCT))
    return tuple(found)


def develop() -> tuple[Arm, ...]:
    """The runs of a development start: all arms."""
    return (*controls(), *banks())


def evaluation_of(arm: str, steps: int) -> str:
    """The name of an arm's evaluation after as many steps."""
    return arm if steps == STEPS else f"{arm}-step{steps}"


def gain(start: Start, arm: str, steps: int = STEPS) -> float:
    """The mean of samples of an arm minus the highest one on the line of GRPO's learning rates, the base model
    included, with as much pass@32, as a share."""
    points = [(level(start, (name,), "mean"), level(start, (name,), "pass@32")) for name in _line(steps)]
    name = evaluation_of(arm, steps)
    return level(start, (name,), "mean") - mean_at(points, level(start, (name,), "pass@32"))


def _line(steps: int) -> tuple[str, ...]:
    return ("base", *(evaluation_of(name, steps) for name in LINE))


def choose(starts: Starts) -> dict[str, str]:
    """The arm of each family with the highest gain after 500 steps, mean over the development starts; the first of
    equals."""
    best: dict[str, tuple[float, str]] = {}
    for arm in develop():
        if arm.family.startswith("grpo"):
            continue
        value = fmean(gain(start, arm.name) for start in starts.values())
        if arm.family not in best or value > best[arm.family][0]:
            best[arm.family] = (value, arm.name)
    return {family: name for family, (_, name) in best.items()}


def missing(starts: Starts, seeds: Sequence[int] = DEVELOPMENT) -> list[str]:
    """The evaluations that the choice reads and the development starts do not have."""
    names = ("base", *(arm.name for arm in develop()))
    return [f"{name} of start {seed}" for seed in seeds for name in names if name not in starts.get(seed, {})]


def confirm(choice: Mapping[str, str]) -> tuple[Arm, ...]:
    """The runs of a confirming start: GRPO at all rates, and the chosen arm of each family."""
    kept = {*choice.values()}
    return tuple(arm for arm in develop() if arm.family.startswith("grpo") or arm.name in kept)


def complete(starts: Starts, choice: Mapping[str, str]) -> dict[int, Start]:
    """The confirming starts that have every evaluation."""
    names = {"base", HALFWAY, *(evaluation_of(arm.name, steps) for arm in confirm(choice) for steps in LENGTHS)}
    return {seed: start for seed, start in starts.items() if names <= start.keys()}


# Tables ---------------------------------------------------------------------------------------------------------------


def _effect(starts: Starts, value: Callable[[Start], float]) -> Effect | None:
    return effect_of([value(start) for start in starts.values()]) if len(starts) > 1 else None


def primary(starts: Starts, choice: Mapping[str, str]) -> list[tuple[str, Effect | None]]:
    """The lead's gain after 500 steps over GRPO's line, then minus that of the chosen arm of each control."""
    lead = choice[LEAD]
    found = [("over GRPO's learning rates", _effect(starts, lambda start: gain(start, lead)))]
    for family in CONTROLS:
        other = choice[family]
        found.append((f"minus that of {other}", _effect(starts, lambda s, o=other: gain(s, lead) - gain(s, o))))
    return found


def tables(starts: Starts, choice: Mapping[str, str]) -> Iterator[str]:
    """The primary comparisons in their order, each read only if those before it hold; then every arm."""
    whole = complete(starts, choice)
    yield f"| primary: mean@64 of {choice[LEAD]} at equal pass@32, 500 steps | points, 95 % | |"
    yield "|---|---|---|"
    holds = True
    for title, found in primary(whole, choice):
        said = "not read" if not holds else "holds" if found is not None and found.low > 0 else "does not hold"
        holds = holds and said == "holds"
        yield f"| {title} | {found or '–'} | {said} |"
    yield ""
    yield "| model | steps | " + " | ".join(METRICS) + " | mean@64 at equal pass@32 | pass@32 − base | mean@64 − base |"
    yield "|---" * 2 + "|---:" * (len(METRICS) + 3) + "|"
    for steps in LENGTHS if whole else ():
        for arm in confirm(choice):
            yield _row(whole, arm.name, evaluation_of(arm.name, steps), str(steps), (arm.name, steps))
    for name in ROWS_ONLY:
        if here := {seed: start for seed, start in whole.items() if name in start}:
            yield _row(here, f"{name} ({len(here)} starts)", name, "none", (name, STEPS))
    if whole:
        yield _row(whole, "halfway weights", HALFWAY, str(STEPS))
        yield _row(whole, "base", "base", "0")


def _row(starts: Starts, title: str, name: str, steps: str, gain_of: tuple[str, int] | None = None) -> str:
    own = list(starts.values())
    cells = [f"{100 * fmean(level(start, (name,), metric) for start in own):.1f}" for metric in METRICS]
    gained = _effect(starts, lambda start: gain(start, *gain_of)) if gain_of else None
    cells.append(str(gained or "–"))
    for metric in ("pass@32", "mean"):
        difference = _effect(starts, lambda s, m=metric: level(s, (name,), m) - level(s, ("base",), m))
        cells.append(str(difference or "–"))
    return f"| {title} | {steps} | " + " | ".join(cells) + " |"


def shown(choice: Mapping[str, str]) -> Design:
    """What the figure shows: GRPO's learning rates as a line, and the chosen arm of each family as a point."""
    wide = tuple(arm.name for arm in controls() if arm.family == "grpo-24")
    points = {name: (name,) for name in choice.values()}
    return Design({"grpo": _line(STEPS), "grpo-24": wide, **points}, (), 1, f"Countdown, experiment B2, {STEPS} steps")


def choice_table(choice: Mapping[str, str], starts: Starts) -> Iterator[str]:
    """What the development starts decide: every arm's gain, and which one its family takes."""
    yield "| arm | mean@64 at equal pass@32, 500 steps | |"
    yield "|---|---:|---|"
    for arm in develop():
        if not arm.family.startswith("grpo"):
            value = fmean(gain(start, arm.name) for start in starts.values())
            yield f"| {arm.name} | {100 * value:+.2f} | {'chosen' if choice[arm.family] == arm.name else ''} |"
