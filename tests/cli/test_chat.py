"""`dph chat` with a tiny model whose answers are known: which model, which template, which verdicts."""

import io
import shutil
import sys

import pytest

from complaints import complaint, run
from dph.cli.main import main, parse
from dph.config import ChatConfig
from dph.models.policy import Policy
from dph.runs.models import FoundModel, find_model
from dph.stages.train import train
from helpers import base_run, presampled, tiny_policy, train_config

TOY = ["--task.name", "toy", "--rollout.max-tokens", "4"]
TEMPLATE = "{% for m in messages %}{{ ' 1' if m['role'] == 'user' else ' 2' }} {{ m['content'] }}{% endfor %}"
"""Marks turns of the user by 1, and those of the model by 2."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of `dph train` on the toy task, of two steps so small that the model answers as the base does."""
    settings = {"checkpoint_every": 1, "optim": {"lr": 1e-9}}
    return train(train_config(tmp_path_factory.mktemp("chat") / "run", settings=settings))


def said(capsys, *words):
    """Standard output of a conversation."""
    main(["chat", *map(str, words)])
    return capsys.readouterr().out


# Which model --------------------------------------------------------------------------------------------------------


def test_the_model_that_a_path_means(trained, tmp_path, monkeypatch):
    newest = trained / "checkpoints" / "step-00000002"
    assert find_model(str(trained)) == FoundModel(str(trained / "model"), trained)
    for name in (trained / "model", newest, newest / "model"):
        model = name if name.name == "model" else name / "model"
        assert find_model(str(name)) == FoundModel(str(model), trained)
    assert find_model("HuggingFaceTB/SmolLM2-135M") == FoundModel("HuggingFaceTB/SmolLM2-135M")
    assert find_model(str(presampled())) == FoundModel(str(base_run() / "model"), presampled())
    shutil.copytree(trained / "model", tmp_path / "model")
    assert find_model(str(tmp_path / "model")) == FoundModel(str(tmp_path / "model"))
    monkeypatch.chdir(trained)
    found = find_model("model")
    assert found.model == "model" and found.run == trained.resolve()


