"""EvalScope folders as runs: what comes over, what is named as missing, what verdicts become."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cassette import BashEffect, BashTape, ModelEffect, Tape, ToolEffect, read_cassette
from harness.interop.conversation import Message, ToolError
from harness.interop.evalscope_rows import bash_reply
from harness.interop.settings_yaml import read_settings
from harness.records import BashReply, ModelReply, ToolReply, Usage
from harness.runfile import RunFile, read_run
from harness.store import Store
from tests import import_fixtures
from tests.commands import Commands
from tests.gaia_folder import write_folder

FIXTURES = Path(__file__).parent / "data" / "imports"
ROWS = [
    {"task_id": task, "Question": question, "Level": level, "Final answer": answer, "file_name": ""}
    for task, (level, question, answer, _) in import_fixtures.TASKS.items()
]
"""The samples as the user's own data set has them, without files."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    shutil.copytree(FIXTURES / "evalscope", tmp_path / "scope")
    return Commands(tmp_path, monkeypatch)


def taken(run: Commands, *more: str, path: str = "scope") -> dict[str, Any]:
    """Import; the object that `--json` prints."""
    result = run("import", "--from", "evalscope", path, "--run", "r", "--json", *more)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def tape(store: Store, task_id: str, epoch: int = 1) -> Tape:
    entry = read_run(store, "r").entry(task_id, epoch)
    assert entry is not None
    assert entry.cassette is not None
    return read_cassette(store, entry.cassette, task_id)


def verdicts(run: RunFile) -> dict[tuple[str, int], str]:
    return {(entry.task_id, entry.epoch): entry.verdict for entry in run.samples}


def test_the_fixtures_are_what_their_script_writes(tmp_path: Path) -> None:
    import_fixtures.main(tmp_path)
    names = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    there = sorted(p.relative_to(FIXTURES) for p in FIXTURES.rglob("*") if p.is_file())
    for folder in ("evalscope", "inspect"):
        mine = [name for name in names if name.parts[0] == folder]
        assert mine == [name for name in there if name.parts[0] == folder]
        for name in mine:
            old, new = (FIXTURES / name).read_bytes(), (tmp_path / name).read_bytes()
            assert name.name == "log.eval" or old == new  # zstd's bytes vary with its version


def test_samples_come_by_task_id_and_each_repeat_is_an_epoch(run: Commands) -> None:
    report = taken(run)
    found = verdicts(read_run(run.store, "r"))
    assert found == {
        (task, epoch): verdict
        for task, verdict in {
            "t-a": "right",
            "t-b": "right",
            "u-a": "right",  # EvalScope's own verdict here is a wrong one, by the fixture
            "u-b": "error",
            "2023_level2[2]": "missing",
            "v-a": "context_exceeded",
            "v-b": "no_answer",
        }.items()
        for epoch in (1, 2)
    }
    assert report["metrics"]["num"] == 14
    assert report["metrics"]["mean_acc"] == 6 / 14
    assert report["imported"]["theirs"] == {"mean_acc": 0.75, "num": 8}
    assert report["imported"]["effects"] == {"model": 30, "bash": 12, "tool": 4}


def test_each_verdict_that_differs_is_explained(run: Commands) -> None:
    report = taken(run)["imported"]
    found = {
        (one["task_id"], one["theirs"], one["ours"]): one["why"] for one in report["differences"]
    }
    assert set(found) == {
        ("u-a", "wrong", "right"),
        ("u-b", "right", "error"),
        ("2023_level2[2]", None, "missing"),
    }
    assert "rule for a list" in found["u-a", "wrong", "right"]
    assert "sandbox: no command was ever run" in found["u-b", "right", "error"]
    assert report["rescored"] == 6
    assert any("no reviews of 2023_level3" in note for note in report["notes"])
    lines = run("import", "--from", "evalscope", "scope", "--run", "again").stdout.splitlines()
    assert (
        sum("u-b epoch" in line and "theirs right (acc 1), ours error" in line for line in lines)
        == 2
    )


