"""Field reports C01 to C16 and what agents do to sandboxes, in real containers of both images.

Processes are told apart by odd numbers of seconds that they sleep.
"""

from __future__ import annotations

import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from shlex import quote

import pytest

from harness.errors import SandboxError
from harness.live.docker_client import Client
from harness.live.docker_sandbox import DockerSandbox
from harness.live.sandbox import SandboxConfig
from tests.live.conftest import Sandboxes, repeats, running, sample

SOON = 30.0
"""Seconds: far more than anything here needs, far less than what it must not wait for."""


def left(sandbox: DockerSandbox, client: Client, word: str) -> list[str]:
    """Command lines in the container that contain a word."""
    return [line for line in running(sandbox, client) if word in line]


def settled(sandbox: DockerSandbox, client: Client) -> list[str]:
    """What runs in the container once the shells of ended commands, if idle, have left."""
    for _ in range(100):
        found = running(sandbox, client)
        if "bash" not in found:
            break
        time.sleep(0.1)
    return found


def elapsed(began: float) -> float:
    return time.monotonic() - began


# ------------------------------------------------------------------------ timeouts and what is left


def test_c01_timeout_keeps_what_was_written(sandbox: DockerSandbox) -> None:
    began = time.monotonic()
    reply = sandbox.run("echo part; echo err >&2; sleep 999; echo never", 2)
    assert elapsed(began) < SOON
    assert (reply.stdout, reply.stderr) == (b"part\n", b"err\n")
    assert (reply.exit_code, reply.timed_out) == (None, True)
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 7777",
        "setsid sleep 7777; wait",
        "(setsid sleep 7777 &); (setsid bash -c 'sleep 7777 & exec sleep 7777' &); sleep 7777",
        "trap '' TERM INT HUP; sleep 7777 & (trap '' TERM; while :; do sleep 7777; done)",
        "sleep 7777 & kill -STOP $!; kill -STOP $$",
        "exec >/dev/null 2>&1; nohup sleep 7777 & sleep 7777",
        "env -i sleep 7777 & cd /; exec env -i setsid sleep 7777",
        "while :; do (sleep 7777 &) ; sleep 0.1; done",
        "yes 7777 & yes 7777 >&2 & wait",
    ],
)
def test_c02_nothing_of_a_timed_out_command_is_left(
    sandbox: DockerSandbox, docker_client: Client, command: str
) -> None:
    assert sandbox.run("sleep 5555 >/dev/null 2>&1 & sleep 6666 & echo $!", SOON).exit_code == 0
    began = time.monotonic()
    reply = sandbox.run(command, 1)
    assert elapsed(began) < SOON
    assert reply.timed_out
    assert left(sandbox, docker_client, "7777") == []
    # what earlier commands had left in the background is still there, and not stopped
    assert len(left(sandbox, docker_client, "5555")) == 1
    assert len(left(sandbox, docker_client, "6666")) == 1
    stats = sandbox.run("for s in /proc/[0-9]*/stat; do read -r l <$s; echo $l; done", SOON)
    lines = stats.stdout.decode().splitlines()
    assert [line for line in lines if ") T" in line or "(sleep) Z" in line] == []


def test_c02_what_was_stopped_before_stays_stopped(
    sandbox: DockerSandbox, docker_client: Client
) -> None:
    sandbox.run("sleep 6666 & sleep 0.3; kill -STOP $!", SOON)
    assert sandbox.run("sleep 7777", 1).timed_out
    listed = docker_client.top(sandbox.container, ps_args="-eo pid,stat,args")["Processes"]
    assert [line[1][0] for line in listed if line[2] == "sleep 6666"] == ["T"]


@pytest.mark.parametrize(
    "bomb", [":(){ :|:& };:; wait", "f(){ f & f & wait; };f", "while :; do sleep 7777 & done"]
)
def test_c02_fork_bomb_that_times_out(
    sandboxes: Sandboxes, docker_client: Client, image: str, bomb: str
) -> None:
    sandbox = sandboxes(image=image, pids_limit=64)
    sandbox.run("sleep 5555 >/dev/null 2>&1 &", SOON)
    reply = sandbox.run(bomb + "; sleep 7777", 2)
    assert reply.timed_out
    assert settled(sandbox, docker_client) == ["sleep 5555"]
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


