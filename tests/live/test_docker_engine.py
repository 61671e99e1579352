"""The Docker engine around the sandboxes: preflight, images, settings, attachments, clean-up."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.errors import LackError, SandboxError, UsageError
from harness.live import docker_client
from harness.live.docker_clean import labels_for
from harness.live.docker_client import Client
from harness.live.docker_engine import DockerEngine, clean
from harness.live.docker_sandbox import DockerSandbox
from harness.live.owner import Owner, clean_scratch, scratch_folder
from harness.live.sandbox import ImageIdentity, SandboxConfig, engine_for
from tests.live.conftest import ROOT, Engines, Sandboxes, repeats, sample, unavailable
from tests.live.registry import Registry, one_layer_image, with_file
from tests.live.tcp import tcp_port


def preflight(**settings: Any) -> tuple[DockerEngine, ImageIdentity, list[str]]:
    """A new engine that went through its preflight, and what it said on the way."""
    said: list[str] = []
    engine = DockerEngine(SandboxConfig(**{"network": False, **settings}), run="tests")
    identity = engine.preflight(said.append)
    # other tests kill recorders at any time
    return engine, identity, [line for line in said if "that were killed" not in line]


# ------------------------------------------------------------------------------------- preflight


def test_preflight_tells_which_image_it_is(docker_client: Client, image: str) -> None:
    engine, identity, said = preflight(image=image)
    engine.close()
    truth = docker_client.inspect_image(image)
    assert identity == ImageIdentity(image, truth["Id"], tuple(truth["RootFS"]["Layers"]))
    assert identity.layers
    assert said == []  # a local image is used as it is: nothing is pulled


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("unix:///nowhere/docker.sock", "there is no engine at this address"),
        ("tcp://127.0.0.1:9", "nothing listens at this address"),
        ("ftp://example", "Invalid bind address"),
    ],
)
def test_c14_no_engine_is_a_lack_with_cause_and_remedy(
    monkeypatch: pytest.MonkeyPatch, host: str, says: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    for reach in (lambda: preflight(image="x"), clean):
        with pytest.raises(LackError) as caught:
            reach()
        assert says in caught.value.message
        assert host in caught.value.message
        assert "\n" not in caught.value.message
        assert "DOCKER_HOST" in (caught.value.hint or "")


def test_c14_a_socket_that_never_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        monkeypatch.setattr(docker_client, "_FIRST_ANSWER", 1)
        began = time.monotonic()
        with pytest.raises(LackError, match="no answer in time"):
            preflight(image="x")
        assert time.monotonic() - began < 30


def test_missing_package_is_a_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(LackError) as caught:
        preflight(image="x")
    assert caught.value.hint == "pip install 'gaia-harness[record]'"


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    yield registry
    registry.close()


def test_image_is_pulled_with_progress(
    registry: Registry, docker_client: Client, tiny_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = b"".join(docker_client.get_image(tiny_image))
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        about = archive.extractfile("manifest.json")
        assert about is not None
        layer = archive.extractfile(json.load(about)[0]["Layers"][0])
        assert layer is not None
        tar = with_file(layer.read(), "filler", secrets.token_bytes(3 << 20))
    registry.manifest, registry.blobs = one_layer_image(tar)
    registry.pause = 0.5
    monkeypatch.setattr("harness.live.docker_image._EVERY", 0.5)
    reference = f"{registry.address}/gaia/tiny:1"
    try:
        engine, identity, said = preflight(image=reference)
        engine.close()
        assert identity.reference == reference
        assert identity.id == docker_client.inspect_image(reference)["Id"]
        assert said[0] == f"image {reference} is not here: pulling it"
        assert any(" of 1 layers, " in line and line.endswith(" MB") for line in said)
        assert said[-1].startswith(f"pulled {reference} in ")
        assert not any("\r" in line or "\n" in line or "\x1b" in line for line in said)
        engine, again, said = preflight(image=reference)
        engine.close()
        assert (again, said) == (identity, [])
    finally:
        docker_client.remove_image(reference, force=True)


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (404, "MANIFEST_UNKNOWN", "check the name"),
        (429, "TOOMANYREQUESTS", "docker login"),
        (500, "UNKNOWN", ""),
    ],
)
def test_c14_image_that_cannot_be_pulled(
    registry: Registry, docker_client: Client, status: int, code: str, remedy: str
) -> None:
    registry.status, registry.error = status, {"code": code, "message": f"said {code}"}
    reference = f"{registry.address}/gaia/no-such:1"
    with pytest.raises(LackError) as caught:
        preflight(image=reference)
    assert caught.value.message.startswith(f"image {reference} cannot be had: ")
    assert remedy in (caught.value.hint or "")
    assert "\n" not in caught.value.message


def test_c14_image_with_a_layer_that_is_gone(registry: Registry, docker_client: Client) -> None:
    """Here the engine reports the error within its progress."""
    registry.manifest, blobs = one_layer_image(b"\0" * 10240)
    registry.blobs = {digest: blob for digest, blob in blobs.items() if blob.startswith(b"{")}
    reference = f"{registry.address}/gaia/half:1"
    with pytest.raises(LackError) as caught:
        preflight(image=reference)
    assert caught.value.message.startswith(f"image {reference} cannot be had: ")
    assert "No such image" not in caught.value.message


def test_c14_registry_that_is_not_there(docker_client: Client) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        reference = f"127.0.0.1:{free.getsockname()[1]}/gaia/x:1"
    with pytest.raises(LackError) as caught:
        preflight(image=reference)
    assert reference in caught.value.message
    assert "docker load" in (caught.value.hint or "")


def test_image_without_bash_is_a_lack(docker_client: Client) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    name = f"gaia-harness-no-bash:{secrets.token_hex(4)}"
    docker_client.import_image_from_data(archive.getvalue(), *name.split(":"))
    try:
        with pytest.raises(LackError, match="it has no bash"):
            preflight(image=name)
    finally:
        docker_client.remove_image(name)


@pytest.mark.parametrize(
    "settings", [{"memory": "1k"}, {"cpus": 100_000.0}], ids=["memory", "cpus"]
)
def test_settings_that_the_engine_refuses(tiny_image: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the Docker engine refuses the sandbox's settings"):
        preflight(image=tiny_image, **settings)


@pytest.mark.parametrize("settings", [{"memory": "much"}, {"capture_bytes": 1}])
def test_settings_that_no_engine_can_keep(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        engine_for(SandboxConfig(**settings), run="tests")


# ----------------------------------------------------------------------- what a container is given


def test_limits_and_safety_settings(sandboxes: Sandboxes, docker_client: Client) -> None:
    sandbox = sandboxes(memory="128m", cpus=0.5, pids_limit=77)
    found = docker_client.inspect_container(sandbox.container)
    host = found["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 128 << 20
    assert host["NanoCpus"] == 500_000_000
    assert host["PidsLimit"] == 77
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["NetworkMode"] == "none"
    assert host["LogConfig"]["Type"] == "none"
    assert not host["Privileged"]
    assert not host["Binds"]
    assert not found["Mounts"]
    assert "NoNewPrivs:\t1" in sandbox.run("cat /proc/self/status", 30).stdout.decode()


def test_network_is_on_or_off(sandboxes: Sandboxes, docker_engine: Engines) -> None:
    off = sandboxes(network=False).run("ls /sys/class/net", 30)
    assert off.stdout.split() == [b"lo"]
    try:
        docker_engine(network=True)
    except LackError as error:
        pytest.skip(f"this engine has no network: {error}")
    on = sandboxes(network=True).run("ls /sys/class/net", 30)
    assert b"eth0" in on.stdout.split()


def test_environment_of_the_host_never_shows(
    docker_client: Client,
    full_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canary = secrets.token_hex(12)
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{canary}:1")
    (tmp_path / "config.json").write_text(
        json.dumps({"proxies": {"default": {"httpProxy": f"http://{canary}:1"}}})
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    engine, _, _ = preflight(image=full_image)
    try:
        sandbox = engine.start(sample(), None)
        reply = sandbox.run("env; echo; cat /proc/[0-9]*/environ; hostname", 30)
        given = dict(
            line.split("=", 1) for line in reply.stdout.decode().split("\n\n")[0].split("\n")
        )
        about = json.dumps(docker_client.inspect_container(sandbox.container))
    finally:
        engine.close()
    assert canary not in reply.stdout.decode()
    assert canary not in about
    assert given["HOME"] == "/root"
    assert given["LANG"] == "C.UTF-8"
    assert given["TERM"] == "dumb"
    assert given["PYTHONHASHSEED"] == "0"
    image = docker_client.inspect_image(full_image)["Config"]["Env"]
    ours = {"HOME", "LANG", "TERM", "PYTHONHASHSEED", "HOSTNAME", "PWD", "SHLVL", "_"}
    assert set(given) <= ours | {entry.split("=")[0] for entry in image}
    assert reply.stdout.decode().endswith("sandbox\n")


def test_image_entrypoint_and_health_check_are_not_used(
    docker_client: Client, tiny_image: str
) -> None:
    name = f"gaia-harness-odd:{secrets.token_hex(4)}"
    made = docker_client.create_container(tiny_image)["Id"]
    repository, tag = name.split(":")
    docker_client.commit(
        made,
        repository,
        tag,
        conf={
            "Entrypoint": ["/nowhere"],
            "Healthcheck": {"Test": ["CMD", "true"], "Interval": 10**9},
        },
    )
    docker_client.remove_container(made)
    engine = None
    try:
        engine, _, _ = preflight(image=name)
        sandbox = engine.start(sample(), None)
        assert sandbox.run("echo hi", 30).stdout == b"hi\n"
        state = docker_client.inspect_container(sandbox.container)["State"]
        assert state.get("Health") is None
    finally:
        if engine:
            engine.close()
        docker_client.remove_image(name)


# ------------------------------------------------------------------------------------ attachments

_ATTACKS = (
    "ls -A /shared_files; cat /shared_files/*; "
    "for try in 'echo x >>\"$1\"' 'rm -f \"$1\"' 'chmod 777 \"$1\"' 'mv \"$1\" /tmp' "
    "'mount -o remount,rw /shared_files' 'umount /shared_files' 'echo x >/shared_files/new'; do "
    'bash -c "$try" - /shared_files/* >/dev/null 2>&1 && echo "worked: $try"; done; '
    "ls -A /shared_files; cat /shared_files/*"
)


@pytest.mark.parametrize(
    "name", ["table.csv", "with blank, comma: and ümlaut.txt", "-rf", "$(id).txt", "a'b\"c.json"]
)
def test_b07_attachment_is_alone_and_read_only(
    sandboxes: Sandboxes, tmp_path: Path, name: str
) -> None:
    """B07: whatever is tried in the container, the one file stays alone and as it is."""
    folder = tmp_path / "2023" / "validation"
    folder.mkdir(parents=True)
    (folder / "metadata.jsonl").write_text("truths")
    (folder / "other.csv").write_text("of another sample")
    (folder / name).write_text("a,b\n")
    sandbox = sandboxes(folder / name, sample(file_name=name))
    reply = sandbox.run(_ATTACKS, 60)
    seen = f"{name}\na,b\n"
    assert reply.stdout.decode() == seen + seen
    assert (folder / name).read_text() == "a,b\n"
    mounts = sandbox.run("cat /proc/self/mountinfo", 30).stdout.decode()
    assert str(tmp_path) not in mounts


def test_b07_nothing_of_the_data_set_is_in_the_container(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    """B07."""
    canary = secrets.token_hex(12)
    (tmp_path / "metadata.jsonl").write_text(canary)
    (tmp_path / "file.txt").write_text("mine")
    sandbox = sandboxes(tmp_path / "file.txt", sample(file_name="file.txt"))
    search = f"grep -rl {canary[:12]}''{canary[12:]} /etc /root /shared_files /tmp /workspace"
    assert sandbox.run(search, 60).stdout == b""
    assert sandbox.run("cat /shared_files/*", 30).stdout == b"mine"


def test_without_attachment_nothing_is_shared(sandbox: DockerSandbox) -> None:
    assert sandbox.run("ls -A /shared_files 2>/dev/null", 30).stdout == b""
    assert b"/shared_files" not in sandbox.run("cat /proc/self/mountinfo", 30).stdout


def test_attachment_that_cannot_be_read(docker_engine: Engines, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"attachment 'x\.csv' cannot be read: No such file"):
        docker_engine().start(sample(file_name="x.csv"), tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", "a/b"])
def test_attachment_name_is_never_a_path(docker_engine: Engines, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(SandboxError, match="is not the name of a file"):
        docker_engine().start(sample(file_name=name), tmp_path / "x")


_REMOTE = """
import sys
from pathlib import Path
from harness.live.docker_engine import DockerEngine
from harness.live.sandbox import SandboxConfig
from harness.records import Sample
engine = DockerEngine(SandboxConfig(image=sys.argv[1], network=False), run="tests")
file = Path(sys.argv[2]) / "a b.csv"
file.write_text("a,b\\n")
one = Sample(task_id="t", question="?", level=1, file_name=file.name)
sandbox = engine.start(one, file)
sys.stdout.write(sandbox.run(sys.argv[3], 60).stdout.decode())
print(b"/volumes/" in sandbox.run("cat /proc/self/mountinfo", 30).stdout)
engine.close()
"""


def test_engine_that_cannot_see_our_files_gets_a_copy(
    tmp_path: Path, docker_client: Client, tiny_image: str
) -> None:
    """In a mount namespace of its own, the recorder's temporary folder is not the engine's."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        unavailable("needs root and unshare")
    before = {volume["Name"] for volume in docker_client.volumes()["Volumes"] or ()}
    hide = f'mount -t tmpfs none {tmp_path} && exec "$@"'
    script = [sys.executable, "-c", _REMOTE, tiny_image, str(tmp_path), _ATTACKS]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", hide, "-", *script],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    seen = "a b.csv\na,b\n"
    assert done.stdout == seen + seen + "True\n", done.stderr
    assert {volume["Name"] for volume in docker_client.volumes()["Volumes"] or ()} == before