def test_an_unfinished_run_has_its_newest_checkpoint(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run", ignore=lambda folder, names: ["model"] if folder == str(trained) else [])
    newest = tmp_path / "run" / "checkpoints" / "step-00000002" / "model"
    assert find_model(str(tmp_path / "run")) == FoundModel(str(newest), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(Exception, match="of `dph train` has no model; name a run of sft or train"):
        find_model(str(tmp_path / "run"))


def test_the_runs_settings_are_below_those_of_the_command_line(trained):
    config, _ = parse("chat", [str(trained)])
    assert (config.task.name, config.rollout.max_tokens, config.samples) == ("toy", 4, 1)
    assert config.model.path == str(trained / "model")
    changed, _ = parse("chat", [str(trained), "--temperature", "0", "--task.split", "easy", "--samples", "3"])
    assert (changed.rollout.temperature, changed.task.split, changed.samples) == (0, "easy", 3)
    assert changed.rollout.max_tokens == 4
    rows, _ = parse("chat", [str(base_run())])  # supervised on a file of rows
    assert rows == ChatConfig(model=rows.model) and rows.model.path == str(base_run() / "model")


# What it says -------------------------------------------------------------------------------------------------------


def test_a_problem_by_its_id_has_verdicts_and_its_answer(trained, capsys):
    assert said(capsys, trained, "--problem", "train/1", "--temperature", "0").split("\n\n") == [
        "train/1: easy 1",
        "correct, reward 1, 2 tokens\nyes",
        "the task's answer: yes",
        "",
    ]


def test_a_problem_by_its_text_is_judged_in_every_sample(trained, capsys):
    paragraphs = said(capsys, trained, "--ask", "hard 0", "--samples", "8").split("\n\n")
    assert paragraphs[0] == "train/0: hard 0" and len(paragraphs) == 11
    answers = [paragraph.split("\n") for paragraph in paragraphs[1:9]]
    verdicts = [head.split("] ")[1].split(",")[0] for head, _ in answers]
    assert [head.split("]")[0] for head, _ in answers] == [f"[{i}/8" for i in range(1, 9)]
    assert verdicts == ["correct" if text == "no" else "wrong" for _, text in answers]  # the task's answer is no
    assert set(verdicts) == {"correct", "wrong"}  # the model answers "hard" prompts evenly
    assert paragraphs[9] == f"{verdicts.count('correct')} of 8 correct; the task's answer: no"


def test_any_other_question_is_answered_without_a_verdict(trained, capsys):
    assert said(capsys, trained, "--ask", "easy 3 4", "--temperature", "0") == "yes\n\n"


def test_lines_of_standard_input_are_questions(trained, capsys, monkeypatch):
    lines = "train/1\n\neasy 3 4\n" + "easy 1 " * 40 + "\n/new\n/exit\neasy 5 6\n/quit\nhard 0\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    main(["chat", str(trained), "--temperature", "0"])
    out, err = capsys.readouterr()
    assert out.split("\n\n") == [
        *("train/1: easy 1", "correct, reward 1, 2 tokens\nyes", "the task's answer: yes"),
        *("yes", "yes", ""),
    ]
    assert "answers to problems of toy are judged: ask one by its id (train/0, train/1, train/2 …)" in err
    assert "/exit is no command and was not asked: /new begins anew, /quit ends" in err
    assert "no problem has a prompt of at most" in err  # the long question; the next one is answered


def test_a_conversation_goes_through_the_chat_template(tmp_path, capsys, monkeypatch):
    policy = tiny_policy()
    policy.tokenizer.chat_template = TEMPLATE
    policy.save(tmp_path)
    asked = []
    encode = Policy.encode_prompt

    def encoded(self, prompt):
        ids = encode(self, prompt)
        asked.append(self.decode(ids).split())
        return ids

    monkeypatch.setattr(Policy, "encode_prompt", encoded)
    monkeypatch.setattr(sys, "stdin", io.StringIO("3\nyes no\n/new\n5\n"))
    first, _, _, _ = said(capsys, tmp_path, "--rollout.max-tokens", "3", "--temperature", "0").split("\n\n")
    answer = first.removeprefix("cut off after 3 tokens\n").split()
    assert asked[0] == ["1", "3"] and asked[-1] == ["1", "5"]
    assert asked[1] == ["1", "3", "2", *answer, "1", "yes", "no"]


def test_seeds(trained, capsys):
    words = [trained, "--ask", "hard 0", "--samples", "8"]
    first = said(capsys, *words)
    assert said(capsys, *words) == first
    assert said(capsys, *words, "--seed", "1") != first


def test_what_a_terminal_would_obey_is_not_printed(trained, capsys, monkeypatch):
    monkeypatch.setattr(Policy, "decode", lambda *_: "a\x1b]0;title\x07\n\tb")
    assert (
        said(capsys, trained, "--ask", "easy 3 4")
        == "a\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}\n\tb\n\n"
    )


# Mistakes -----------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(trained, tmp_path, capsys):
    model = trained / "model"
    message = complaint(capsys, "chat", trained, "--problem", "train/99")
    assert message.startswith("the split 'train' has no problem 'train/99'; its ids are like train/0, train/1")
    shutil.copytree(model, tmp_path / "model")
    message = complaint(capsys, "chat", tmp_path / "model", "--problem", "1")
    assert message == "no task was named, so there is no problem to ask; name a run, or add --task NAME"
    assert "no model was named" in complaint(capsys, "chat", "--ask", "x")
    assert "there is no model directory ./nothing" in complaint(capsys, "chat", "./nothing")


def test_a_task_that_is_gone_leaves_the_conversation(trained, tmp_path, capsys):
    words = ["--task.name", "records", "--task.options", "path", tmp_path / "gone.jsonl"]
    status, err = run(capsys, "chat", trained, *words, "--ask", "easy 1")
    assert status == 0 and f"answers are not judged: records: there is no file or folder {tmp_path}" in err
    assert "there is no file or folder" in complaint(capsys, "chat", trained, *words, "--problem", "1")


def test_its_help_lists_its_flags(capsys):
    with pytest.raises(SystemExit):
        main(["chat", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--samples" in text and "--ask" in text