def test_effects_replies_and_answers(run: Commands) -> None:
    taken(run)
    found = tape(run.store, "t-a", 2)
    kinds = [type(effect).__name__ for effect in found.effects]
    assert kinds == [
        "ModelEffect",
        "BashEffect",
        "ModelEffect",
        "BashEffect",
        "BashEffect",
        "ModelEffect",
    ]
    first = found.reply(found.effects[0])
    assert isinstance(first, ModelReply)
    assert (first.content, first.finish_reason, first.usage) == (
        "I read it.",
        "tool_calls",
        Usage(100, 7),
    )
    assert first.tool_calls[0].arguments == '{"command":"cat /shared_files/numbers.txt"}'
    assert found.reply(found.effects[1]) == BashReply(b"3\n4\n5\n", b"no end of line", 1)
    assert found.effects[1].request.timeout == 30.0  # type: ignore[union-attr]
    assert found.reply(found.effects[4]) == BashReply()
    assert found.end is not None
    assert (found.end.answer, found.end.status, found.end.replayable) == ("12", "ok", False)
    messages = found.request(5).messages
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert messages[3]["content"].endswith("[exit 1]")  # what the model saw, as it saw it
    sample = found.header.sample
    assert (sample.question, sample.level, sample.file_name) == (
        import_fixtures.TASKS["t-a"][1], 1, "numbers.txt",
    )  # fmt: skip


def test_tools_of_servers_and_reasoning(run: Commands) -> None:
    taken(run)
    found = tape(run.store, "u-a")
    calls = [effect for effect in found.effects if isinstance(effect, ToolEffect)]
    assert [call.request.arguments for call in calls] == [{"page": 7}, {"page": 99}]
    assert found.reply(calls[1]) == ToolReply("there is no page 99", is_error=True)
    first = found.reply(found.effects[0])
    assert (first.content, first.reasoning) == ("I look it up.", "The catalogue has it.")


def test_a_dead_sandbox_an_overflow_and_a_limit_are_no_answers(run: Commands) -> None:
    taken(run)
    dead, full, cut = (tape(run.store, task).end for task in ("u-b", "v-a", "v-b"))
    assert dead is not None
    assert dead.failure is not None
    assert (dead.status, dead.answer, dead.failure.kind) == ("error", None, "sandbox")
    assert full is not None
    assert (full.status, full.answer, full.last_error) == ("ok", None, "context_exceeded")
    assert cut is not None
    assert (cut.status, cut.answer, cut.last_error) == ("ok", None, None)
    stopped = next(e for e in tape(run.store, "v-a").effects if isinstance(e, BashEffect))
    assert stopped.reply is not None
    assert (stopped.reply.timed_out, stopped.reply.exit_code) == (True, None)
    turn = tape(run.store, "v-b").effects[0]
    assert isinstance(turn, ModelEffect)
    assert (turn.meta or {})["lost"] == "arguments"


def test_the_run_says_what_it_is_and_what_it_lacks(run: Commands) -> None:
    taken(run)
    found = read_run(run.store, "r")
    assert found.environment["imported"]["tool"] == "EvalScope"
    assert found.environment["imported"]["version"] == "1.14.1"
    (mark,) = found.marks
    assert mark.startswith("imported from EvalScope 1.14.1; not in it: exact requests, ")
    loop = found.settings.loop
    assert (loop.model, loop.max_steps, loop.params) == ("toy-model", 5, {"temperature": 0.5})
    assert found.settings.sandbox == {"kind": "docker", "image": "toys:1"}
    assert found.dataset.id == "toys"  # of a folder's path only the name
    for command in (("score", "r"), ("replay", "r"), ("show", "r")):
        assert mark in run(*command).stdout
    assert "acc 1" in run("show", "r", "t-a").stdout