# ------------------------------------------------------------------------------ an engine over TCP


@pytest.fixture
def over_tcp(monkeypatch: pytest.MonkeyPatch, docker_connection: Any) -> Iterator[str]:
    """DOCKER_HOST is a TCP port that leads to the engine's socket."""
    if not docker_connection.host.startswith("unix://"):
        unavailable("the engine is remote already")
    with tcp_port(docker_connection.host.removeprefix("unix://")) as port:
        host = f"tcp://127.0.0.1:{port}"
        monkeypatch.setenv("DOCKER_HOST", host)
        yield host


def test_commands_over_tcp(over_tcp: str, tiny_image: str, tmp_path: Path) -> None:
    engine, _, _ = preflight(image=tiny_image)
    try:
        (tmp_path / "f").write_bytes(b"\xff\x00")
        sandbox = engine.start(sample(file_name="f"), tmp_path / "f")
        assert sandbox.run("cat /shared_files/f; echo err >&2", 30).stdout == b"\xff\x00"
        assert sandbox.run("sleep 300 & echo bg", 30).stdout == b"bg\n"
        assert sandbox.run("seq 1 200000", 60).stdout.endswith(b"200000\n")
        slow = sandbox.run("echo part; sleep 100", 1)
        assert (slow.stdout, slow.timed_out, slow.exit_code) == (b"part\n", True, None)
    finally:
        engine.close()


