"""The whole line on engines other than the local Docker: one over TCP, and Podman."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.live.docker_client import Connection
from tests.live.conftest import FULL, unavailable
from tests.live.line import RUN, harness, offline, policy, recording, samples
from tests.live.tcp import tcp_port

FEW = (
    "--task-id", "43709e0a-9c38-5206-b2a1-23885d695012",
    "--task-id", "569f783e-2350-52e0-b337-47a8d5cae625",
    "--task-id", "ce61ca41-acdf-502c-9d77-a55fb647c246",  # with a command that is timed out
    "--eval-batch-size", "2", "--json",
)  # fmt: skip


def record_and_replay(folder: Path, host: str) -> dict[str, str]:
    """A few samples recorded on that engine and replayed without any: trajectories by task id."""
    with policy(folder / "server") as server:
        recorded = harness(
            *recording(folder / "st", server, *FEW), timeout=300, variables={"DOCKER_HOST": host}
        )
        assert recorded.returncode == 0, recorded.stderr
    replayed = harness("replay", RUN, "--store", str(folder / "st"), variables=offline(folder))
    assert replayed.returncode == 0, replayed.stderr
    found = samples(recorded.stdout)
    assert {sample["verdict"] for sample in found.values()} == {"right"}
    left = subprocess.run(
        ["docker", "-H", host, "ps", "-aq", "--filter", f"label=gaia-harness.run={RUN}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert left == ""
    return {task_id: sample["trajectory"] for (task_id, _), sample in found.items()}


def test_an_engine_over_tcp(tmp_path: Path, docker_connection: Connection, full_image: str) -> None:
    """`DOCKER_HOST=tcp://…`: what comes of it is what comes of the local socket."""
    host = docker_connection.host
    if not host.startswith("unix://"):
        unavailable("the engine is remote already")
    with tcp_port(host.removeprefix("unix://")) as port:
        remote = record_and_replay(tmp_path / "tcp", f"tcp://127.0.0.1:{port}")
    assert remote == record_and_replay(tmp_path / "unix", host)


# ---------------------------------------------------------------------------------------- Podman

RUNTIME = """#!{python} -I
# {runtime}, where limits may not be raised (a container without CAP_SYS_RESOURCE): Podman's API
# asks for 1048576 open files, whatever its configuration says
import json, os, resource, sys
args = sys.argv[1:]
for flag, name in (("--bundle", "config.json"), ("--process", "")):
    if flag in args:
        path = os.path.join(args[args.index(flag) + 1], name).rstrip("/")
        spec = json.load(open(path))
        for limit in spec.get("process", spec).get("rlimits") or []:
            most = resource.getrlimit(getattr(resource, limit["type"]))[1]
            if most != resource.RLIM_INFINITY:
                limit["hard"], limit["soft"] = min(limit["hard"], most), min(limit["soft"], most)
        json.dump(spec, open(path, "w"))
os.execv({runtime!r}, [{runtime!r}, *args])
"""


@pytest.fixture
def podman(tmp_path_factory: pytest.TempPathFactory, full_image: str) -> Iterator[str]:
    """A Podman service of our own, with an image store of its own that holds the one image.

    HARNESS_PODMAN=1 makes its absence a failure: CI alone does not, as Podman is no part of it.
    """

    def lacking(why: str) -> None:
        if os.environ.get("HARNESS_PODMAN"):
            pytest.fail(why)
        pytest.skip(why)

    runtime = shutil.which("runc") or shutil.which("crun")
    if shutil.which("podman") is None or runtime is None:
        lacking("no podman: apt-get install podman")
    if os.geteuid() != 0:
        lacking("this starts Podman as root")
    folder = tmp_path_factory.mktemp("podman")
    wrapper = folder / "runtime"
    wrapper.write_text(RUNTIME.format(python=sys.executable, runtime=runtime))
    wrapper.chmod(0o755)
    short = tempfile.mkdtemp()  # Podman takes 50 characters at most
    of_ours = [
        "podman", "--root", str(folder / "root"), "--runroot", short,
        "--runtime", str(wrapper), "--cgroup-manager", "cgroupfs", "--events-backend", "file",
    ]  # fmt: skip
    socket = folder / "podman.sock"
    log = (folder / "log").open("wb")
    service = subprocess.Popen(
        [*of_ours, "system", "service", "--time=0", f"unix://{socket}"], stdout=log, stderr=log
    )
    try:
        for _ in range(200):
            if socket.exists() or service.poll() is not None:
                break
            time.sleep(0.1)
        if not socket.exists():
            lacking(f"podman does not start here: {(folder / 'log').read_text()[-500:]}")
        with subprocess.Popen(["docker", "save", FULL], stdout=subprocess.PIPE) as saved:
            loaded = subprocess.run(
                [*of_ours, "load"], stdin=saved.stdout, capture_output=True, text=True, check=False
            )
        assert loaded.returncode == 0, loaded.stderr
        tried = subprocess.run(
            [*of_ours, "run", "--rm", "--network=none", FULL, "true"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if tried.returncode:
            lacking(f"podman runs no container here: {tried.stderr[-500:]}")
        yield f"unix://{socket}"
    finally:
        service.terminate()
        service.wait()
        log.close()
        subprocess.run([*of_ours, "rm", "-af"], capture_output=True, check=False)
        for mounted in (folder / "root" / "overlay", folder / "root"):
            for _ in range(10):  # each command that looked mounted it on itself once more
                if subprocess.run(["umount", mounted], capture_output=True, check=False).returncode:
                    break
        shutil.rmtree(short, ignore_errors=True)
        shutil.rmtree(folder / "root", ignore_errors=not (folder / "root").exists())


def test_podman(tmp_path: Path, podman: str, docker_connection: Connection) -> None:
    """Podman's socket in DOCKER_HOST: the same trajectories as with Docker."""
    with_docker = record_and_replay(tmp_path / "docker", docker_connection.host)
    assert record_and_replay(tmp_path / "podman", podman) == with_docker