_HOG = """
import os, time
while True:
    try:
        if os.fork() == 0:
            os.execlp("sleep", "sleep", "8888")
    except OSError:
        time.sleep(0.001)
"""


@pytest.mark.parametrize("start", ["", "set -m; "], ids=["one group", "a group each"])
def test_c02_process_that_hops_from_number_to_number(
    sandboxes: Sandboxes, docker_client: Client, image: str, start: str
) -> None:
    """A list of processes is out of date before the first of them is killed."""
    for _ in range(repeats(3, 50)):
        sandbox = sandboxes(image=image, pids_limit=20_000)
        command = f"{start}hop() {{ hop & }}; hop; hop; hop; sleep 7777"
        assert sandbox.run(command, 2).timed_out
        time.sleep(0.5)
        assert settled(sandbox, docker_client) == []
        sandbox.close()


def test_fork_bomb_in_the_background_costs_no_sample(
    sandboxes: Sandboxes, docker_client: Client, full_image: str
) -> None:
    """With the process limit used up no command can start; all processes are ended, and told."""
    sandbox = sandboxes(image=full_image, pids_limit=40)
    sandbox.run(f"python3 -c {quote(_HOG)} >/dev/null 2>&1 & sleep 1", SOON)
    began = time.monotonic()
    reply = sandbox.run("echo on", SOON)
    assert (reply.stdout, reply.exit_code) == (b"on\n", 0)
    assert left(sandbox, docker_client, "8888") == []
    assert elapsed(began) < 12  # bash alone would try to fork for 15 seconds
    assert reply.stderr == (
        b"[sandbox] no process could be started before all that were running were ended\n"
    )
    assert sandbox.run("echo still", SOON).stderr == b""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 124", 124),
        ("exit 137", 137),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("exit 255", 255),
        ("false", 1),
        ("no-such-program", 127),
        ("/etc/passwd", 126),
        ("echo 'open", 2),
    ],
)
def test_c03_exit_codes_are_the_commands_own(
    sandbox: DockerSandbox, command: str, code: int
) -> None:
    reply = sandbox.run(command, SOON)
    assert (reply.exit_code, reply.timed_out) == (code, False)
    assert b"[sandbox]" not in reply.stderr


# ------------------------------------------------------------------------------ background children


def test_c04_background_child_neither_hangs_the_call_nor_dies(
    sandbox: DockerSandbox, docker_client: Client
) -> None:
    began = time.monotonic()
    reply = sandbox.run("sleep 6666 & echo hi", SOON)
    assert elapsed(began) < 10
    assert reply.stdout == b"hi\n"
    for _ in range(3):
        began = time.monotonic()
        assert sandbox.run("echo on", SOON).stdout == b"on\n"
        assert elapsed(began) < 10
    assert left(sandbox, docker_client, "6666") == ["sleep 6666"]


def test_c04_shell_stays_while_a_child_holds_its_pipe(
    sandbox: DockerSandbox, docker_client: Client
) -> None:
    """Were it to leave, the engine would hold up the next command until the child ends."""
    assert sandbox.run("sleep 6666 >/dev/null 2>&1 &", SOON).exit_code == 0
    assert settled(sandbox, docker_client) == ["sleep 6666"]  # that child holds nothing
    assert sandbox.run("sleep 4444 &", SOON).exit_code == 0
    assert running(sandbox, docker_client).count("bash") == 1
    assert sandbox.run("kill $(cd /proc; grep -l 4444 [0-9]*/cmdline | cut -d/ -f1)", SOON)
    assert settled(sandbox, docker_client) == ["sleep 6666"]


