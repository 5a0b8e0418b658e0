"""The model card that a run writes beside its model, and `dph push`, against a hub that this file serves."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest
import yaml

from complaints import complaint, run
from dph.cli.main import parse
from dph.models.card import base_of
from dph.runs.directory import RunDir
from dph.stages.train import train
from helpers import base_run, presampled, train_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of `dph train` on the toy task with a monitor."""
    settings = {"monitor": {"every": 2, "limit": 4, "n": 2}}
    return train(train_config(tmp_path_factory.mktemp("push") / "js", "dph_js", settings))


def card_of(folder):
    """Metadata and text of a card."""
    empty, metadata, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(metadata), text


def evaluation(capsys, model, out):
    words = ["eval", "--model.path", model, "--task.name", "toy", "--rollout.n", "2", "--rollout.max-tokens", "4"]
    status, said = run(capsys, *words, "--task.limit", "4", "--out", out)
    assert status == 0, said


# The card -----------------------------------------------------------------------------------------------------------


def test_a_trained_model_has_a_card_beside_its_weights(trained):
    metadata, text = card_of(trained / "model")
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["dph-rl", "rlvr", "dph_js"],
    }
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    facts = {row[0]: row[1] for row in rows if len(row) == 2}
    shares = {row[2]: row[3] for row in rows if len(row) == 6}
    config = RunDir.open(trained, "train").settings()
    assert facts["base"] == "sft" and facts["data"].startswith("toy train")  # the folder of the base model's run
    assert float(facts["optim.lr"]) == config["optim"]["lr"] and facts["rehearsal.rows"] == "6"
    assert facts["torch"] == RunDir.open(trained, "train").manifest["versions"]["torch"]
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert shares["greedy"] == f"{100 * last['eval/greedy']:.1f}" and "After step 2," in text
    assert (trained / "config.toml").read_text() in text


def test_a_supervised_model_has_one_too():
    metadata, text = card_of(base_run() / "model")
    assert metadata["tags"] == ["dph-rl", "rlvr", "sft"]
    assert "Supervised training of a model made from scratch" in text and "data.jsonl" in text


