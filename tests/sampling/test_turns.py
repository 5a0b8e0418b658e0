"""Responses of several turns: what is called and read, which tokens the policy wrote, limits, and what is judged."""

import sqlite3
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dph.config.sampling import SamplingParams
from dph.errors import SettingsError
from dph.models.batch import Tokens
from dph.models.scratch import new_policy
from dph.sampling import turns as module
from dph.sampling.generate import HFSampler
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, group_from_json, longest_prompt, rollouts_as_json, sample_groups
from dph.sampling.seeding import derive_key
from dph.sampling.turns import CLOSING, OPENING, Conversations, Response, check_tool, query_of
from dph.types import Completion, Outcome, Problem, Rollout, Verdict
from dph.verifiers import Verifiers
from helpers import TINY, randomise

ROOMY = SamplingParams(max_tokens=200, turns=3, tool_tokens=120)
PROBLEM = Problem("p", "?", "6", "exact", {"db": "shop.sqlite"})


def call(content: str) -> str:
    return f"{OPENING}{content}{CLOSING}"


def result(text: str) -> str:
    return f"\n<tool_response>\n{text}\n</tool_response>\n"


class Letters:
    """A policy's text side with a token for each letter."""

    context_length = 10_000

    def encode_foreign(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


class Script(Sampler):
    """Writes what comes next after the text so far: of the i-th response in the first turn, of the only one later."""

    def __init__(self, *replies: dict[str, str]) -> None:
        self.replies, self.asked = replies, []

    def stream(self, prompts, params, keys):
        assert params.turns == 1
        for index, prompt in enumerate(prompts):
            text = "".join(map(chr, prompt))
            self.asked.append((text, params, keys[index]))
            yield index, [self._cut(self._reply(text, i), params) for i in range(params.n)]

    def _reply(self, text, i):
        if text in self.replies[i]:
            return self.replies[i][text]
        return next(replies[text] for replies in self.replies if text in replies)

    def _cut(self, text, params):
        ends = [text.index(stop) + len(stop) for stop in params.stop if stop in text]
        said = text[: min(ends, default=len(text))]
        ids = [ord(letter) for letter in said[: params.max_tokens]]
        whole = len(ids) == len(said)
        return Completion(ids, [-float(letter) for letter in ids], "stop" if whole else "length")


class Tool:
    """Answers each query with its own text; notes what it was asked."""

    def __init__(self) -> None:
        self.asked = Counter()

    def query(self, database, sql):
        self.asked[database, sql] += 1
        return f"Error: no {sql}" if "bad" in sql else f"[{sql}]"


def talk(params, *replies, problem=PROBLEM, policy: Any = None, tool: Any = None) -> tuple[list[Response], Any, Any]:
    """The responses to the prompt "?"."""
    sampler, tool, policy = Script(*replies), tool or Tool(), policy or Letters()
    talks = Conversations(policy, sampler, tool, replace(params, n=len(replies)))
    [(index, responses)] = talks.stream([problem], [[ord("?")]], [11])
    assert index == 0
    return responses, sampler, tool


def test_the_query_of_a_call():
    assert query_of(call(" SELECT 1 ")) == "SELECT 1"
    assert query_of("first " + OPENING + "lost " + call("```sql\nSELECT 1\n```")) == "SELECT 1"
    assert query_of(call('{"name": "q", "arguments": {"sql": "SELECT 1"}}')) == "SELECT 1"
    for content in (
        "",
        " ",
        "{",
        '{"arguments": {}}',
        '{"arguments": {"sql": 5}}',
        '{"arguments": {"sql": " "}}',
        "{}",
    ):
        assert query_of(call(content)) is None
    assert query_of("no mark" + CLOSING) is None and query_of("SELECT 1") is None and query_of('["' + CLOSING) is None


def test_a_response_is_its_turns_and_the_results_between_them():
    one, two, end = f"I ask. {call('a')}", f"Again: {call('bad')}", "It is 6."
    sofar = f"?{one}{result('[a]')}"
    replies = {"?": one, sofar: two, f"{sofar}{two}{result('Error: no bad')}": end}
    [response], sampler, tool = talk(ROOMY, replies)
    whole = f"{one}{result('[a]')}{two}{result('Error: no bad')}{end}"
    completion = response.completion
    assert completion.written is not None
    assert Letters().decode(completion.token_ids) == response.transcript == whole and response.text == end
    own = "".join(chr(token) for token, mine in zip(completion.token_ids, completion.written, strict=True) if mine)
    assert own == one + two + end and completion.length == len(own) == len(completion.own_logprobs)
    assert completion.logprobs == [
        -float(token) if mine else 0.0 for token, mine in zip(completion.token_ids, completion.written, strict=True)
    ]
    assert (completion.calls, completion.failed_calls, completion.finish_reason) == (2, 1, "stop")
    assert tool.asked == {("shop.sqlite", "a"): 1, ("shop.sqlite", "bad"): 1}
    room = [200, 200 - len(one), 200 - len(one) - len(two)]
    assert [params.max_tokens for _, params, _ in sampler.asked] == room
    assert [params.stop for _, params, _ in sampler.asked] == [(CLOSING,), (CLOSING,), ()]
    assert [key for *_, key in sampler.asked] == [11, derive_key(11, 0, "turn", 2), derive_key(11, 0, "turn", 3)]


def test_a_response_without_a_call_has_no_mask_whatever_others_do():
    plain, asking = "At once: 6", call("a")
    later = f"?{asking}{result('[a]')}"
    responses, sampler, _ = talk(ROOMY, {"?": plain}, {"?": asking, later: "6"}, {"?": asking, later: "6"})
    first, *others = responses
    assert first == Response(Completion([*map(ord, plain)], [-float(ord(x)) for x in plain], "stop"), plain)
    assert [one.text for one in others] == ["6", "6"] and all(one.completion.written for one in others)
    keys = [key for text, _, key in sampler.asked if text == later]
    assert keys == [derive_key(11, i, "turn", 2) for i in (1, 2)]


def test_equal_queries_run_once_and_what_is_no_query_is_an_error():
    once, nothing, told = call("a"), call("{"), result(module._NO_QUERY)
    first = {"?": once, f"?{once}{result('[a]')}": "6"}
    third = {"?": nothing, f"?{nothing}{told}": "5"}
    responses, _, tool = talk(ROOMY, first, first, third)
    assert tool.asked == {("shop.sqlite", "a"): 1}
    assert [one.completion.failed_calls for one in responses] == [0, 0, 1] and responses[2].text == "5"
    without = replace(PROBLEM, meta={})
    error = result("Error: this problem has no database")
    [response], _, tool = talk(ROOMY, {"?": once, f"?{once}{error}": "?"}, problem=without)
    assert (response.completion.calls, response.completion.failed_calls, dict(tool.asked)) == (1, 1, {})


def test_the_last_turn_calls_nothing():
    again = f"{call('a')}{result('mine')}6"
    replies = {"?": call("a"), f"?{call('a')}{result('[a]')}": again}
    [response], _, tool = talk(replace(ROOMY, turns=2), replies)
    assert response.text == again and response.completion.calls == 1 and tool.asked.total() == 1
    [response], _, tool = talk(replace(ROOMY, turns=1), {"?": again})
    assert response == Response(response.completion, again) and response.completion.written is None
    assert not tool.asked


def test_max_tokens_limits_what_the_policy_writes_in_all_turns():
    asking, later = call("a"), f"?{call('a')}{result('[a]')}"
    size = len(asking)
    for most, text, reason in ((size + 6, "number", "stop"), (size + 5, "numbe", "length"), (size + 1, "n", "length")):
        params = replace(ROOMY, max_tokens=most)
        # another response with more room draws longer turns, of which nothing is kept
        short, long = {"?": asking, later: "number"}, {"?": call(""), f"?{call('')}{result(module._NO_QUERY)}": "6"}
        for replies in ((short,), (short, long)):
            response = talk(params, *replies)[0][0]
            completion = response.completion
            assert (response.text, completion.finish_reason) == (text, reason)
            assert completion.length == min(most, size + 6) and sum(completion.written or ()) == completion.length
    [response], _, tool = talk(replace(ROOMY, max_tokens=size), {"?": asking})
    assert (response.completion.finish_reason, response.completion.written, dict(tool.asked)) == ("length", None, {})
    [response], _, tool = talk(replace(ROOMY, max_tokens=size - 1), {"?": asking})
    assert response.completion.finish_reason == "length" and response.text == asking[:-1]


def test_a_long_result_is_cut():
    marks, cut = len(result("")), len(" …")
    for most in (marks + cut + 1, marks + 50):
        for size in (1, most - marks - 1, most - marks, most - marks + 1, 500):
            text = "x" * max(1, size - 2)
            shown = f"[{text}]"
            told = result(shown) if len(shown) <= most - marks else result(shown[: most - marks - cut] + " …")
            assert len(told) <= most
            replies = {"?": call(text), f"?{call(text)}{told}": "6"}
            params = replace(ROOMY, max_tokens=2000, tool_tokens=most)
            [response], *_ = talk(params, replies)
            assert response.text == "6"


def test_the_context_is_never_exceeded():
    """Rows with much room and rows that are long are drawn in different calls of the sampler."""
    long, short = call("a" * 80), call("b")
    policy = Letters()
    replies = [
        {"?": asking, f"?{asking}{result(told)}": "6"} for asking, told in ((long, f"[{'a' * 80}]"), (short, "[b]"))
    ]
    params = SamplingParams(max_tokens=120, turns=2, tool_tokens=120)
    policy.context_length = 1 + params.most_tokens
    [first, second], sampler, _ = talk(params, *replies, policy=policy)
    assert first.text == second.text == "6"
    assert len(sampler.asked) == 3
    assert all(len(text) + params.max_tokens <= policy.context_length for text, params, _ in sampler.asked)
    assert longest_prompt(policy.context_length, 9, params) == 1


def test_others_are_drawn_and_handed_out_while_a_query_runs():
    done = threading.Event()

    class Slow(Tool):
        def query(self, database, sql):
            assert done.wait(20), "nothing was handed out while the query ran"
            return super().query(database, sql)

    def texts():
        script = Script({"a": call("a"), "b": "6", f"a{call('a')}{result('[a]')}": "5"})
        fake: Any = Letters()
        tool: Any = Slow()
        for index, responses in Conversations(fake, script, tool, ROOMY).stream([PROBLEM] * 2, [[97], [98]], [1, 2]):
            yield index, responses[0].text
            done.set()

    assert list(texts()) == [(1, "6"), (0, "5")]


def test_a_failing_tool_stops_everything_at_once():
    class Broken(Tool):
        def query(self, database, sql):
            raise SettingsError("no file")

    with pytest.raises(SettingsError, match="no file"):
        talk(ROOMY, {"?": call("a")}, tool=Broken())


# Judging -----------------------------------------------------------------------------------------------------------


class Judge:
    """Counts how a text ends, and pays for calls if asked to."""

    def __init__(self, *, pays: bool) -> None:
        self.pays, self.seen, self.tool = pays, [], Tool()

    def pays_for_calls(self, problem):
        return self.pays

    def verify(self, items):
        self.seen += [text for _, text in items]
        return [Verdict(Outcome.CORRECT, 1.0)] * len(items)


@pytest.mark.parametrize("pays", [False, True])
def test_the_last_turn_is_judged_alone(pays):
    good, plain = call('{"arguments": {"sql": "SELECT 1 -- ```sql SELECT 6```"}}'), call("SELECT 1")
    later = {f"?{good}{result('[SELECT 1 -- ```sql SELECT 6```]')}": "6", f"?{plain}{result('[SELECT 1]')}": "5"}
    script, judge = Script({"?": good, **later}, {"?": plain}, {"?": "4"}), Judge(pays=pays)
    fake: Any = Letters()
    judge_: Any = judge
    items = [Prompted(PROBLEM, [ord("?")])]
    [group] = sample_groups(fake, script, judge_, items, replace(ROOMY, n=3), 0, "train")
    paid = '<tool_call>{"arguments": {"sql": ""}}</tool_call>\n'
    assert judge.seen == [paid * pays + "6", "5", "4"]
    assert [rollout.text for rollout in group.rollouts] == ["6", "5", "4"]
    assert [bool(rollout.transcript) for rollout in group.rollouts] == [True, True, False]
    again = group_from_json(items[0], rollouts_as_json(group))
    assert list(map(plainly, again.rollouts)) == list(map(plainly, group.rollouts))
    lengths = [len(saved) for saved in rollouts_as_json(group)]
    assert lengths == [10, 10, 7]  # what did not call is stored as before


def plainly(rollout: Rollout) -> tuple[Any, ...]:
    one = rollout.completion
    lists = [list(values) for values in (one.token_ids, one.logprobs, one.written or ())]
    return *lists, one.finish_reason, one.failed_calls, rollout.text, rollout.verdict, rollout.transcript


def test_a_call_is_paid_by_the_reward_of_the_paper(tmp_path):
    with sqlite3.connect(tmp_path / "db.sqlite") as connection:
        connection.execute("CREATE TABLE item (price)")
        connection.execute("INSERT INTO item VALUES (7)")
    connection.close()
    gold = "SELECT price FROM item"
    problem = Problem("p", "?", gold, "sql", {"db": str(tmp_path / "db.sqlite")})
    json_call, read = call(f'{{"arguments": {{"sql": "{gold}"}}}}'), result("price\n7\n(1 rows)")
    answer, wrong = f"```sql\n{gold}\n```", "```sql\nSELECT 1 WHERE 0\n```"
    script = Script(
        {"?": json_call, f"?{json_call}{read}": answer, f"?{call(gold)}{read}": answer},
        {"?": call(gold)},
        {"?": answer},
        {"?": wrong},
    )
    fake: Any = Letters()
    with Verifiers({"sql": {"reward": "paper", "workers": 1}}) as verifiers:
        items = [Prompted(problem, [ord("?")])]
        [group] = sample_groups(fake, script, verifiers, items, replace(ROOMY, n=4), 0, "train")
    assert [rollout.reward for rollout in group.rollouts] == pytest.approx([1.2, 1.0, 1.0, 0.0])
    assert [rollout.completion.failed_calls for rollout in group.rollouts] == [0] * 4


def test_settings_that_cannot_work_are_refused():
    fake: Any = Letters()
    with pytest.raises(SettingsError, match=r"none of 1 problem has a database"):
        check_tool(fake, [replace(PROBLEM, meta={})], ROOMY)
    check_tool(fake, [replace(PROBLEM, meta={}), PROBLEM], ROOMY)
    check_tool(fake, [replace(PROBLEM, meta={})], replace(ROOMY, turns=1))
    marks = len(result(" …"))
    with pytest.raises(SettingsError, match=f"tool_tokens is {marks}, but the marks around a result take {marks} tok"):
        check_tool(fake, [PROBLEM], replace(ROOMY, tool_tokens=marks))
    check_tool(fake, [PROBLEM], replace(ROOMY, tool_tokens=marks + 1))


# With the built-in sampler -----------------------------------------------------------------------------------------


TEXTS = ("ab abc abd", "é ü ab", "acb cab  bac", "日本 ab")


def bytes_policy():
    policy = new_policy(replace(TINY, tokenizer="bpe", vocab_size=270), TEXTS, 0)
    randomise(policy.model, 0)
    return policy


@pytest.fixture
def short_marks(monkeypatch):
    """Marks that random tokens contain often."""
    for name, text in {"OPENING": "a", "CLOSING": "b", "_BEFORE": "(", "_AFTER": ")", "_CUT": "~"}.items():
        monkeypatch.setattr(module, name, text)


def alone(policy, prompt, key, number, params):
    """The oracle: each turn of one response, drawn by itself with the room that is left."""
    tokens, written, own = [], [], 0
    for turn in range(1, params.turns + 1):
        stop = () if turn == params.turns else ("b",)
        drawn = replace(params, turns=1, stop=stop, max_tokens=params.max_tokens - own)
        if turn == 1:
            one = HFSampler(policy).sample([prompt], drawn, [key])[0][number]
        else:
            [[one]] = HFSampler(policy).sample(
                [[*prompt, *tokens]], replace(drawn, n=1), [derive_key(key, number, "turn", turn)]
            )
        tokens, written = [*tokens, *one.token_ids], [*written, *[True] * len(one.token_ids)]
        own += len(one.token_ids)
        text = policy.decode(one.token_ids)
        if turn == params.turns or "b" not in text or own == params.max_tokens:
            break
        query = query_of(text)
        body = policy.encode_foreign(module._NO_QUERY if query is None else Tool().query("", query))
        read = [*policy.encode_foreign("("), *body, *policy.encode_foreign(")")]
        if len(read) > params.tool_tokens:
            room = params.tool_tokens - len(policy.encode_foreign("(")) - len(policy.encode_foreign("~)"))
            read = [*policy.encode_foreign("("), *body[:room], *policy.encode_foreign("~)")]
        tokens, written = [*tokens, *read], [*written, *[False] * len(read)]
    return tokens, written


@pytest.mark.parametrize("rows", [3, 64])
def test_batched_turns_are_those_of_each_response_alone(rows, short_marks):
    policy, params = bytes_policy(), SamplingParams(12, max_tokens=20, turns=3, tool_tokens=8)
    prompts, keys = [policy.encode_response(text)[:-1] for text in ("ab", "cab é", "ü")], [1, 2, 3]
    tool: Any = Tool()
    found = dict(Conversations(policy, HFSampler(policy, rows), tool, params).stream([PROBLEM] * 3, prompts, keys))
    calls = Counter[int]()
    for index, prompt in enumerate(prompts):
        for number, response in enumerate(found[index]):
            completion = response.completion
            tokens, written = alone(policy, prompt, keys[index], number, params)
            assert list(completion.token_ids) == tokens
            assert list(completion.written or [True] * len(tokens)) == written
            calls[completion.calls] += 1
            assert completion.length <= params.max_tokens and len(tokens) <= params.most_tokens
            assert response.transcript == (policy.decode(tokens) if completion.calls else "")
            # the trainer's own forward pass over the whole response gives the same log-probabilities
            [exact] = policy.response_logprobs([Tokens(prompt, tokens)], 1.0, 10_000)
            kept = [value * own for value, own in zip(exact, written, strict=True)]
            assert list(completion.logprobs) == pytest.approx(kept, abs=1e-4)
    assert min(calls[number] for number in (0, 1, 2)) >= 2, calls


def test_a_sampler_alone_does_not_draw_several_turns_in_silence():
    with pytest.raises(ValueError, match="draws single turns"):
        HFSampler(bytes_policy()).sample([[5]], ROOMY, [1])


def test_special_tokens_in_a_result_are_text():
    policy = bytes_policy()
    ids = module._Results(policy, 500).ids("a <eos> b <pad>\udcff")
    assert not set(ids) & {policy.tokenizer.eos_token_id, policy.tokenizer.pad_token_id}
    assert policy.decode(ids) == result("a <eos> b <pad>?")
    assert policy.tokenizer.eos_token_id in policy.tokenizer("a <eos> b")["input_ids"]  # what would happen otherwise