def test_c04_server_is_used_by_later_commands(sandboxes: Sandboxes, full_image: str) -> None:
    sandbox = sandboxes(image=full_image)
    reply = sandbox.run("echo page >index.html; python3 -m http.server 8000 & echo up", SOON)
    assert reply.stdout == b"up\n"
    fetch = "curl -s --retry 20 --retry-delay 1 --retry-connrefused http://127.0.0.1:8000/"
    for _ in range(2):  # the server logs each request to the stderr of its own command
        reply = sandbox.run(fetch, SOON)
        assert (reply.stdout, reply.stderr, reply.exit_code) == (b"page\n", b"", 0)
    assert sandbox.run("sleep 7777", 1).timed_out
    assert sandbox.run(fetch, SOON).stdout == b"page\n"


def test_c04_later_output_is_in_no_later_reply(sandbox: DockerSandbox) -> None:
    talk = "(for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo late; echo late >&2; done) &"
    assert sandbox.run(f"{talk} echo one", SOON).stdout.startswith(b"one\n")
    for _ in range(4):
        reply = sandbox.run("sleep 0.3; echo two", SOON)
        assert (reply.stdout, reply.stderr) == (b"two\n", b"")
    assert sandbox.run("sleep 7777", 1).stdout == b""


def test_c04_background_flood_does_not_disturb(sandbox: DockerSandbox) -> None:
    """A child that writes without end, on both streams, while nobody reads any more."""
    for _ in range(3):
        assert sandbox.run("yes & yes >&2 & sleep 0.2; exit 7", SOON).exit_code == 7
    for _ in range(3):
        began = time.monotonic()
        assert sandbox.run("echo on", SOON).stdout == b"on\n"
        assert elapsed(began) < SOON


_REFUSING = """
import fcntl, os
for fd in (1, 2):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
while True:
    for fd in (1, 2):
        try:
            os.write(fd, b"x" * 65536)
        except BlockingIOError:
            pass
"""


def test_c04_background_flood_that_does_not_wait(sandboxes: Sandboxes, full_image: str) -> None:
    """Node's programs, for one, make the pipes refuse when they are full: for all who hold them."""
    sandbox = sandboxes(image=full_image)
    for _ in range(repeats(4, 20)):
        reply = sandbox.run(f"python3 -c {quote(_REFUSING)} & sleep 0.5; exit 7", 20)
        assert (reply.exit_code, reply.timed_out) == (7, False)
        sandbox.run("kill $(cd /proc; grep -l BlockingIO [0-9]*/cmdline | cut -d/ -f1)", SOON)


# --------------------------------------------------------------------------------- input and output


@pytest.mark.parametrize("command", ["cat", 'read -r x; echo "[$x]"; exit 0', "cat /dev/stdin"])
def test_c05_standard_input_is_at_its_end(sandbox: DockerSandbox, command: str) -> None:
    reply = sandbox.run(command, SOON)
    assert (reply.exit_code, reply.timed_out) == (0, False)
    assert reply.stdout in (b"", b"[]\n")


def test_c05_python_input(sandboxes: Sandboxes, full_image: str) -> None:
    reply = sandboxes(image=full_image).run("python3 -c 'input()'", SOON)
    assert reply.exit_code == 1
    assert b"EOFError" in reply.stderr


def test_c06_bytes_are_kept(sandbox: DockerSandbox) -> None:
    reply = sandbox.run(r"printf '\xff\xfe ok\0\r\n'; printf '\x80' >&2", SOON)
    assert (reply.stdout, reply.stderr) == (b"\xff\xfe ok\0\r\n", b"\x80")
    every = "".join(f"\\x{byte:02x}" for byte in range(256))
    reply = sandbox.run(f"for i in 1 2 3 4; do printf '{every}'; done", SOON)
    assert reply.stdout == bytes(range(256)) * 4
    assert len(sandbox.run("head -c 100000 /dev/urandom", SOON).stdout) == 100_000


def test_c07_characters_in_pieces(sandbox: DockerSandbox) -> None:
    slow = r"printf '\xf0\x9f'; echo err >&2; sleep 0.3; printf '\x9a'; sleep 0.3; printf '\x80'"
    reply = sandbox.run(slow, SOON)
    assert (reply.stdout.decode(), reply.stderr.decode()) == ("🚀", "err\n")