def test_the_command_is_that_of_the_first_start(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/dph", "train", "--preset", "grpo", "--out", "a b"])
    out = train(train_config(tmp_path / "run", settings={"steps": 1}))
    _, text = card_of(out / "model")
    assert "```sh\ndph train --preset grpo --out 'a b'\n```" in text


def test_licence_and_origin_are_passed_on_from_card_to_card(tmp_path):
    (tmp_path / "base" / "model").mkdir(parents=True)
    (tmp_path / "base" / "model" / "README.md").write_text("---\nlicense: mit\nbase_model: a/b\n---\ntext", "utf-8")
    assert base_of(str(tmp_path / "base" / "model")) == ("base", "a/b", "mit")
    assert base_of("meta-llama/Llama-3.2-1B")[1] == "meta-llama/Llama-3.2-1B"
    for broken in ("no front matter", "---\n[\n---\n", "---\njust text\n---\n"):
        (tmp_path / "base" / "model" / "README.md").write_text(broken, "utf-8")
        assert base_of(str(tmp_path / "base" / "model"))[2] == ""


# What is published --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", ["[" * 100_000, "license: !!timestamp x", "license: !!int ''", "license: !!bool x"])
def test_a_card_that_no_reader_of_yaml_expects_counts_as_none(tmp_path, facts):
    (tmp_path / "README.md").write_text(f"---\n{facts}\n---\ntext\n")
    assert base_of(str(tmp_path)) == (tmp_path.name, "", "")


def test_what_would_be_published_can_be_looked_at(trained, tmp_path, capsys):
    evaluation(capsys, trained / "model", trained.parent / "eval" / "js")  # found by its place
    evaluation(capsys, base_run() / "model", trained.parent / "eval" / "base")  # of another model
    status, said = run(capsys, "push", trained, "--out", tmp_path / "out", "--licence", "apache-2.0")
    assert status == 0, said
    weights = {file.name: file.read_bytes() for file in (trained / "model").iterdir() if file.name != "README.md"}
    assert {f.name: f.read_bytes() for f in (tmp_path / "out").iterdir() if f.name != "README.md"} == weights
    metadata, text = card_of(tmp_path / "out")
    scores = json.loads((trained.parent / "eval" / "js" / "scores.json").read_text())["splits"]["test"]["metrics"]
    assert metadata["license"] == "apache-2.0"
    [result] = metadata["model-index"][0]["results"]
    assert result["dataset"] == {"type": "toy", "name": "toy (test)", "split": "test"}
    assert result["metrics"] == [
        {"type": name, "value": round(scores[name]["mean"], 4)} for name in ("greedy", "pass@1", "pass@2")
    ]
    assert f"| test | 4 | greedy | {100 * scores['greedy']['mean']:.1f} |" in text
    assert "exists already" in complaint(capsys, "push", trained, "--out", tmp_path / "out")


class Hub(BaseHTTPRequestHandler):
    """The requests of a hub that publishing needs, answered as the real one does."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.path, self.headers["authorization"], body))  # type: ignore[attr-defined]
        here = f"http://{self.headers['host']}/me/js"
        if self.path.endswith("/preupload/main"):
            files = [file["path"] for file in json.loads(body)["files"]]
            self.answer({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in files]})
        elif self.path.endswith("/commit/main"):
            self.answer({"commitUrl": f"{here}/commit/a", "commitOid": "a" * 40, "success": True})
        else:
            self.answer({"url": here, "name": "me/js"})

    def answer(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        """Requests are not printed."""


KILLED = """
import os, shutil, sys
from dph.cli.main import main
shutil.copy2 = lambda *_: os.kill(os.getpid(), 9)
main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")
def test_a_killed_push_leaves_nothing_after_the_next(trained, tmp_path, capsys):
    words = ["push", str(trained), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True)
    assert done.returncode == -9 and [path.name[:9] for path in tmp_path.iterdir()] == [".out.new."], done.stderr
    assert run(capsys, *words)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_out_of_the_run_is_not_published(tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(base_run(), path)
    (path / "model" / "inside").symlink_to(path / "config.toml")
    assert run(capsys, "push", path, "--out", tmp_path / "first")[0] == 0
    (tmp_path / "secret").write_text("mine")
    (path / "model" / "notes").symlink_to(tmp_path / "secret")
    assert "notes is a link out of" in complaint(capsys, "push", path, "--out", tmp_path / "second")
    assert not (tmp_path / "second").exists()


@pytest.fixture
def hub(monkeypatch):
    """Requests that a hub on this machine was asked, with a token."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api = huggingface_hub.HfApi
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api(endpoint=endpoint))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server.asked  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_and_its_card_arrive_in_one_commit(hub, trained, capsys):
    status, said = run(capsys, "push", trained, "me/js", "--private")
    assert status == 0 and "files as me/js" in said
    paths = [path for path, _, _ in hub]
    assert paths[0] == "/api/repos/create" and [p for p in paths if p.endswith("/commit/main")] == paths[-1:]
    assert {"visibility": "private", "private": True}.items() & json.loads(hub[0][2]).items()  # by version
    assert {token for _, token, _ in hub} == {"Bearer hf_secret"}
    lines = [json.loads(line) for line in hub[-1][2].splitlines()]
    sent = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
    }
    files = {file.name: file.read_bytes() for file in (trained / "model").iterdir()}
    assert sent.keys() == files.keys()
    assert {name for name in files if sent[name] != files[name]} <= {"README.md"}  # which may have scores by now
    assert sent["README.md"].startswith(b"---\nlibrary_name: transformers\n")


# Mistakes -----------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(trained, tmp_path, capsys, monkeypatch):
    assert "needs a run and a repository: dph push RUN OWNER/NAME" in complaint(capsys, "push", trained)
    assert "is not a run of `dph sft` or `dph train`" in complaint(capsys, "push", presampled(), "me/js")
    assert "is not a run of" in complaint(capsys, "push", tmp_path, "me/js")
    evaluation(capsys, base_run() / "model", tmp_path / "base")
    message = complaint(capsys, "push", trained, "me/js", "--evals", tmp_path / "base")
    assert message.startswith(f"{tmp_path / 'base'} ") and "another model" in message
    assert "not a finished run of `dph eval`" in complaint(capsys, "push", trained, "me/js", "--evals", trained)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert complaint(capsys, "push", trained, "me/js").startswith("publishing needs a token of the hub: run `hf auth")


def test_without_network_nothing_is_published(trained, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")  # the tests are offline
    message = complaint(capsys, "push", trained, "me/js")
    assert message.startswith("cannot publish 'me/js' (") and "token and network" in message


def test_words_of_the_command():
    config, _ = parse("push", ["runs/js", "me/js", "--private"])
    assert (config.run, config.repo, config.private) == ("runs/js", "me/js", True)
    assert parse("push", ["runs/js", "--out", "x"])[0].repo == ""


def test_a_manifest_nested_too_deeply_is_one_sentence(tmp_path, capsys):
    (tmp_path / "config.toml").touch()
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    for words in (["push", tmp_path, "a/b"], ["interpolate", tmp_path, "--out", tmp_path / "out"]):
        assert f"{tmp_path / 'manifest.json'} is damaged (it is nested too" in complaint(capsys, *words)