def test_every_command_works_on_an_imported_run(run: Commands) -> None:
    taken(run)
    run("verify")
    run("score", "r")
    run("ls")
    run("export", "r", "--format", "jsonl", "-o", "out.jsonl")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert {row["replayable"] for row in rows if row["cassette"]} == {False}
    run("bundle", "r", "-o", "b")
    run("unbundle", "b", "--as", "other")
    run("diff", "r", "other")
    run("rm", "r")
    refused = run("replay", "other", "--on-divergence", "fork", "--as", "x", status=2)
    assert "imported from EvalScope" in refused.stderr


def test_a_replay_gives_answers_and_verdicts_and_says_what_the_loop_would_do(run: Commands) -> None:
    taken(run)
    found = json.loads(run("replay", "r", "--json").stdout)
    assert {sample["identical"] for sample in found["samples"]} == {None}
    assert [s["answer"] for s in found["samples"] if s["task_id"] == "t-a"] == ["12", "12"]
    notes = "\n".join(found["notes"])
    assert "identical" not in notes
    assert "t-a epoch 2: loop: 3 of 3 steps follow" in notes
    assert "v-a epoch 1: loop: 1 of 2 steps follow; step 1: it ran with a timeout of 9 s" in notes
    assert "v-b epoch 1: loop: 1 of 2 steps follow; step 1: arguments were not kept" in notes
    assert json.loads(run("replay", "r", "--json", "--jobs", "2").stdout) == found


def test_truths_are_kept_outside_of_the_store_and_can_be_sealed(
    run: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("harness.sealing.COST", 2)
    taken(run, "--seal-truths")
    score = json.loads(run("score", "r", "--json").stdout)
    assert {s["verdict_source"] for s in score["samples"] if s["task_id"] == "t-a"} == {"scored"}
    store = b"".join(p.read_bytes() for p in (tmp_path / "st").rglob("*") if p.is_file())
    assert b"the left" in store  # the answer given; the truth is nowhere else
    assert b"green, blue" not in store
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "empty"))
    score = json.loads(run("score", "r", "--json").stdout)
    assert {s["verdict_source"] for s in score["samples"] if s["task_id"] == "t-a"} == {"sealed"}


def test_the_users_own_data_set_names_what_is_missing(run: Commands, tmp_path: Path) -> None:
    rows = [
        {"task_id": task, "Question": question, "Level": level, "Final answer": answer,
         "file_name": file}
        for task, (level, question, answer, file) in import_fixtures.TASKS.items()
    ]  # fmt: skip
    write_folder(tmp_path / "own", rows, files={"numbers.txt": b"3\n4\n5\n"})
    taken(run, "--dataset", "own")
    found = read_run(run.store, "r")
    assert verdicts(found)["u-c", 1] == "missing"
    assert found.entry("2023_level2[2]", 1) is None
    assert tape(run.store, "t-a").header.sample.attachment is not None
    run("score", "r", "--dataset", "own")


