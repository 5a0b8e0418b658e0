"""Talk to a model: questions from the command line or from standard input, answers on standard output.

A question that is the id or the text of a problem of the task is asked as training asks it, and its answers are judged.
Any other question goes through the tokenizer's chat template, if there is one, after what was said before.
"""

import sys
from collections.abc import Iterator, Sequence

from dph.build import load_problems, make_sampler, make_verifiers
from dph.config import ChatConfig, SamplerConfig
from dph.errors import UserError, visible
from dph.models.policy import Policy
from dph.process.progress import say
from dph.runs.samples import Sample
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import encode_problems
from dph.sampling.seeding import derive_key
from dph.types import Message, Outcome, Problem, Rollout, Verdict, as_messages, as_text
from dph.verifiers import Verifiers

NEW, QUIT = "/new", "/quit"
"""Lines that are no questions: forget what was said; end."""


def chat(config: ChatConfig) -> None:
    """Answer `config.ask` or `config.problem`, or every line of standard input until it ends.

    Raises UserError if the model cannot be loaded or the task has no such problem.
    """
    problems = _problems(config)
    if config.problem and config.problem not in {problem.id for problem in problems}:
        some = ", ".join(problem.id for problem in problems[:3])
        raise UserError(
            f"the split {config.task.split!r} has no problem {config.problem!r}; its ids are like {some}; --task.split "
            "names another split"
        )
    policy = Policy.load(config.model)
    sampler = make_sampler(SamplerConfig(), policy, config.model, config.rollout.longest)
    with make_verifiers(config.verifier, config.reward) as verifiers:
        talk = Conversation(config, policy, sampler, verifiers, problems)
        if question := config.problem or config.ask:
            return _print(talk.answers(question))
        _introduce(config, problems)
        for line in _lines():
            if line == QUIT:
                return None
            if line == NEW:
                talk.forget()
                continue
            if line.startswith("/") and line[1:].isalpha():
                say(f"{line} is no command and was not asked: {NEW} begins anew, {QUIT} ends")
                continue
            try:
                _print(talk.answers(line))
            except UserError as error:  # this question cannot be asked; the next may
                say(str(error))


class Conversation:
    """Questions to a policy, one after the other."""

    def __init__(
        self, config: ChatConfig, policy: Policy, sampler: Sampler, verifiers: Verifiers, problems: Sequence[Problem]
    ) -> None:
        """problems: questions whose answers are judged."""
        self._config, self._policy, self._sampler, self._verifiers = config, policy, sampler, verifiers
        self._known = {as_messages(problem.prompt)[-1]["content"].strip(): problem for problem in reversed(problems)}
        self._known |= {as_text(problem.prompt).strip(): problem for problem in reversed(problems)}
        self._known |= {problem.id: problem for problem in problems}
        self._said: list[Message] = []
        self._turn = 0

    def forget(self) -> None:
        """Begin anew: the next question is the first."""
        self._said = []

    def answers(self, question: str) -> Iterator[str]:
        """Paragraphs with the answers to a question, each with its verdict if the question is a problem, and the
        problem's own answer. Raises UserError if the question does not fit into the model's context."""
        problem = self._known.get(question.strip())
        if problem is not None:
            yield f"{problem.id}: {as_text(problem.prompt)}"
            if broken := self._verifiers.check([problem]):
                raise UserError(f"problem {problem.id} cannot be judged: {broken[problem.id]}")
        rollouts = self._draw(problem or self._as_problem(question), judged=problem is not None)
        for number, rollout in enumerate(rollouts, 1):
            head = self._head(problem, number, rollout)
            yield f"{head}\n{rollout.text.strip()}" if head else rollout.text.strip()
        if problem is None:
            self._remember(question, rollouts[-1].text)
            return
        correct = sum(rollout.verdict.correct for rollout in rollouts)
        count = f"{correct} of {len(rollouts)} correct; " if len(rollouts) > 1 else ""
        yield f"{count}the task's answer: {problem.answer}"

    def _draw(self, problem: Problem, *, judged: bool) -> list[Rollout]:
        config, self._turn = self._config, self._turn + 1
        rollout = config.rollout
        [item] = encode_problems(self._policy, [problem], rollout.max_prompt_tokens, rollout.max_tokens)
        key = derive_key(config.seed, "chat", self._turn, problem.id)
        [completions] = self._sampler.sample([item.prompt_ids], rollout.drawing(config.samples), [key])
        texts = [self._policy.decode(completion.token_ids) for completion in completions]
        verdicts = self._verifiers.verify([(problem, text) for text in texts]) if judged else [_UNJUDGED] * len(texts)
        return list(map(Rollout, completions, texts, verdicts))

    def _as_problem(self, question: str) -> Problem:
        """A question after what was said, without it where both do not fit into the model's context."""
        messages = (*self._said, Message(role="user", content=question))
        rollout = self._config.rollout
        room = min(rollout.max_prompt_tokens, self._policy.context_length - rollout.max_tokens)
        if self._said and len(self._policy.encode_prompt(messages)) > room:
            say("what was said before no longer fits into the model's context and is forgotten")
            self.forget()
            messages = messages[-1:]
        return Problem("question", messages, None, "")

    def _remember(self, question: str, answer: str) -> None:
        """Keep a turn, if the model was made for conversations."""
        if getattr(self._policy.tokenizer, "chat_template", None):
            self._said += [Message(role="user", content=question), Message(role="assistant", content=answer)]

    def _head(self, problem: Problem | None, number: int, rollout: Rollout) -> str:
        count = f"[{number}/{self._config.samples}] " if self._config.samples > 1 else ""
        if problem is not None:
            return count + Sample.of(0, "chat", problem, number - 1, rollout).facts()
        cut = rollout.completion.finish_reason == "length"
        return count + (f"cut off after {len(rollout.completion.token_ids)} tokens" if cut else "")


_UNJUDGED = Verdict(Outcome.NO_ANSWER, 0.0)


def _problems(config: ChatConfig) -> list[Problem]:
    """The problems of the task; none if no task is named, or if it cannot be loaded and is not needed."""
    if not config.task.name:
        if config.problem:
            raise UserError("no task was named, so there is no problem to ask; name a run, or add --task NAME")
        return []
    try:
        return load_problems(config.task)[1]
    except UserError as error:
        if config.problem:
            raise
        say(f"answers are not judged: {error}")
        return []


def _introduce(config: ChatConfig, problems: Sequence[Problem]) -> None:
    say(f"{config.model.path}: ask, {NEW} to begin anew, {QUIT} to end")
    if problems:
        some = ", ".join(problem.id for problem in problems[:3])
        say(f"answers to problems of {config.task.name} are judged: ask one by its id ({some} …) or its text")


def _lines() -> Iterator[str]:
    """Lines of standard input that are not empty; a terminal gets a prompt and can edit them."""
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401  (gives `input` the editing of a line)
    while True:
        try:
            line = input("> " if terminal else "").strip()
        except EOFError:
            return
        if line:
            yield line


def _print(paragraphs: Iterator[str]) -> None:
    for paragraph in paragraphs:
        print(visible(paragraph, keep="\n\t"), end="\n\n", flush=True)