def test_c08_no_output_is_lost(sandboxes: Sandboxes) -> None:
    """Many short commands, eight at once."""
    several = [sandboxes(of=sample(f"c08-{i}")) for i in range(8)]

    def many(sandbox: DockerSandbox) -> list[bytes]:
        return [sandbox.run("echo hello", SOON).stdout for _ in range(repeats(10, 40))]

    with ThreadPoolExecutor(8) as pool:
        outputs = [output for found in pool.map(many, several) for output in found]
    assert set(outputs) == {b"hello\n"}


def test_c08_calls_of_one_sandbox_are_served_one_by_one(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes()
    command = "n=$(cat n 2>/dev/null || echo 0); sleep 0.5; echo $((n + 1)) >n; cat n"
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: sandbox.run(command, SOON).stdout, range(4)))
    assert sorted(replies) == [b"1\n", b"2\n", b"3\n", b"4\n"]


def test_c09_a_long_quiet_command(sandboxes: Sandboxes) -> None:
    """The time limit of the HTTP client is none of the command's."""
    sandbox = sandboxes()
    sandbox._client.timeout = 3
    reply = sandbox.run("sleep 7; echo ok", 60)
    assert (reply.stdout, reply.timed_out) == (b"ok\n", False)


def test_c10_head_and_tail_of_a_long_output(sandbox: DockerSandbox) -> None:
    reply = sandbox.run("seq 1 200000; seq 5 >&2", SOON)
    whole = b"".join(b"%d\n" % i for i in range(1, 200_001))
    half = SandboxConfig().capture_bytes // 2
    assert reply.stdout == whole[:half] + whole[-half:]
    assert reply.omitted == len(whole) - 2 * half
    assert reply.stderr == b"1\n2\n3\n4\n5\n"