# ------------------------------------------------------------------- closing, leaks, dead owners


def exists(client: Client, container: str) -> bool:
    return bool(client.containers(all=True, filters={"id": container}))


def test_close_is_quick_final_and_may_be_repeated(
    sandboxes: Sandboxes, docker_client: Client
) -> None:
    sandbox = sandboxes()
    sandbox.run("sleep 1000 & trap '' TERM; sleep 1000 &", 30)
    began = time.monotonic()
    sandbox.close()
    assert time.monotonic() - began < 5  # `docker stop` would take 10
    assert not exists(docker_client, sandbox.container)
    sandbox.close()
    with pytest.raises(SandboxError, match="sandbox was closed"):
        sandbox.run("echo hi", 30)


def test_close_ends_a_command_that_runs(sandboxes: Sandboxes) -> None:
    sandbox = sandboxes()
    timer = threading.Timer(0.7, sandbox.close)
    timer.start()
    with pytest.raises(SandboxError, match="sandbox was closed"):
        sandbox.run("sleep 1000", 300)
    timer.join()


def test_engine_close_removes_all_and_starts_no_more(
    tiny_image: str, docker_client: Client, tmp_path: Path
) -> None:
    engine, _, _ = preflight(image=tiny_image)
    (tmp_path / "f").write_text("x")
    made = [engine.start(sample(f"t{i}", "f"), tmp_path / "f").container for i in range(3)]
    scratch = engine._scratch
    assert scratch is not None
    assert scratch.exists()
    engine.close()
    engine.close()
    assert not any(exists(docker_client, container) for container in made)
    assert not scratch.exists()
    with pytest.raises(SandboxError, match="closed"):
        engine.start(sample(), None)
    labels = {"label": "gaia-harness.run=tests"}
    assert not any("t0" in found["Names"][0] for found in docker_client.containers(filters=labels))


