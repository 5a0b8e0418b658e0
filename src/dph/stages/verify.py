"""`dph verify`: judges a file of predictions by the official rules, and gives a verdict on each prediction."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dph.build import make_task, make_verifiers, select
from dph.config import TaskSplit, VerifyConfig
from dph.errors import DataError, JudgeError, RunError, SettingsError, counted
from dph.measure.pairing import Pairing, by_prompt, pair
from dph.measure.predictions import (
    Judged,
    Prediction,
    judged_rows,
    read_predictions,
    summarise_predictions,
    table_of,
)
from dph.process.progress import put, say
from dph.runs.chunks import Chunks
from dph.runs.directory import CHUNKS, RunDir
from dph.runs.files import write_atomically
from dph.runs.pinned import ANEW, content_hashes
from dph.types import Outcome, Problem, Verdict
from dph.verifiers import Verifiers, judging_versions
from dph.verifiers.golds import NOTED
from dph.verifiers.sql.text import extract_sql

PROBLEMS_AT_ONCE = 64
_NAMED = 5  # the largest number of problems that messages name
_PROMPTS_UNUSED = {"spider": "compact", "bird": "compact"}
"""The fastest prompt style of each task that builds prompts from databases. The prompts themselves are not used
here."""


def verify(config: VerifyConfig, *, resume: bool = False) -> Path | None:
    """Run the stage: print the scores and, with `out`, write scores.json and verdicts.jsonl. Returns the run directory,
    or None without `out`.

    Raises UserError if the predictions cannot be read or do not belong to the problems, if no gold answer can be used,
    or if a prediction could not be judged.
    """
    if not config.predictions:
        raise SettingsError("no file of predictions was named; add --predictions FILE")
    problems, count = _problems(config.task)
    ids = {problem.id for problem in problems}
    predictions = read_predictions(Path(config.predictions), count, config.column, ids)
    predictions = _without_nulls(config, predictions)
    if config.bare:
        if predictions and all(prediction.bare for prediction in predictions):
            say("--bare changes nothing: the predictions are bare already")
        predictions = [replace(prediction, bare=True) for prediction in predictions]
    pairing = _paired(config, problems, predictions, count)
    bare = predictions[0].bare
    run = RunDir.start(config.out, "verify", config, resume=resume, versions=judging_versions()) if config.out else None
    contents = content_hashes([problem for problem, _ in pairing.pairs]) if run else {}
    texts = [[prediction.text for prediction in of_problem] for _, of_problem in pairing.pairs]
    digests = {name: _digest(facts) for name, facts in (("the predictions", texts), ("the problems", contents))}
    if run and run.complete:
        for name, digest in run.manifest.get("inputs", {}).items():
            if digests.get(name) != digest:
                raise RunError(f"{name} are not those that {run.path} has judged; restore them, or {ANEW}")
        return run.path
    with Chunks(run.path if run else None, {"the predictions": digests["the predictions"]}, contents) as chunks:
        several = any(len(predictions) > 1 for _, predictions in pairing.pairs)
        with make_verifiers(config.verifier, bare_sql=bare, answers=several) as verifiers:
            verifiers.refuse_unknown([problem for problem, _ in pairing.pairs])
            judged, excluded = _judge(verifiers, pairing, chunks, bare=bare, several=several)
            if config.explain:
                _explain(verifiers, [pair for pair in pairing.pairs if pair[0].id not in excluded], bare=bare)
        if not judged:
            if run:
                (run.path / CHUNKS).unlink(missing_ok=True)  # it has nothing that another call could continue
            raise JudgeError("no problem is left: none has a gold answer that can be judged against")
        summary = summarise_predictions(config, judged, excluded)
        put(table_of(summary))
        if not bare and summary["outcomes"].keys() == {Outcome.NO_ANSWER}:
            hint = "if they are bare SQL or answers, say so with --bare"
            if any(problem.verifier == "math" for problem, _ in judged):
                hint += "; if they end as in 'The answer is 12.', read such words with --verifier.fallback phrase"
            say(f"no response holds an answer in its block or box; {hint}")
        if run is None:
            return None
        rows = [json.dumps(row, ensure_ascii=False) + "\n" for _, rows in judged for row in rows]
        write_atomically(run.path / "verdicts.jsonl", "".join(rows))
        write_atomically(run.path / "scores.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
        run.finish(inputs=digests)
    return run.path


def _without_nulls(config: VerifyConfig, predictions: list[Prediction]) -> list[Prediction]:
    """The predictions that count. A null in the place of a prediction is a missing prediction: it counts as wrong, or
    is left out with `partial`. Raises UserError if all are null."""
    kept = [prediction for prediction in predictions if not prediction.missing]
    if not kept and predictions:
        raise DataError(f"{config.predictions}: every prediction is null; name a file with predictions")
    if nulls := len(predictions) - len(kept):
        what = "will not count" if config.partial else "will count as wrong (--partial leaves them out)"
        say(f"null in place of {counted(nulls, 'prediction')}, which {what}")
    return kept if config.partial else predictions


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _problems(config: TaskSplit) -> tuple[list[Problem], int]:
    """The problems that can be judged, and the size of the whole split."""
    options = dict(config.options)
    if config.name in _PROMPTS_UNUSED:
        options["prompt_style"] = _PROMPTS_UNUSED[config.name]
    task = make_task(replace(config, options=options))
    problems = select(task, config.split, config.limit)
    size = getattr(task, "size", None)
    return problems, size(config.split) if size else len(problems)


def _paired(
    config: VerifyConfig, problems: Sequence[Problem], predictions: Sequence[Prediction], count: int
) -> Pairing:
    """Pair predictions with problems, and report those that are left over. count: the size of the whole split. Raises
    UserError if the two cannot belong together."""
    number = len(predictions)
    if not number:
        raise DataError(f"{config.predictions} holds no prediction")
    if predictions[0].by == "line" and (number > count or (number < count and not config.partial)):
        hint = "" if number > count else " (--partial: the file holds the first ones only)"
        sizes = f"{config.predictions} has {counted(number, 'prediction')} for {counted(count, 'problem')}"
        raise DataError(f"{sizes}; they are paired by order, so each problem needs its line{hint}")
    if len({prediction.bare for prediction in predictions}) > 1:
        raise DataError(f"{config.predictions}: some rows hold responses and some bare answers; choose with --column")
    pairing = pair(problems, by_prompt(problems, predictions))
    for problem, of_problem in pairing.pairs:
        for prediction in of_problem:
            if prediction.db_id and prediction.db_id != problem.meta.get("db_id", prediction.db_id):
                wrong = f"the prediction {prediction.key} is for the database {prediction.db_id!r}"
                right = f"problem {problem.id} has {problem.meta['db_id']!r}; the file is not for these problems"
                raise DataError(f"{config.predictions}: {wrong}, but {right}")
    if not pairing.pairs:
        first = f"the first is for {predictions[0].key!r}, the first problem is {problems[0].id!r}"
        every = counted(number, "prediction")
        raise DataError(f"{config.predictions}: of its {every} none belongs to a problem; {first}")
    if pairing.unknown:
        none = f"belong to none of {counted(len(problems), 'problem')}"
        say(f"{len(pairing.unknown)} of {counted(number, 'prediction')} {none}")
    if config.partial and not pairing.without:
        say("--partial changes nothing: every problem has a prediction")
    if pairing.without:
        what = "will not count" if config.partial else "will count as wrong (--partial leaves them out)"
        say(f"without a prediction: {counted(len(pairing.without), 'problem')}, which {what}")
        if not config.partial:
            pairing = replace(pairing, pairs=[*pairing.pairs, *((problem, []) for problem in pairing.without)])
    return pairing


def _judge(
    verifiers: Verifiers, pairing: Pairing, chunks: Chunks, *, bare: bool, several: bool
) -> tuple[list[Judged], dict[str, str]]:
    """The judged problems, and the problems whose gold answer fails, each with the reason.

    Raises UserError if a prediction could not be judged, because a score without it would not be that of the benchmark.
    """

    def judge(some: Sequence[tuple[Problem, Sequence[Prediction]]]) -> list[dict[str, Any]]:
        """For each problem its verdicts, answers and flags, or the reason why its gold answer fails."""
        broken = verifiers.check([problem for problem, _ in some])
        usable = [(problem, predictions) for problem, predictions in some if problem.id not in broken]
        flags = verifiers.flags([problem for problem, _ in usable])
        responses = list(_responses(usable, bare=bare))
        verdicts = iter(verifiers.verify(responses))
        answers = iter(_answers(verifiers, responses, bare=bare, several=several))
        values: list[dict[str, Any]] = []
        for problem, predictions in some:
            if problem.id in broken:
                values.append({"excluded": broken[problem.id]})
                continue
            rows = [next(verdicts) for _ in predictions] or [Verdict(Outcome.NO_ANSWER, 0.0, "no prediction")]
            if lost := [verdict.detail for verdict in rows if verdict.outcome is Outcome.INFRA_ERROR]:
                raise JudgeError(f"a prediction for problem {problem.id} could not be judged: {lost[0]}")
            told = [next(answers) for _ in predictions] or [None]
            told = [None if v.outcome is Outcome.NO_ANSWER else text for text, v in zip(told, rows, strict=True)]
            verdicts_of = [asdict(verdict) for verdict in rows]
            values.append(
                {
                    "verdicts": verdicts_of,
                    "answers": told,
                    "flags": [f for f in flags.get(problem.id, []) if f not in NOTED],
                }
            )
        return values

    values = chunks.map("problems", pairing.pairs, PROBLEMS_AT_ONCE, judge, "judging")
    judged: list[Judged] = []
    excluded: dict[str, str] = {}
    for (problem, predictions), value in zip(pairing.pairs, values, strict=True):
        if "excluded" in value:
            excluded[problem.id] = value["excluded"]
            continue
        texts = [prediction.text for prediction in predictions] or [""]
        answers = value.get("answers") or [None] * len(texts)
        judged.append((problem, judged_rows(problem, texts, value["verdicts"], answers, value["flags"])))
    for problem_id, reason in list(excluded.items())[:_NAMED]:
        say(f"problem {problem_id} is left out, its gold answer fails: {reason}")
    if len(excluded) > _NAMED:
        say(f"… and {counted(len(excluded) - _NAMED, 'more problem')}")
    return judged, excluded


def _answers(
    verifiers: Verifiers, responses: Sequence[tuple[Problem, str]], *, bare: bool, several: bool
) -> list[str | None]:
    """The answer of each response that was judged, as a text that is the same for equal answers; None for a response
    without an answer.

    The answer of a response in SQL is the result of the query, or the query itself if no problem has several responses.
    """
    known = [verifiers.tell("judged", responses), verifiers.tell("answers", responses) if several else []]
    told = [next(filter(None, of_each), None) for of_each in zip(*filter(None, known), strict=True)]
    told = told or [None] * len(responses)

    def own(problem: Problem, text: str) -> str | None:
        if problem.verifier == "sql":
            return None if several else text if bare else extract_sql(text)
        if problem.verifier == "exact":
            from dph.measure.metrics import answer_of  # slow to load

            return answer_of(problem, text)
        return None

    return [answer or own(*response) for answer, response in zip(told, responses, strict=True)]


def _explain(verifiers: Verifiers, pairs: Sequence[tuple[Problem, Sequence[Prediction]]], *, bare: bool) -> None:
    """Print how the verdict on each prediction came about."""
    responses = list(_responses(pairs, bare=bare))
    told = verifiers.tell("explained", responses)
    if not any(told):
        say("--explain changes nothing: only the policy typed of mathematics says how its verdicts come about")
    for (problem, _), lines in zip(responses, told, strict=False):
        if lines:
            put(f"{problem.id}: {lines}")


def _responses(pairs: Sequence[tuple[Problem, Sequence[Prediction]]], *, bare: bool) -> Iterator[tuple[Problem, str]]:
    """The responses for the verifiers. A bare mathematical answer is put into a box. Bare SQL stays unchanged."""
    for problem, predictions in pairs:
        for prediction in predictions:
            boxed = bare and problem.verifier == "math" and prediction.text.strip()
            yield problem, rf"\boxed{{{prediction.text.strip()}}}" if boxed else prediction.text
