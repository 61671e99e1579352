"""inspect's logs as runs, and runs as inspect's logs."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.cassette import Tape, read_cassette
from harness.interop.archive import Archive
from harness.records import BashReply, ModelReply, Usage
from harness.runfile import read_run
from tests import import_fixtures
from tests.commands import Commands

FIXTURES = Path(__file__).parent / "data" / "imports" / "inspect"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for path in FIXTURES.iterdir():
        shutil.copy(path, tmp_path)
    return Commands(tmp_path, monkeypatch)


def taken(run: Commands, path: str = "log.eval", *more: str, name: str = "r") -> dict[str, Any]:
    """Import; the object that `--json` prints."""
    result = run("import", "--from", "inspect", path, "--run", name, "--json", *more)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def tape(run: Commands, task_id: str, epoch: int = 1, name: str = "r") -> Tape:
    entry = read_run(run.store, name).entry(task_id, epoch)
    assert entry is not None
    assert entry.cassette is not None
    return read_cassette(run.store, entry.cassette, task_id)


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {sample["task_id"]: sample["verdict"] for sample in report["samples"]}


def test_a_log_comes_over_with_all_its_ends(run: Commands) -> None:
    report = taken(run)
    assert verdicts(report) == {
        "t-a": "right",
        "t-b": "right",
        "u-a": "error",
        "u-b": "error",
        "v-b": "no_answer",
    }
    assert report["metrics"]["num"] == 10
    assert report["imported"]["theirs"] == {"mean_acc": 1.0, "num": 8}
    told = {(d["task_id"], d["theirs"], d["ours"]) for d in report["imported"]["differences"]}
    assert told == {
        ("u-a", None, "error"),
        ("u-b", "right", "error"),
        ("v-b", "right", "no_answer"),
    }
    assert "inspect tried it 2 times; this is the last" in run("show", "r", "u-a").stdout
    for command in (("verify",), ("score", "r"), ("replay", "r"), ("diff", "r", "r")):
        run(*command)


def test_what_was_kept_exactly_is_taken_exactly(run: Commands) -> None:
    """Arguments from the raw response, exit codes from sandbox events, texts from attachments."""
    taken(run)
    found = tape(run, "t-a")
    first = found.reply(found.effects[0])
    assert isinstance(first, ModelReply)
    assert first.tool_calls[0].arguments == '{\n "command": "cat /shared_files/numbers.txt"\n}'
    assert first.usage == Usage(100, 9)  # what was read from a cache was read
    assert found.effects[0].meta == {"seconds": 0.5}
    assert found.reply(found.effects[1]) == BashReply(import_fixtures.LONG.encode(), b"", 3)
    request = found.request(2)
    assert request.messages[3]["content"] == import_fixtures.LONG
    assert request.tools[0]["function"]["name"] == "bash"
    assert request.params == {"temperature": 0.5}
    entry = read_run(run.store, "r").entry("t-a", 1)
    assert entry is not None
    assert (entry.seconds, entry.usage) == (7.0, Usage(120, 18))


def test_a_log_that_was_never_finished(run: Commands) -> None:
    report = taken(run, "started.eval")
    assert verdicts(report) == {"t-a": "right", "t-b": "missing"}
    assert report["metrics"]["mean_acc"] == 0.5
    assert any("'started'" in note for note in report["imported"]["notes"])


def test_a_log_in_one_text_of_an_older_kind(run: Commands) -> None:
    """Numbers for ids, no events, NaN for a score, a lone surrogate."""
    report = taken(run, "old.json")
    assert verdicts(report) == {"t-a": "right", "t-b": "right", "u-b": "error"}
    found = tape(run, "t-a")
    assert found.request(0).messages[0]["content"] == "Use the � tool."
    assert found.end is not None
    assert "tool schemas" in (found.end.report or {})["imported"]["missing"]


def task_log(sample: dict[str, Any], steps: Any = (), **scores: Any) -> str:
    """A `.json` log of one sample."""
    head = import_fixtures.header([sample["id"]], epochs=1, status="success", results=None)
    figures = [
        {"name": name, "scored_samples": 1, "metrics": {"accuracy": {"value": value}}}
        for name, value in scores.items()
    ]
    head["results"] = {"completed_samples": 1, "scores": figures}
    head["plan"]["steps"] = [{"solver": "react", "params": params} for params in steps]
    Path("one.json").write_text(json.dumps({**head, "samples": [sample]}))
    return "one.json"


def test_replies_are_as_the_model_gave_them(run: Commands) -> None:
    """`react` takes the call of its submit tool, which may have another name, out of the messages,
    and appends the answer to the text."""
    log = import_fixtures.Log("t-a")
    log.turn("I try.", ("answer_with", {"answer": "11"}))
    log.result("answer_with", "11")
    log.turn("Done.", ("answer_with", {"answer": "12"}))
    log.messages[-1] = {**log.messages[-1], "content": "Done.\n\n12", "tool_calls": []}
    steps = [{"submit": ["answer_with", None, None]}]
    report = taken(run, task_log(log.sample(1, "Done.\n\n12", "C"), steps))
    found = tape(run, "t-a")
    last = found.reply(found.effects[-1])
    assert isinstance(last, ModelReply)
    assert (last.content, last.tool_calls[0].name) == ("Done.", "answer_with")
    assert len(found.effects) == 2  # a submission is no call of a tool
    why = report["imported"]["differences"][0]["why"]
    assert why.endswith("is the text that inspect scored, not the one that was submitted")
    path = task_log(log.sample(1, "12", "C"), steps)  # as with `answer_only`
    assert taken(run, path, name="other")["imported"]["notes"] == []


@pytest.mark.parametrize("kept", ["here", "as an attachment"])
def test_exact_arguments_may_hold_an_address(run: Commands, kept: str) -> None:
    command = {"command": "curl http://a.test/" + "long/" * 30}
    log = import_fixtures.Log("t-a")
    log.turn("I fetch it.", ("bash", command))
    exact = json.dumps(command, indent=1)
    if kept != "here":
        message = log.events[-1]["call"]["response"]["choices"][0]["message"]
        message["tool_calls"][0]["function"]["arguments"] = f"attachment://{import_fixtures.HASH}"
    log.result("bash", "12")
    log.turn("12")
    sample = log.sample(1, "12", "C", attachments={import_fixtures.HASH: exact})
    taken(run, task_log(sample))
    reply = tape(run, "t-a").reply(tape(run, "t-a").effects[0])
    assert isinstance(reply, ModelReply)
    assert reply.tool_calls[0].arguments == exact


def test_an_overflow_need_be_no_message(run: Commands) -> None:
    log = import_fixtures.Log("t-a")
    log.turn("I look.", ("bash", {"command": "ls"}))
    log.result("bash", "numbers.txt")
    log.turn("too long", stop="model_length")
    lost = log.messages.pop()
    sample = log.sample(1, "too long", "I")
    sample["output"]["choices"] = [{"message": lost, "stop_reason": "model_length"}]
    assert verdicts(taken(run, task_log(sample))) == {"t-a": "context_exceeded"}


@pytest.mark.parametrize("kind", ["spans", "calls", "neither"])
def test_exit_codes_of_calls_that_ran_at_once(run: Commands, kind: str) -> None:
    """Sandbox events stand in the order of their ends; only a span tells whose they are."""
    log = import_fixtures.Log("t-a")
    log.turn("Both.", ("bash", {"command": "slow"}), ("bash", {"command": "fast"}))
    for number in range(2):
        id = log.say("tool", "", tool_call_id=f"call_{number}", function="bash")
        if kind != "neither":
            log.events.append({"event": "span_begin", "type": "tool", "span_id": f"s{number}"})
        tool = {"event": "tool", "id": f"call_{number}", "message_id": id}
        log.events.append(tool if kind != "calls" else {**tool, "message_id": None})
    for number in (1, 0):
        ran = {"event": "sandbox", "action": "exec", "result": 3 + number}
        log.events.append(ran if kind == "neither" else {**ran, "span_id": f"s{number}"})
    log.turn("12")
    taken(run, task_log(log.sample(1, "12", "C")))
    found = tape(run, "t-a")
    replies = [found.reply(effect) for effect in found.effects[1:3]]
    codes = [reply.exit_code for reply in replies if isinstance(reply, BashReply)]
    assert codes == ([None, None] if kind == "neither" else [3, 4])


def test_calls_that_were_not_allowed_were_not_run(run: Commands) -> None:
    log = import_fixtures.Log("t-a")
    for name, kind in (("look_up", "approval"), ("look_up", "cancelled"), ("look_up", "unknown")):
        log.turn("I ask.", (name, {"page": 99}))
        log.result(name, "", error={"type": kind, "message": "page not found"})
    log.turn("12")
    taken(run, task_log(log.sample(1, "12", "C")))
    found = tape(run, "t-a")
    assert [type(effect).__name__ for effect in found.effects] == [
        "ModelEffect", "ModelEffect", "ModelEffect", "ToolEffect", "ModelEffect",
    ]  # fmt: skip


def test_the_figure_is_that_of_the_scorer_that_counts(run: Commands) -> None:
    sample = import_fixtures.log_a(1)
    sample["scores"] = {"match": {"value": "C", "answer": "12"}, **sample["scores"]}
    report = taken(run, task_log(sample, match=0.25, gaia_scorer=1.0))
    assert report["imported"]["theirs"] == {"mean_acc": 1.0, "num": 1}


def test_texts_of_tool_schemas_may_be_attachments(run: Commands) -> None:
    sample = import_fixtures.log_a(1)
    for event in sample["events"]:
        for tool in event.get("tools", ()):
            tool["description"] = f"attachment://{import_fixtures.HASH}"
    sample["events"][0]["error"] = None
    taken(run, task_log(sample))
    tools = tape(run, "t-a").request(0).tools
    assert tools[0]["function"]["description"] == import_fixtures.LONG


def test_a_failed_model_call_is_none_beside_the_conversation(run: Commands) -> None:
    log = import_fixtures.Log("t-a")
    log.turn("lost")
    log.messages.pop()["id"] = "lost"
    log.events[-1]["error"] = "overloaded"
    log.turn("12", stop="unknown")
    report = taken(run, task_log(log.sample(1, "12", "C")))
    assert not any("outside" in note for note in report["imported"]["notes"])
    last = tape(run, "t-a").reply(tape(run, "t-a").effects[-1])
    assert isinstance(last, ModelReply)
    assert last.finish_reason is None  # that is what inspect says of a reason that it does not know


def test_zstandard_is_asked_for_by_name(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    refused = run("import", "--from", "inspect", "log.eval", "--run", "r", status=3)
    assert "pip install 'gaia-harness[inspect]'" in refused.stderr
    assert not Path("st").exists()
    taken(run, "started.eval")  # deflate needs nothing


def exported(run: Commands, name: str, *more: str, status: int = 0) -> dict[str, Any]:
    """The members of the log that a run is exported to."""
    run("export", name, "--format", "inspect", "-o", "out.eval", *more, status=status)
    with zipfile.ZipFile("out.eval") as archive:
        assert archive.testzip() is None
        return {info.filename: json.loads(archive.read(info)) for info in archive.infolist()}


def test_an_exported_log_holds_the_run(run: Commands) -> None:
    taken(run)
    members = exported(run, "r")
    header = members["header.json"]
    assert (header["version"], header["status"]) == (2, "success")
    assert header["eval"]["model"] == "none/openai-api/local/toy-model"
    assert header["eval"]["config"]["epochs"] == 2
    figures = header["results"]["scores"][0]["metrics"]
    assert (figures["accuracy"]["value"], figures["mean_acc"]["value"]) == (4 / 6, 0.4)
    sample = members["samples/t-a_epoch_2.json"]
    assert sample["output"]["completion"] == "12"
    assert sample["scores"]["gaia"] == {"value": "C", "answer": "12", "explanation": "right"}
    assert sample["target"] == ""
    assert [m["role"] for m in sample["messages"]] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    events = [event["event"] for event in sample["events"]]
    assert events == ["model", "tool", "sandbox", "model"]
    assert sample["events"][3]["input_refs"] == [[0, 4]]
    failed = members["samples/u-a_epoch_1.json"]
    assert failed["scores"] is None
    assert failed["error"]["message"].startswith("model: RateLimitError")
    assert failed["output"] == {
        "model": "openai-api/local/toy-model", "choices": [], "completion": "",
    }  # fmt: skip
    assert len(members["summaries.json"]) == 10
    assert members["reductions.json"][0]["samples"][0]["value"] == 1.0


def test_targets_are_written_only_if_they_are_given(run: Commands) -> None:
    """The packaged run, whose data set everybody has."""
    root = Path(__file__).parent.parent
    shutil.copytree(root / "cassettes", "demo")
    note = run("export", "demo", "--store", "demo", "--format", "inspect", "-o", "out.eval").stderr
    assert "without targets" in note
    before = Path("out.eval").read_bytes()
    run("export", "demo", "--store", "demo", "--format", "inspect", "-o", "out.eval")
    assert Path("out.eval").read_bytes() == before


def test_a_log_goes_out_and_comes_back(run: Commands) -> None:
    first = taken(run)
    run("export", "r", "--format", "inspect", "-o", "out.eval")
    again = taken(run, "out.eval", name="again")
    assert verdicts(again) == verdicts(first)
    assert [s["answer"] for s in again["samples"]] == [s["answer"] for s in first["samples"]]
    assert again["imported"]["effects"] == first["imported"]["effects"]
    assert again["model"] == first["model"]
    for task in ("t-a", "v-b"):
        old, new = tape(run, task), tape(run, task, name="again")
        assert [old.reply(e) for e in old.effects][:2] == [new.reply(e) for e in new.effects][:2]


def test_what_cannot_be_written_leaves_nothing(run: Commands, tmp_path: Path) -> None:
    taken(run)
    for output, status in (("-", 2), ("st", 2), ("no/such/folder.eval", 3)):
        run("export", "r", "--format", "inspect", "-o", output, status=status)
    entry = read_run(run.store, "r").samples[0]
    assert entry.cassette is not None
    digest = entry.cassette.removeprefix("sha256:")
    (tmp_path / "st/objects/sha256" / digest[:2] / digest[2:]).write_bytes(b"x")
    run("export", "r", "--format", "inspect", "-o", "out.eval", status=1)
    assert not list(tmp_path.glob("*out.eval*"))


def test_of_two_members_of_one_name_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", "new")
    found = Archive(path)
    assert found.read("a") == b"new"
    found.close()