def test_containers_in_a_row_leak_nothing(docker_engine: Engines, docker_client: Client) -> None:
    engine = docker_engine()

    def held() -> tuple[int, int, int]:
        ours = docker_client.containers(all=True, filters={"label": "gaia-harness.sample=row"})
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(ours)

    def one() -> None:
        sandbox = engine.start(sample("row"), None)
        assert sandbox.run("sleep 100 & echo hi", 60).stdout == b"hi\n"
        sandbox.close()

    one()
    before = held()
    for _ in range(repeats(6, 100)):
        one()
    after = held()
    assert after[0] <= before[0] + 2
    assert after[1:] == (before[1], 0)
    assert not engine._open


_RECORDER = """
import signal, sys, time
from pathlib import Path
from harness.live.docker_engine import DockerEngine
from harness.live.sandbox import SandboxConfig
from harness.records import Sample
def stop(number, frame): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
engine = DockerEngine(SandboxConfig(image=sys.argv[1], network=False), run=sys.argv[2])
file = Path(sys.argv[3])
try:
    for i in range(3):
        one = Sample(task_id=f"t{i}", question="?", level=1, file_name="f")
        print(engine.start(one, file).container, flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    pass
finally:
    engine.close()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_c12_a_recorder_that_is_stopped(
    tiny_image: str,
    docker_client: Client,
    sandboxes: Sandboxes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """INT, TERM: nothing is left. KILL: `clean` takes exactly what the dead one owned."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive = sandboxes(of=sample("alive"))
    stranger = docker_client.create_container(
        tiny_image, name=f"x-gaia-harness-y-{secrets.token_hex(4)}", labels={"harness": "gaia"}
    )["Id"]
    elsewhere = labels_for("tests", sample("elsewhere")) | {"gaia-harness.host": "another"}
    remote = docker_client.create_container(tiny_image, labels=elsewhere)["Id"]
    (tmp_path / "f").write_text("x")
    run = f"tests-{secrets.token_hex(4)}"
    recorder = subprocess.Popen(
        [sys.executable, "-c", _RECORDER, tiny_image, run, str(tmp_path / "f")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert recorder.stdout is not None
        made = [recorder.stdout.readline().strip() for _ in range(3)]
        assert all(exists(docker_client, container) for container in made)
        assert not {found.id for found in clean()} & {*made, alive.container, stranger, remote}
        recorder.send_signal(number)
        if number != signal.SIGKILL:
            recorder.wait(60)
            assert not any(exists(docker_client, container) for container in made)
            assert not list(tmp_path.glob("gaia-harness-*"))
            return
        time.sleep(0.5)  # dead, but not yet collected by its parent
        # another recording's preflight may have been faster
        cleaned = {found.id: found for found in clean() if found.run == run}
        assert set(cleaned) <= set(made)
        for found in cleaned.values():
            assert found.name in str(found)
            assert f"sample t{made.index(found.id)}, epoch 1" in str(found)
        assert not any(exists(docker_client, container) for container in made)
        assert all(exists(docker_client, it) for it in (alive.container, stranger, remote))
        assert alive.run("echo hi", 30).stdout == b"hi\n"
        assert not list(tmp_path.glob("gaia-harness-*"))
    finally:
        recorder.kill()
        recorder.wait()
        assert recorder.stdout is not None
        recorder.stdout.close()
        for container in (stranger, remote):
            docker_client.remove_container(container, force=True)


def test_next_preflight_removes_what_a_killed_one_left(
    tiny_image: str, docker_client: Client
) -> None:
    dead = labels_for("tests", sample("orphan")) | {"gaia-harness.start": "1"}
    orphan = docker_client.create_container(tiny_image, labels=dead)["Id"]
    volume = f"gaia-harness-{secrets.token_hex(8)}"
    docker_client.create_volume(volume, labels=dead)
    engine, _, _ = preflight(image=tiny_image)
    engine.close()
    assert not exists(docker_client, orphan)
    assert not docker_client.volumes(filters={"name": volume})["Volumes"]


def test_owner_is_told_from_another_process_with_its_number() -> None:
    me = Owner.me()
    assert me.state() == "alive"
    replace = msgspec.structs.replace
    assert replace(me, start="1").state() == "dead"
    assert replace(me, boot="before").state() == "dead"
    assert replace(me, pid="999999999").state() == "dead"
    assert replace(me, host="another").state() == "unknown"
    assert replace(me, pid_namespace="pid:[1]").state() == "unknown"
    assert replace(me, pid="nonsense").state() == "unknown"


def test_scratch_folder_of_the_living_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = scratch_folder()
    (tmp_path / "gaia-harness-foreign").mkdir()
    assert clean_scratch() == 0
    assert folder.exists()


# ------------------------------------------------------------------------- an engine that goes away


def test_c14_engine_that_stops_is_a_sandbox_error(
    private_engine: Path, tiny_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{private_engine}/docker.sock")
    engine, _, _ = preflight(image=tiny_image)
    sandbox, other = engine.start(sample("one"), None), engine.start(sample("two"), None)
    assert sandbox.run("echo hi", 30).stdout == b"hi\n"
    environment = {**os.environ, "ENGINE_DIR": str(private_engine)}
    stop = [str(ROOT / "scripts" / "docker-engine"), "stop"]
    timer = threading.Timer(0.5, lambda: subprocess.run(stop, env=environment, check=False))
    timer.start()
    with pytest.raises(SandboxError, match=r"sandbox (died|lost): "):
        sandbox.run("sleep 1000", 600)
    timer.join()
    with pytest.raises(SandboxError, match="the Docker engine does not answer any more"):
        other.run("echo hi", 30)
    with pytest.raises(SandboxError, match="sandbox could not be started"):
        engine.start(sample("three"), None)
    engine.close()  # raises nothing