def test_without_metadata_a_sample_is_found_by_its_question(run: Commands, tmp_path: Path) -> None:
    for path in tmp_path.glob("scope/*/toy-model/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("sample_score", line)["sample_metadata"] = {}
            line["metadata"] = {}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = run("import", "--from", "evalscope", "scope", "--run", "r", status=2)
    assert "it has no task id" in refused.stderr
    write_folder(tmp_path / "own", ROWS)
    taken(run, "--dataset", "own")
    assert verdicts(read_run(run.store, "r"))["t-a", 2] == "right"


def test_names_that_cannot_be_used_are_refused(run: Commands, tmp_path: Path) -> None:
    taken(run)
    before = {p: p.read_bytes() for p in (tmp_path / "st").rglob("*") if p.is_file()}
    for more, told in (
        (("scope", "--run", "r"), "has a run 'r' already"),
        (("scope", "--run", "R"), "has a run 'r' already"),
        (("scope", "--run", "a/b"), "cannot name a run"),
        (("scope/reviews", "--run", "x"), "holds no folder `predictions`"),
        (("scope/configs/task_config.yaml", "--run", "x"), "is a file"),
    ):
        assert told in run("import", "--from", "evalscope", *more, status=2).stderr
    assert before == {p: p.read_bytes() for p in (tmp_path / "st").rglob("*") if p.is_file()}


def test_of_two_models_one_is_named(run: Commands, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "scope/predictions/toy-model", tmp_path / "scope/predictions/b")
    refused = run("import", "--from", "evalscope", "scope", "--run", "r", status=2)
    assert "b, toy-model" in refused.stderr
    taken(run, path="scope/predictions/toy-model")


def test_of_a_row_that_is_there_twice_the_last_counts(run: Commands, tmp_path: Path) -> None:
    path = tmp_path / "scope/predictions/toy-model/gaia_2023_level1.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    first["messages"] = []
    path.write_text(json.dumps(first) + "\n" + path.read_text())
    assert any("is there twice" in note for note in taken(run)["imported"]["notes"])
    assert verdicts(read_run(run.store, "r"))["t-b", 2] == "right"


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every line of a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def calls(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The functions of a line's tool calls."""
    for message in line["messages"]:
        for call in message.get("tool_calls") or ():
            yield call["function"]


def test_what_a_killed_evalscope_left_is_taken_as_far_as_it_goes(
    run: Commands, tmp_path: Path
) -> None:
    """A line that breaks off, no report, a subset that was never begun; a byte order mark."""
    path = tmp_path / "scope/predictions/toy-model/gaia_2023_level1.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()[:-200])
    settings = tmp_path / "scope/configs/task_config.yaml"
    settings.write_bytes(b"\xef\xbb\xbf" + settings.read_bytes())
    shutil.rmtree(tmp_path / "scope/reports")
    (path.parent / "gaia_2023_level3.jsonl").unlink()
    write_folder(tmp_path / "own", ROWS)
    with settings.open("a") as file:
        file.write("resolved_benchmarks:\n  gaia:\n    subset_list:\n")
        file.write("".join(f"    - 2023_level{level}\n" for level in (1, 2, 3)))
    report = taken(run, "--dataset", "own")
    assert any("line 4 breaks off" in note for note in report["imported"]["notes"])
    found = verdicts(read_run(run.store, "r"))
    missing = {key for key, verdict in found.items() if verdict == "missing"}
    lost = {(task, epoch) for task in ("u-c", "v-a", "v-b") for epoch in (1, 2)}
    assert missing == {("t-a", 1), *lost}  # lines come in the order of their end
    run("rm", "r")
    told = taken(run)["imported"]["notes"]
    assert any("not known without --dataset" in note for note in told)


def test_missing_rows_of_a_limited_run_are_named_by_the_data_set(
    run: Commands, tmp_path: Path
) -> None:
    """EvalScope takes the first rows of a subset; those that came tell that these are they."""
    more = {"Question": "More?", "Level": 2, "Final answer": "1", "file_name": ""}
    write_folder(tmp_path / "own", [*ROWS, {"task_id": "u-d", **more}])
    taken(run, "--dataset", "own")
    found = read_run(run.store, "r")
    assert verdicts(found)["u-c", 1] == "missing"
    assert found.entry("u-d", 1) is None
    assert found.entry("2023_level2[2]", 1) is None


def test_arguments_that_were_kept_as_text_are_exact(run: Commands, tmp_path: Path) -> None:
    """And a timeout may be a text: EvalScope takes its number."""

    def change(line: dict[str, Any]) -> None:
        for function in calls(line):
            if function["name"] == "bash":
                function["arguments"] = json.dumps(
                    {**function["arguments"], "timeout": "7"}, indent=1
                )

    rewrite(tmp_path / "scope/predictions/toy-model/gaia_2023_level1.jsonl", change)
    taken(run)
    found = tape(run.store, "t-a")
    first, command = found.reply(found.effects[0]), found.effects[1].request
    assert isinstance(first, ModelReply)
    assert first.tool_calls[0].arguments.startswith('{\n "command"')
    assert isinstance(command, BashTape)
    assert (command.command, command.timeout) == ("cat /shared_files/numbers.txt", 7.0)


def test_a_tool_that_found_nothing_was_run(run: Commands, tmp_path: Path) -> None:
    """Unlike one that there is none of."""

    def change(line: dict[str, Any]) -> None:
        for message in line["messages"]:
            if message.get("error"):
                message["error"]["message"] = message["content"] = "file not found: 99"

    rewrite(tmp_path / "scope/predictions/toy-model/gaia_2023_level2.jsonl", change)
    taken(run)
    found = tape(run.store, "u-a")
    assert [e.request.arguments for e in found.effects if isinstance(e, ToolEffect)] == [
        {"page": 7}, {"page": 99},
    ]  # fmt: skip


def test_of_several_scores_the_main_one_counts(run: Commands, tmp_path: Path) -> None:
    def change(line: dict[str, Any]) -> None:
        score = line["sample_score"]["score"]
        score.update(value={"format": 0.0, **score["value"]}, main_score_name="acc")

    rewrite(tmp_path / "scope/reviews/toy-model/gaia_2023_level1.jsonl", change)
    told = {found["task_id"] for found in taken(run)["imported"]["differences"]}
    assert not told & {"t-a", "t-b"}


def test_the_settings_are_those_of_the_model_and_name_the_split(
    run: Commands, tmp_path: Path
) -> None:
    """Older versions wrote a file per call; the last by name may be of another model."""
    folder = tmp_path / "scope/configs"
    text = (folder / "task_config.yaml").read_text()
    text = text.replace("dataset_id:", "eval_split: test\n    dataset_id:")
    (folder / "task_config_a.yaml").write_text(text + "model_id: toy-model\n")
    (folder / "task_config_b.yaml").write_text(
        text.replace("max_steps: 5", "max_steps: 9") + "model_id: other\n"
    )
    (folder / "task_config.yaml").unlink()
    taken(run)
    found = read_run(run.store, "r")
    assert (found.settings.loop.max_steps, found.dataset.split) == (5, "test")


def test_without_a_target_nothing_is_scored(run: Commands, tmp_path: Path) -> None:
    """The test split, which EvalScope scores against nothing."""
    for number, path in enumerate(sorted(tmp_path.glob("scope/reviews/*/*.jsonl"))):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line["target"] = (None, ["?"])[number % 2]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = taken(run)
    assert report["metrics"]["mean_acc"] is None
    found = verdicts(read_run(run.store, "r"))
    assert (found["t-a", 1], found["u-a", 2], found["u-b", 1]) == ("unscored", "unscored", "error")


@pytest.mark.parametrize(
    ("text", "error", "reply"),
    [
        ("(no output)", None, BashReply()),
        ("a\n", None, BashReply(b"a\n")),
        ("a\n\n[stderr]\nb\n[exit 3]", None, BashReply(b"a\n", b"b", 3)),
        ("[stderr]\nb\n[exit -1]", None, BashReply(b"", b"b", -1)),
        ("a\n[TIMEOUT]", None, BashReply(b"a", b"", None, True)),
        ("[exit 1]", None, BashReply(exit_code=1)),
        ("slow", ToolError("slow", "timeout"), BashReply(exit_code=None, timed_out=True)),
        ("not allowed", ToolError("not allowed", "permission"), None),
    ],
)
def test_results_are_read_as_evalscope_words_them(
    text: str, error: ToolError | None, reply: BashReply | None
) -> None:
    assert bash_reply(Message("tool"), text, error) == reply


def test_settings_are_read_without_a_yaml_library(tmp_path: Path) -> None:
    text = (
        "a: 1\nb:\n  c: 'it''s'\n  d:\n  - x\n  - 2.5\n  e: null\nf:\n- true\n"
        'g: "q\\n"\nlong: one\n  two\nz:\n'
    )
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert read_settings(path) == {
        "a": 1,
        "b": {"c": "it's", "d": ["x", 2.5], "e": None},
        "f": [True],
        "g": "q\n",
        "long": "one",
        "z": None,
    }
