"""One attempt: how a user's loop is found, and how it ends whatever it does."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from harness.agent import react
from harness.attempt import BUILT_IN, attempt, load_callable, source_digest
from harness.errors import (
    DamageError,
    Interrupted,
    LackError,
    LimitError,
    ModelError,
    SandboxError,
    UsageError,
)
from harness.records import (
    BashReply,
    BashRequest,
    Failure,
    Outcome,
    Reply,
    Request,
    Sample,
    Settings,
)
from harness.world import ScriptedWorld, World

SAMPLE = Sample(task_id="t", question="Why?", level=1)
SETTINGS = Settings()


def ends(agent: Any, *replies: Reply) -> Outcome:
    """How an attempt with a scripted world ends."""
    return attempt(agent, SAMPLE, ScriptedWorld(replies), SETTINGS)


# ------------------------------------------------------------------------------------- its answer


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("Paris", "Paris"),
        (" x \n", " x \n"),
        ("", ""),
        (None, None),
        (42, "42"),
        (1.5, "1.5"),
        (True, "true"),
        (["a", 1], "a, 1"),
        (("a", None), "a, null"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_any_json_value_is_an_answer(given: Any, answer: str | None) -> None:
    """A07: turned into text here, so that nothing later sees anything else."""
    outcome = ends(lambda *_: given)
    assert outcome == Outcome(status="ok", answer=answer)
    assert outcome.answer is None or type(outcome.answer) is str


async def forgotten(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that should not have been `async`."""
    return "x"


def yields(sample: Sample, world: World, settings: Settings) -> Iterator[str]:
    """A loop that should not have been a generator."""
    yield "x"


