"""`dph judge`: a reward function on trial, on answers whose truth is known."""

import tempfile
from pathlib import Path
from time import perf_counter

from dph.config import TrialConfig
from dph.errors import SettingsError, json_for_terminal
from dph.measure.trials import Tried, as_json, as_text
from dph.process.progress import progress, put
from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.sql.pairs import make_database, sql_pairs
from dph.verifiers.trial import MATHS, SQL, Asked, Form, Said, Trial
from mathequal.pairs import Pair, pairs

OURS = "the judge of this package"


def judge(config: TrialConfig) -> list[Tried]:
    """Print how a reward function judges answers of known truth. Raises UserError for a function that cannot be called,
    or that tells right answers from wrong ones in no form of asking."""
    if config.math and config.sql:
        raise SettingsError("--math and --sql are two trials; run one after the other")
    if not config.function and (config.template or config.columns):
        raise SettingsError("--template and --columns say how a function is called; name it: dph judge FILE.py:NAME")
    with tempfile.TemporaryDirectory() as folder:
        database = str(make_database(Path(folder) / "library.sqlite")) if config.sql else ""
        asked, tried = (_of_function if config.function else _of_ours)(config, database)
    name = config.function or OURS
    put(json_for_terminal(as_json(name, asked, tried)) if config.json else as_text(name, asked, tried))
    return tried


def _of_function(config: TrialConfig, database: str) -> tuple[str, list[Tried]]:
    """How the function was asked, and what it said."""
    with Trial(config.function, config.columns, database, config.timeout, config.workers) as trial:
        form = trial.form(SQL if database else MATHS, config.template)
        some = _chosen(config, form)
        with progress("answers", len(some)) as tracker:
            asked = [_asked(pair, form) for pair in some]
            said = trial.ask(asked, messages=form.messages, done=tracker.advance)
    return _words(trial.call, form), [_tried(pair, one, form) for pair, one in zip(some, said, strict=True)]


def _of_ours(config: TrialConfig, database: str) -> tuple[str, list[Tried]]:
    """The same of our own judge, with its usual settings."""
    subject, name = (SQL, "sql") if database else (MATHS, "math")
    form, tried = Form(subject.answers[0], subject.golds[0]), []
    with Verifiers({name: {"timeout": config.timeout, "workers": 1}}) as verifiers:
        for pair in _chosen(config, form):
            problem = Problem("pair", pair.question, pair.gold, name, {"db": database} if database else {})
            started = perf_counter()
            [verdict] = verifiers.verify([(problem, _asked(pair, form).response)])
            said = Said(verdict.reward, "", perf_counter() - started)
            if not verdict.scored:
                said = Said(None, verdict.detail, said.seconds)
            tried.append(_tried(pair, said, form))
    return f"the verifier `{name}`, answers as {_shown(form)}", tried


def _chosen(config: TrialConfig, form: Form) -> list[Pair]:
    """Every so many-th pair; whole responses in mathematics only for a judge that reads boxes."""
    if config.sql:
        found = [
            Pair(pair.kind, pair.question, pair.gold, pair.text, pair.right, pair.question) for pair in sql_pairs()
        ]
    else:
        found = [pair for pair in pairs() if form.boxed or not pair.whole]
    return found[:: config.every]


def _asked(pair: Pair, form: Form) -> Asked:
    state = form.of_response if pair.whole else form.of_answer
    return state(pair.gold, pair.text, pair.question)


def _tried(pair: Pair, said: Said, form: Form) -> Tried:
    paid = None if said.reward is None else said.reward >= form.paid_from
    return Tried(*pair[:5], paid, said.reward, said.failure, said.seconds)


def _words(call: str, form: Form) -> str:
    messages = ", responses as lists of messages" if form.messages else ""
    gold = f", right answers as {form.gold.format('ANSWER')}" if form.gold != "{}" else ""
    return f"called with {call}{messages}, answers as {_shown(form)}{gold}, paid from {form.paid_from:g} on"


def _shown(form: Form) -> str:
    return " ".join(form.answer.format("ANSWER").split())