def test_c10_flood_is_bounded_and_counted(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes()
    size = repeats(100, 2000) * 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reply = sandbox.run(f"yes | head -c {size}", 300)
    assert reply.exit_code == 0
    assert reply.omitted == size - (1 << 20)
    assert reply.stdout == b"y\n" * (1 << 19)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kilobytes


def test_c10_the_kept_size_can_be_set(sandboxes: Sandboxes) -> None:
    reply = sandboxes(capture_bytes=10).run("printf 0123456789abcdef; printf xyz >&2", SOON)
    assert (reply.stdout, reply.stderr, reply.omitted) == (b"01234bcdef", b"xyz", 6)


def test_c10_flood_at_the_timeout(sandbox: DockerSandbox) -> None:
    began = time.monotonic()
    reply = sandbox.run("yes", 1)
    assert elapsed(began) < SOON
    assert reply.timed_out
    assert reply.omitted > 0
    assert reply.stdout == b"y\n" * (1 << 19)


def test_c11_control_characters_reach_us_as_they_are(sandbox: DockerSandbox) -> None:
    """What is cleaned away for the model is decided above the sandbox; nothing is lost here."""
    reply = sandbox.run(r"printf '\e[31mx\e[0m'; for i in 1 2 3; do printf '\r%s%%' $i; done", SOON)
    assert reply.stdout == b"\x1b[31mx\x1b[0m\r1%\r2%\r3%"


def test_reopened_standard_streams_are_pipes(sandbox: DockerSandbox) -> None:
    """`>/dev/stdout` must not truncate what was written before, as it does to a file."""
    command = "echo one; echo two >/dev/stdout; echo three | tee /dev/stderr; echo four >&2"
    reply = sandbox.run(command, SOON)
    assert (reply.stdout, reply.stderr) == (b"one\ntwo\nthree\n", b"three\nfour\n")


def test_c16_streams_are_kept_apart(sandbox: DockerSandbox) -> None:
    replies = {
        (reply.stdout, reply.stderr)
        for reply in (
            sandbox.run("for i in $(seq 50); do echo o$i; echo e$i >&2; done", SOON)
            for _ in range(3)
        )
    }
    out, err = ("".join(f"{letter}{i}\n" for i in range(1, 51)).encode() for letter in "oe")
    assert replies == {(out, err)}


# --------------------------------------------------------------------------- state between commands


def test_c15_files_stay_and_shell_state_does_not(sandbox: DockerSandbox) -> None:
    sandbox.run("cd /tmp; export A=1; B=2; set -e; alias x=y; umask 077; echo kept >/tmp/f", SOON)
    reply = sandbox.run('pwd; echo "[$A$B$OLDPWD$-]"; umask; cat /tmp/f', SOON)
    assert reply.stdout == b"/workspace\n[hBc]\n0022\nkept\n"


def test_c15_a_removed_working_folder_comes_back(sandbox: DockerSandbox) -> None:
    assert sandbox.run("echo x >f; rm -rf /workspace", SOON).exit_code == 0
    reply = sandbox.run("pwd; ls -A", SOON)
    assert (reply.stdout, reply.exit_code) == (b"/workspace\n", 0)


@pytest.mark.parametrize("instead", ["echo x >/workspace", "ln -s /nowhere /workspace"])
def test_c15_a_working_folder_that_cannot_come_back(sandbox: DockerSandbox, instead: str) -> None:
    """A command that is run elsewhere is told so, and can put it right."""
    assert sandbox.run(f"rm -rf /workspace; {instead}", SOON).exit_code == 0
    reply = sandbox.run("pwd; echo own >&2; rm -f /workspace; exit 3", SOON)
    assert (reply.stdout, reply.exit_code) == (b"/\n", 3)
    told = b"[sandbox] /workspace is no folder: the command was run in /\n"
    assert reply.stderr == told + b"own\n"
    assert sandbox.run("pwd", SOON).stdout == b"/workspace\n"


def test_nothing_of_ours_is_handed_to_the_command(sandbox: DockerSandbox) -> None:
    reply = sandbox.run("ls /proc/$$/fd; trap; compgen -v | grep -E 'nonce|size|kills'", SOON)
    assert reply.stdout == b"0\n1\n2\n"
    assert sandbox.run("cat /proc/$PPID/cmdline", SOON).stdout == b"bash\0"


# ------------------------------------------------------------------------------------- odd commands


@pytest.mark.parametrize("command", ["", "   ", "\n", "# nothing"])
def test_empty_commands(sandbox: DockerSandbox, command: str) -> None:
    reply = sandbox.run(command, SOON)
    assert (reply.stdout, reply.stderr, reply.exit_code) == (b"", b"", 0)


@pytest.mark.parametrize("length", [131_000, 131_071, 131_072, 200_000, 1_000_000])
def test_long_commands(sandboxes: Sandboxes, length: int) -> None:
    """One argument of a program ends at 128 KiB; a command need not."""
    start = 'echo $0 $#; x="'
    end = '"; echo ${#x}; exit 5'
    text = "x" * (length - len(start) - len(end))
    reply = sandboxes().run(start + text + end, SOON)
    assert reply.stderr == b""
    assert reply.stdout.decode() == f"bash 0\n{len(text)}\n"
    assert reply.exit_code == 5


def test_long_command_reads_no_input(sandboxes: Sandboxes) -> None:
    reply = sandboxes().run("cat; ls /proc/$$/fd; echo '" + "x" * 200_000 + "' | wc -c", SOON)
    assert reply.stdout == b"0\n1\n2\n200001\n"


def test_nul_is_refused_and_harms_nothing(sandbox: DockerSandbox) -> None:
    reply = sandbox.run("echo a\0; touch /tmp/ran", SOON)
    assert reply.exit_code == 126
    assert reply.stderr.startswith(b"[sandbox] not run: ")
    assert sandbox.run("ls /tmp/ran", SOON).exit_code != 0


def test_commands_that_are_no_unicode(sandbox: DockerSandbox) -> None:
    reply = sandbox.run("printf %s '\ud800|\udcff|é|\U0001f680|\x01\x7f\x85\u2028'", SOON)
    surrogates = b"\xed\xa0\x80|\xed\xb3\xbf|"
    assert reply.stdout == surrogates + "é|\U0001f680|\x01\x7f\x85\u2028".encode()


def test_quoting_is_the_commands_own(sandbox: DockerSandbox) -> None:
    reply = sandbox.run("cat <<'E'\n$(id) `x` \\ \" ' %s\nE\nprintf '%s|' a\\\\b \"$#\" '!!'", SOON)
    assert reply.stdout == b"$(id) `x` \\ \" ' %s\na\\b|0|!!|"


# ----------------------------------------------------------------------------- what agents do to it


def test_c13_memory_kill_is_told_from_exit_137(sandboxes: Sandboxes, image: str) -> None:
    sandbox = sandboxes(image=image, memory="64m")
    eat = "head -c 200000000 /dev/zero | tail -c 150000000"
    reply = sandbox.run(eat, 60)
    assert reply.exit_code == 137
    assert reply.stderr.endswith(b"[sandbox] killed: memory limit of 64m (1 process)\n")
    assert reply.stdout == b""
    reply = sandbox.run("exit 137", SOON)
    assert (reply.exit_code, reply.stderr) == (137, b"")
    # a child that is killed while its command goes on, and one that nobody waits for
    reply = sandbox.run(f"bash -c {quote(eat)}; echo $?", 60)
    assert reply.stdout == b"137\n"
    assert b"[sandbox] killed: memory limit of 64m" in reply.stderr
    reply = sandbox.run(f"(bash -c {quote(eat)} >/dev/null 2>&1; sleep 7777); echo never", 5)
    assert reply.timed_out
    assert reply.stderr.endswith(b"[sandbox] killed: memory limit of 64m (1 process)\n")


def test_c13_python_memory_kill(sandboxes: Sandboxes, full_image: str) -> None:
    sandbox = sandboxes(image=full_image, memory="64m")
    reply = sandbox.run("python3 -c 'x=bytearray(10**9)'", 60)
    assert reply.exit_code == 137
    assert reply.stderr == b"[sandbox] killed: memory limit of 64m (1 process)\n"


def test_c13_memory_kill_of_the_container(sandboxes: Sandboxes, image: str) -> None:
    """The kernel takes process 1: nothing is restarted with its state lost."""
    sandbox = sandboxes(image=image, memory="64m")
    eat = "head -c 200000000 /dev/zero | tail -c 150000000"

    def until_it_dies() -> None:
        for _ in range(20):  # the kernel takes another process now and then
            sandbox.run(
                f"echo 1000 >/proc/1/oom_score_adj; echo 0 >/proc/$$/oom_score_adj; {eat}", 60
            )

    with pytest.raises(SandboxError) as caught:
        until_it_dies()
    assert str(caught.value) == "sandbox died: OOM (memory limit of 64m)"
    with pytest.raises(SandboxError, match="sandbox died: OOM"):
        sandbox.run("echo hi", SOON)


@pytest.mark.parametrize("while_running", [True, False], ids=["running", "idle"])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", "was killed"),
        ("remove", "was (killed|removed)"),
        ("pause", "was paused"),
        ("restart", "was (killed|restarted)"),
    ],
)
def test_c13_container_that_is_lost(
    sandboxes: Sandboxes, docker_client: Client, how: str, says: str, while_running: bool
) -> None:
    sandbox = sandboxes()
    lose = {
        "kill": lambda: docker_client.kill(sandbox.container),
        "remove": lambda: docker_client.remove_container(sandbox.container, force=True),
        "pause": lambda: docker_client.pause(sandbox.container),
        "restart": lambda: docker_client.restart(sandbox.container, timeout=0),
    }[how]
    sandbox.run("true", SOON)
    timer = threading.Timer(0.7 if while_running else 0, lose)
    timer.start()
    if not while_running:
        timer.join()
    with pytest.raises(SandboxError, match=f"^sandbox (died|lost): its container {says}"):
        sandbox.run("sleep 1000" if while_running else "echo hi", 3 if how == "pause" else 300)
    timer.join()
    if how == "pause":
        docker_client.unpause(sandbox.container)  # too late: what was lost stays lost
    with pytest.raises(SandboxError, match="its container"):
        sandbox.run("echo hi", SOON)


