"""`dph check`: a look at everything that training would meet. It prints its findings and writes no files.

rows ─► prompts and answers in tokens ─► gold answers ─► what the judge pays for ─► one step of training
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

from dph.build import make_task, make_verifiers, select, split_names
from dph.config import CheckConfig
from dph.errors import DataError, JudgeError, RowsError, SettingsError, counted, one_line
from dph.models.chat import (
    Rendering,
    check_variables,
    date_sentence,
    encode_problem,
    text_of,
    token_ids,
    writes_date,
)
from dph.models.device import choose_precision
from dph.models.fitting import fitting_tokens
from dph.models.loading import load_tokenizer, read_config
from dph.models.policy import Policy
from dph.models.traits import context_of
from dph.process.distributed import World
from dph.process.memory import peak_memory
from dph.process.progress import progress, put
from dph.rehearsal.presampled import Presampled
from dph.rehearsal.store import Rehearsal, RehearsalSet
from dph.sampling.rollouts import longest_prompt, say_unused_variables
from dph.stages.train import Method, bank_key, learner_of
from dph.tasks import Task
from dph.tasks.sql.lacking import lacking_lines
from dph.training.optim import Optimizer
from dph.training.rows import mix
from dph.training.run_loop import Clock
from dph.types import Group, Problem, as_text
from dph.verifiers import Verifiers
from dph.verifiers.golds import FORMS, WEAK, asked, gold_response, tried_golds

_SHOWN = 3
"""The number of gold answers that are shown."""
_JUDGED = 100
"""The largest number of problems for which the judge is tried."""
_STEPS = re.compile(r"step[ -]by[ -]step|think (?:it )?through|show your (?:work|reasoning)|explain your", re.I)
_FEW = 256
"""The number of tokens in which steps and an answer seldom fit."""
_WITH_FORM = (*FORMS, "exact")
"""The verifiers for which the form of a response with the gold answer is known."""


def check(config: CheckConfig) -> None:
    """Run the checks, and print their findings.

    Raises UserError if rows cannot be read, if no problem could be trained on, or if the judge pays for no gold answer.
    All findings up to that point have then been printed.
    """
    path = config.rehearsal.path
    task = make_task(config.task)
    problems = _check_rows(config, task, "rows", config.task.split)
    if config.bank.key:
        bank_key(config, task, problems)
    fitting = _check_tokens(config, problems)
    with make_verifiers(config.verifier, config.reward) as verifiers:
        usable = [problem for problem in _check_golds(verifiers, problems) if problem.id in fitting]
        if config.test and config.test not in split_names(config.task.split):
            _check_test(config, task, verifiers, problems)
        if not usable:
            raise DataError("nothing can be trained on: no problem has a prompt that fits and a gold that can be used")
        _check_judge(verifiers, usable[:_JUDGED])
        if config.step:
            explored = {problem.id for problem in problems}
            if path:
                presampled = Presampled.open(Path(path))
                chosen = presampled.training_problems(config.task, config.prompt_set, problems)
                explored = {problem.id for problem in chosen}
            drawn = [problem for problem in usable if problem.id in explored]
            sample, update, memory = _measure_step(config, task, drawn, verifiers)
            seconds, rollout = config.steps * (sample + update), config.rollout
            total = f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
            per_prompt = f", {config.stored} to each prompt" if config.stored_rows and not path else ""
            _print(
                "step",
                f"{sample + update:.3g} s: {sample:.3g} s to sample and judge {rollout.prompts} × {rollout.n} responses"
                f", {update:.3g} s to learn from them and {config.stored_rows} stored ones{per_prompt}; "
                f"{memory:.2f} GiB",
                f"{counted(config.steps, 'step')}: about {total}",
            )


def _print(label: str, *lines: str) -> None:
    """Print a finding. Its further lines are indented."""
    for first, line in zip([label, *[""] * len(lines)], lines, strict=False):
        put(f"{first:<8}{one_line(line, 1 << 20)}")


def _check_rows(config: CheckConfig, task: Task, label: str, split: str) -> list[Problem]:
    """Print how many problems a split has and what judges them, and return them. Raises UserError after each faulty row
    has been named."""
    try:
        problems = select(task, split, config.task.limit, shuffle=config.task.shuffle, requires=config.task.requires)
    except RowsError as error:
        _print(label, *error.faults)
        raise DataError(f"faults in rows: {len(error.faults)}; correct these rows, or leave them out") from error
    judges = Counter("the reward function" if config.reward.function else p.verifier or "nothing" for p in problems)
    named = ", ".join(f"{name} {count}" for name, count in judges.items())
    _print(label, f"{counted(len(problems), 'problem')} of the split {split} can be read; judged by: {named}")
    return problems


def _check_test(config: CheckConfig, task: Task, verifiers: Verifiers, trained: Sequence[Problem]) -> None:
    """Print the same findings about the split of tests and its gold answers, and how many of its problems are trained
    on."""
    try:
        problems = _check_rows(config, task, "test", config.test)
    except (DataError, SettingsError) as error:  # training on a benchmark can be checked without its tests
        if isinstance(error.__cause__, RowsError):
            raise
        return _print("test", f"no golds were run: {error}")
    known = {text for problem in trained for text in (problem.id, asked(problem))}
    new = [problem for problem in problems if known.isdisjoint((problem.id, asked(problem)))]
    if len(new) < len(problems):
        _print("", f"trained on too, so that scores say little: {len(problems) - len(new)} of them")
    if new:
        _check_golds(verifiers, new, tests=True)


def _check_tokens(config: CheckConfig, problems: Sequence[Problem]) -> set[str]:
    """Print the lengths of prompts and of gold answers, and one whole prompt. Returns the ids of the problems whose
    prompts are used."""
    tokenizer, rollout, rendering = load_tokenizer(config.model), config.rollout, Rendering.of(config.model)
    settings = read_config(config.model).get_text_config()
    limit = longest_prompt(context_of(settings), rollout.max_prompt_tokens, rollout)
    check_variables(tokenizer, rendering)
    say_unused_variables(tokenizer, problems)
    vocabulary = int(settings.vocab_size)
    prompts = [len(encode_problem(tokenizer, problem, rendering, vocabulary)) for problem in problems]
    fitting = [problem for problem, length in zip(problems, prompts, strict=True) if 0 < length <= limit]
    refused = f"{len(problems) - len(fitting)} ({1 - len(fitting) / len(problems):.0%})"
    _print("prompts", f"{_lengths(prompts)}, allowed {limit}; empty or longer, so left out: {refused}")
    if golds := [gold_response(p) for p in problems if p.verifier in _WITH_FORM and p.answer not in (None, [])]:
        lengths = [len(token_ids(tokenizer, text)) + 1 for text in golds]
        cut = sum(length > rollout.max_tokens for length in lengths)
        share = f"longer, so that a response with them would be cut off: {cut} ({cut / len(lengths):.0%})"
        steps = sum(_STEPS.search(as_text(problem.prompt)) is not None for problem in problems)
        few = f"prompts that ask for steps before the answer: {steps}; {rollout.max_tokens} tokens are few for these"
        more = [few] if steps and rollout.max_tokens < _FEW else []
        _print("answers", f"{_lengths(lengths)}, allowed {rollout.max_tokens}; {share}", *more)
    if not fitting:
        raise DataError(f"no problem has a prompt of at most {limit} tokens; raise --rollout.max-prompt-tokens")
    put(f"\nthe prompt of problem {one_line(fitting[0].id)}, as the model reads it:\n")
    text = text_of(tokenizer, encode_problem(tokenizer, fitting[0], rendering))
    put("\n".join(f"    {line}".rstrip() for line in text.split("\n")), end="\n\n")
    if writes_date(tokenizer):
        _print("date", date_sentence(rendering))
    return {problem.id for problem in fitting}


def _lengths(tokens: Sequence[int]) -> str:
    return f"median {counted(round(median(tokens)), 'token')}, longest {max(tokens)}"


def _check_golds(verifiers: Verifiers, problems: Sequence[Problem], *, tests: bool = False) -> list[Problem]:
    """Print which gold answers can be used, and name those that cannot be used or are weak. Returns the problems whose
    gold answer can be used. Raises JudgeError if there is none, unless the problems are tests."""
    usable, lines = tried_golds(verifiers, problems, None, tuple(WEAK) if verifiers.skip_weak else ())
    lines += lacking_lines(problems)
    can = f"{len(usable)} of {len(problems)} can be judged against"
    shown = zip(usable, verifiers.readings(usable[:_SHOWN]), strict=False)
    read = [f"{p.id}: {one_line(str(p.answer), 120)} → {one_line(reading, 120)}" for p, reading in shown]
    _print(*(("", f"golds: {can}") if tests else ("golds", can)), *read, *lines)
    if not usable and not tests:
        raise JudgeError("nothing can be trained on: no gold answer can be judged against")
    return usable


def _check_judge(verifiers: Verifiers, problems: Sequence[Problem]) -> None:
    """Print the verdicts on five wrong answers and on the gold answers. Raises JudgeError if the judge pays for no gold
    answer."""
    readings = verifiers.readings(problems)

    def other(index: int) -> str | None:
        """A response with the gold answer of the next problem whose gold answer is another one."""
        places = [*range(index + 1, len(problems)), *range(index)]
        return next((gold_response(problems[i]) for i in places if readings[i] != readings[index]), None)

    with_form = [problem for problem in problems if not verifiers.only and problem.verifier in _WITH_FORM]
    tries = {
        "nothing": [(problem, "") for problem in problems],
        "the question itself": [(problem, as_text(problem.prompt)) for problem in problems],
        "another problem's gold": [(p, text) for i, p in enumerate(problems) if (text := other(i)) is not None],
        "I don't know": [(problem, "I don't know.") for problem in problems],
        "a guess, 0 or SELECT 1": [
            (p, FORMS.get(p.verifier, "{}").format("SELECT 1" if p.verifier == "sql" else "0")) for p in problems
        ],
        "the gold in its form": [(problem, gold_response(problem)) for problem in with_form],
    }
    lines, scored, paid = [], 0, False
    for label, items in tries.items():
        verdicts = verifiers.verify(items)
        counts = ", ".join(f"{outcome} {count}" for outcome, count in Counter(v.outcome for v in verdicts).items())
        is_gold = label == "the gold in its form"
        wrong = [p.id for (p, _), verdict in zip(items, verdicts, strict=True) if verdict.correct != is_gold]
        named = f"; {'not paid' if is_gold else 'paid'}: {', '.join(wrong)}" if wrong else ""
        lines.append(f"{label:<23} {counts or 'not tried'}{named}")
        scored += sum(verdict.scored for verdict in verdicts)
        paid = is_gold and any(verdict.correct for verdict in verdicts)
    _print("judge", f"verdicts on {counted(len(problems), 'problem')}; only the last responses should be paid", *lines)
    if not scored:
        raise JudgeError("nothing can be trained on: none of the tried responses could be judged")
    if with_form and not paid:
        raise JudgeError("nothing can be trained on: the judge pays for no gold answer in its own form")


def _measure_step(
    config: CheckConfig, task: Task, problems: Sequence[Problem], verifiers: Verifiers
) -> tuple[float, float, float]:
    """The seconds that sampling and the update take in a training step, and the peak memory in GiB. The policy is then
    dropped.

    The second of two steps is measured, because the first one tries kernels and allocates moments. Before pre-sampling
    there are no stored responses. Responses to the prompts of the first step then stand in for them, because the
    prompts of stored responses are not those of the step either.
    """
    if config.model.precision == "auto":
        config = replace(config, model=replace(config.model, precision=choose_precision(config.model)))
    world, optim = World.join(), config.optim
    policy = Policy.to_train(config.model, config.seed)
    optimizer = Optimizer(policy.trainable(), optim, config.steps * optim.minibatches)
    budget = optim.tokens_per_microbatch or fitting_tokens(policy)
    learner = learner_of(config, Method.of(config), task, problems, verifiers, policy, optimizer, world, budget)
    path = config.rehearsal.path
    stored = Presampled.open(Path(path)).stored if path and config.begins_with_stored else ()
    clock, cursor, before = Clock(), 0, list[Group]()
    with closing(learner.sampler), progress("two steps of training", 4) as shown:
        for number in ("first", "second"):
            clock = Clock()
            drawn = learner.collector.draw(cursor)
            clock.lap("sample")
            shown.advance(1, f"sampled the {number}")
            drawn_from = before or drawn.groups
            stand_ins = [Rehearsal.drawn(group, r) for group in drawn_from for r in group.rollouts[: config.stored]]
            rehearsed = RehearsalSet(stored or stand_ins, config.seed).take(0, config.stored_rows)
            rows = learner.advantages.rows(drawn.groups)
            learner.update(mix(rows, drawn.places, drawn.total, rehearsed, optim.minibatches, world))
            clock.lap("update")
            shown.advance(1, f"learned from the {number}")
            cursor, before = drawn.cursor, drawn.groups
    return clock.laps["sample_seconds"], clock.laps["update_seconds"], peak_memory()["peak_memory_gib"]