@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        (lambda *_: b"Paris", "bytes"),
        (lambda *_: {1: 2}, "dict"),
        (lambda *_: {"a"}, "set"),
        (lambda *_: object(), "object"),
        (lambda *_: [b"x"], "list"),
        (yields, "generator"),
        (forgotten, "coroutine"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_is_no_json_value_is_the_agent_s_error(agent: Any, kind: str) -> None:
    assert ends(agent) == Outcome(
        status="error", failure=Failure("agent", f"the agent returned a {kind} that is no answer")
    )


# --------------------------------------------------------------------------------- what it raises


class Odd(BaseException):
    """What libraries raise so that no handler keeps it, as asyncio's CancelledError."""


class Silent(Exception):
    """An exception that cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError


def raising(error: BaseException) -> Any:
    def agent(sample: Sample, world: World, settings: Settings) -> str:
        raise error

    return agent


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("no such thing"), "KeyError: 'no such thing'"),
        (ValueError("one\n  two"), "ValueError: one two"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 1000 + " ("),
        (SystemExit(3), "SystemExit: 3"),
        (Silent(), "Silent: (it has no text)"),
        (ExceptionGroup("two", [ValueError(), KeyError()]), "ExceptionGroup: two"),
        (asyncio.CancelledError("late"), "CancelledError: late"),
        (GeneratorExit(), "GeneratorExit: "),
        (Odd("no Exception"), "Odd: no Exception"),
        (BaseExceptionGroup("one", [Odd()]), "BaseExceptionGroup: one"),
        (UsageError("its own"), "UsageError: its own"),
        (DamageError("its own"), "DamageError: its own"),
        (ModelError("its own"), "ModelError: its own"),
    ],
)
def test_an_exception_of_the_agent_s_own_ends_this_sample_only(
    error: BaseException, told: str
) -> None:
    """Whatever its class: the world did not raise it. `sys.exit()` must not end the run."""
    outcome = ends(raising(error))
    assert outcome.status == "error"
    assert outcome.failure is not None
    assert outcome.failure.kind == "agent"
    assert outcome.failure.message.startswith(f"the agent raised {told}")
    assert "\n" not in outcome.failure.message
    assert "(test_attempt.py, line " in outcome.failure.message


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted()])
def test_a_wish_to_stop_passes(error: BaseException) -> None:
    with pytest.raises(type(error)):
        ends(raising(error))


def test_an_error_is_told_with_its_place_in_the_agent_s_code() -> None:
    """The innermost line of the agent's own before the world's."""

    def helper(world: World) -> None:
        world.perform(BashRequest("x"))
        raise KeyError("here")

    def agent(sample: Sample, world: World, settings: Settings) -> None:
        helper(world)

    line = helper.__code__.co_firstlineno + 2
    failure = ends(agent, BashReply()).failure
    assert failure is not None
    assert failure.message == f"the agent raised KeyError: 'here' (test_attempt.py, line {line})"

    def misusing(sample: Sample, world: World, settings: Settings) -> None:
        world.perform("ls")  # type: ignore[arg-type]

    line = misusing.__code__.co_firstlineno + 1
    outcome = attempt(misusing, SAMPLE, ScriptedWorld(lambda r: r.command), SETTINGS)  # type: ignore[union-attr]
    assert outcome.failure is not None
    assert outcome.failure.message.endswith(f"(test_attempt.py, line {line})")

    def mistyping(sample: Sample, world: World, settings: Settings) -> None:
        world.perform(BashRequest(None))  # type: ignore[arg-type]

    line = mistyping.__code__.co_firstlineno + 1
    failure = ends(mistyping).failure
    assert failure is not None
    assert failure.message.endswith(f"must be a str, not NoneType (test_attempt.py, line {line})")


def test_endless_recursion_is_the_agent_s_error() -> None:
    def agent(*args: Any) -> Any:
        return agent(*args)

    failure = ends(agent).failure
    assert failure is not None
    assert "RecursionError" in failure.message


# ------------------------------------------------------------------------- what the world raises


def swallowing(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that answers all the same."""
    try:
        world.perform(BashRequest("x"))
    except Exception:
        return "never mind"
    return "fine"


def rewording(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that raises its own exception for the world's."""
    try:
        world.perform(BashRequest("x"))
    except Exception as error:
        raise RuntimeError("something went wrong") from error
    return "fine"


@pytest.mark.parametrize("agent", [swallowing, rewording])
@pytest.mark.parametrize(
    "error", [SandboxError("gone"), ModelError("401"), LimitError("no tokens left")]
)
def test_an_error_of_the_world_counts_whatever_the_loop_makes_of_it(
    agent: Any, error: SandboxError
) -> None:
    failure = Failure(error.kind, error.message)
    assert ends(agent, error) == Outcome(status="error", failure=failure)
    assert ends(agent, BashReply()).answer == "fine"


@pytest.mark.parametrize("agent", [swallowing, rewording])
@pytest.mark.parametrize("error", [LackError("the disk is full"), DamageError("broken")])
def test_what_is_not_the_sample_s_alone_is_raised(agent: Any, error: LackError) -> None:
    with pytest.raises(type(error)) as caught:
        ends(agent, error)
    assert caught.value is error


# ---------------------------------------------------------------------------------------- threads


def in_a_thread(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that does its work elsewhere, one call at a time."""
    with ThreadPoolExecutor(1) as pool:
        outputs = [pool.submit(world.perform, BashRequest(f"echo {n}")).result() for n in range(3)]
    return b"".join(reply.stdout for reply in outputs).decode()


def test_a_loop_may_use_threads_one_call_at_a_time() -> None:
    assert ends(in_a_thread, BashReply(b"a"), BashReply(b"b"), BashReply(b"c")).answer == "abc"


@pytest.mark.parametrize("swallow", [True, False])
def test_calls_that_overlap_are_refused(swallow: bool) -> None:
    """The second one raises in the thread that makes it; the first is not disturbed."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        inside.set()
        assert go_on.wait(30)
        return BashReply(b"first")

    def agent(sample: Sample, world: World, settings: Settings) -> str:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(world.perform, BashRequest("one"))
            assert inside.wait(30)
            try:
                world.perform(BashRequest("two"))
            except RuntimeError:
                if not swallow:
                    raise
            finally:
                go_on.set()
            return str(first.result().stdout.decode())

    world = ScriptedWorld(slow)
    outcome = attempt(agent, SAMPLE, world, SETTINGS)
    assert world.requests == [BashRequest("one")]
    if swallow:
        assert outcome.answer == "first"
    else:
        assert outcome.failure is not None
        assert "a second perform" in outcome.failure.message


def test_the_world_is_over_when_the_loop_is() -> None:
    """What a thread that was left behind asked before is awaited; it asks for nothing more."""
    inside, go_on = threading.Event(), threading.Event()
    refused: list[str] = []
    threads: list[threading.Thread] = []

    def slow(request: Request) -> Reply:
        inside.set()
        assert go_on.wait(30)
        return BashReply(b"done")

    def left_behind(world: World) -> None:
        world.perform(BashRequest("in flight"))
        try:
            world.perform(BashRequest("too late"))
        except RuntimeError as error:
            refused.append(str(error))

    def agent(sample: Sample, world: World, settings: Settings) -> str:
        threads.append(threading.Thread(target=left_behind, args=(world,)))
        threads[0].start()
        assert inside.wait(30)
        threading.Timer(0.3, go_on.set).start()
        return "x"

    world = ScriptedWorld(slow)
    assert attempt(agent, SAMPLE, world, SETTINGS).answer == "x"
    assert go_on.is_set()
    threads[0].join(30)
    assert world.requests == [BashRequest("in flight")]
    assert refused == ["perform() after the loop has ended"]


def test_a_loop_may_change_the_settings_that_it_was_given() -> None:
    """They are its own: neither the next sample nor the run file sees it."""
    settings = Settings(params={"seed": 1, "extra_body": {"top_k": 1}})

    def agent(sample: Sample, world: World, settings: Settings) -> str:
        settings.params["seed"] += 1
        settings.params["extra_body"]["top_k"] += 1
        return str(settings.params)

    answers = {attempt(agent, SAMPLE, ScriptedWorld([]), settings).answer for _ in range(3)}
    assert answers == {"{'seed': 2, 'extra_body': {'top_k': 2}}"}
    assert settings == Settings(params={"seed": 1, "extra_body": {"top_k": 1}})


# ---------------------------------------------------------------------------------- finding loops


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder of its own; nothing that is imported from it stays."""
    monkeypatch.chdir(tmp_path)
    path, loaded = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


def test_the_built_in_loop() -> None:
    assert load_callable(BUILT_IN, "the agent") is react


def test_the_current_folder_is_importable(here: Path) -> None:
    (here / "mine_a.py").write_text("def agent(sample, world, settings): return 'mine'\n")
    (here / "package_a").mkdir()
    (here / "package_a" / "inner.py").write_text(
        "class Agent:\n    def __call__(s, *a): return 1\n"
    )
    (here / "package_a" / "instance.py").write_text(
        "from package_a.inner import Agent\nagent = Agent()\n"
    )
    before = list(sys.path)
    assert ends(load_callable("mine_a:agent", "the agent")).answer == "mine"
    assert ends(load_callable("package_a.instance:agent", "the agent")).answer == "1"
    assert sys.path[: len(before)] == before


def test_a_neighbour_that_is_imported_when_the_loop_runs(here: Path) -> None:
    (here / "mine_b.py").write_text(
        "def agent(sample, world, settings):\n    import neighbour_b\n    return neighbour_b.X\n"
    )
    (here / "neighbour_b.py").write_text("X = 'found'\n")
    assert ends(load_callable("mine_b:agent", "the agent")).answer == "found"


def test_a_file_in_the_folder_hides_nothing_that_we_import_later(here: Path) -> None:
    (here / "mine_c.py").write_text("def agent(*_): pass\n")
    (here / "colorsys.py").write_text("raise AssertionError('a file of the user')\n")
    sys.modules.pop("colorsys", None)
    load_callable("mine_c:agent", "the agent")
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")


@pytest.mark.parametrize("spec", ["", ":", "agent", "mine:", ":agent", "mine.agent"])
def test_what_is_not_of_the_form(spec: str) -> None:
    with pytest.raises(UsageError, match=r"the scorer .* is not of the form MODULE:NAME") as caught:
        load_callable(spec, "the scorer")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("spec", "told", "hint"),
    [
        (
            "no_such_module:agent",
            "No module named 'no_such_module'",
            "folder that holds no_such_mo",
        ),
        ("mine_d.inner:agent", "No module named 'mine_d.inner'", "folder that holds mine_d.inner"),
        ("mine_d:other", "module mine_d has no callable 'other'", None),
        ("mine_d:number", "module mine_d has no callable 'number'", None),
        ("mine_d:agent:more", "no callable 'agent:more'", None),
        ("broken_d:agent", "SyntaxError", None),
        ("raising_d:agent", "ZeroDivisionError: division by zero", None),
        ("leaving_d:agent", "SystemExit: 7", None),
        ("needing_d:agent", "No module named 'no_such_package_d'", "install no_such_package_d"),
        (".mine_d:agent", "cannot be imported", None),
        ("mine d:agent", "No module named 'mine d'", "folder that holds mine d"),
    ],
)
def test_what_cannot_be_imported_lacks(here: Path, spec: str, told: str, hint: str | None) -> None:
    """Exit status 3, with what is missing; never a traceback or somebody else's exit."""
    (here / "mine_d.py").write_text("number = 1\ndef agent(*_): pass\n")
    (here / "broken_d.py").write_text("def agent(:\n")
    (here / "raising_d.py").write_text("1 / 0\n")
    (here / "leaving_d.py").write_text("import sys\nsys.exit(7)\n")
    (here / "needing_d.py").write_text("import no_such_package_d\n")
    with pytest.raises(LackError) as caught:
        load_callable(spec, "the agent")
    assert caught.value.exit_code == 3
    assert spec in caught.value.message
    assert told in caught.value.message
    assert (caught.value.hint or "").find(hint or "") >= 0
    assert (caught.value.hint is None) is (hint is None)


def test_a_folder_that_is_gone_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load_callable(BUILT_IN, "the agent") is react


def test_a_loop_is_known_by_its_source(here: Path) -> None:
    """The digest of its module's file, so that an edited loop is told from the recorded one."""
    source = b"def agent(*_): pass\n"
    (here / "mine_e.py").write_bytes(source)
    agent = load_callable("mine_e:agent", "the agent")
    assert source_digest(agent) == "sha256:" + sha256(source).hexdigest()
    (here / "mine_e.py").write_bytes(source + b"# changed\n")
    assert source_digest(agent) == "sha256:" + sha256(source + b"# changed\n").hexdigest()
    (here / "mine_e.py").unlink()
    assert source_digest(agent) == ""
    assert source_digest(len) == ""
    assert source_digest(react).startswith("sha256:")