def test_agent_kills_everything(sandbox: DockerSandbox, docker_client: Client) -> None:
    sandbox.run("sleep 6666 &", SOON)
    reply = sandbox.run("kill -9 -1; echo survived", SOON)
    assert (reply.stdout, reply.exit_code) == (b"survived\n", 137)
    assert reply.stderr.startswith(b"[sandbox] the shell of this command was killed")
    assert settled(sandbox, docker_client) == []
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


def test_agent_kills_everything_and_goes_on(sandbox: DockerSandbox, docker_client: Client) -> None:
    began = time.monotonic()
    reply = sandbox.run("kill -9 -1; echo part; sleep 7777", 300)
    assert elapsed(began) < SOON  # its shell is gone: nobody could tell when it ends
    assert (reply.stdout, reply.exit_code, reply.timed_out) == (b"part\n", 137, False)
    assert reply.stderr.startswith(b"[sandbox] the shell of this command was killed")
    assert left(sandbox, docker_client, "7777") == []
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


@pytest.mark.parametrize("command", ["kill -9 0", "kill -9 $PPID", "kill -USR1 1", "kill -USR2 1"])
def test_agent_kills_its_shell(sandbox: DockerSandbox, command: str) -> None:
    reply = sandbox.run(f"echo part; {command}; sleep 1", SOON)
    assert reply.stdout == b"part\n"
    assert reply.exit_code == 137
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


@pytest.mark.parametrize("command", ["kill -TERM $PPID", "kill -HUP $PPID", "kill 0 2>/dev/null"])
def test_agent_ends_its_shell_gently(sandbox: DockerSandbox, command: str) -> None:
    reply = sandbox.run(f"trap '' TERM; {command}; echo on; exit 3", SOON)
    assert (reply.stdout, reply.exit_code) == (b"on\n", 3)


def test_agent_sends_process_1_every_signal(sandbox: DockerSandbox) -> None:
    quiet = [number for number in range(1, 65) if number not in (10, 12, 32, 33)]
    sends = "; ".join(f"kill -{number} 1 2>/dev/null" for number in quiet)
    assert sandbox.run(f"{sends}; echo on", SOON).stdout == b"on\n"
    assert sandbox.run("sleep 7777", 1).timed_out
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


def test_agent_removes_bash(sandbox: DockerSandbox) -> None:
    """Nothing can be run any more: the sample's error says so, the engine's words included."""
    sandbox.run("rm -f $(type -P bash) /bin/bash /usr/bin/bash", SOON)
    with pytest.raises(SandboxError, match=r"no process can be started in it: .*bash"):
        sandbox.run("echo hi", SOON)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("rm -f /dev/null", "/dev/null"),
        ("rm -f /dev/null; mkdir /dev/null", "nothing can be written to /dev/null"),
        ("rm -f /dev/fd", "there is no pipe in /dev/fd"),
    ],
)
def test_agent_removes_what_every_command_needs(
    sandbox: DockerSandbox, command: str, told: str
) -> None:
    """What has not begun is no result, with whatever exit code."""
    assert sandbox.run(command, SOON).exit_code == 0
    with pytest.raises(SandboxError, match=f"no process can be started in it: .*{told}"):
        sandbox.run("echo hi", SOON)


def test_orphans_are_collected(sandboxes: Sandboxes) -> None:
    """Zombies count towards the limit: 300 short orphans, one after the other, fit into 50."""
    sandbox = sandboxes(pids_limit=50)
    for _ in range(6):
        loop = "for i in $(seq 50); do (setsid true &); read -t 0.02 <> <(:); done; echo ok"
        reply = sandbox.run(loop, 60)
        assert reply.stdout == b"ok\n"
        assert b"Resource temporarily unavailable" not in reply.stderr
