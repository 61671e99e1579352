"""Fixtures for what runs against real parts: a Docker engine, its images, sandboxes.

A test that uses one of them carries the mark `docker`. Without an engine or an image it is
skipped, and fails where CI is set. HARNESS_LONG=1 makes the repeated tests repeat more.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from harness.errors import HarnessError
from harness.live.docker_client import Client, Connection, connect
from harness.live.docker_engine import DockerEngine
from harness.live.docker_sandbox import DockerSandbox
from harness.live.sandbox import SandboxConfig, engine_for
from harness.records import Sample

ROOT = Path(__file__).parents[2]
FULL, TINY = "python:3.11", "gaia-tiny:test"

Sandboxes = Callable[..., DockerSandbox]
Engines = Callable[..., DockerEngine]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "docker_connection" in getattr(item, "fixturenames", ()):
            item.add_marker("docker")


def unavailable(why: str) -> NoReturn:
    """Skip, or fail where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def repeats(few: int, many: int) -> int:
    """How often a repeated test repeats."""
    return many if os.environ.get("HARNESS_LONG") == "1" else few


def sample(task_id: str = "task", file_name: str = "", epoch: int = 1) -> Sample:
    return Sample(task_id=task_id, question="?", level=1, file_name=file_name, epoch=epoch)


@pytest.fixture(scope="session")
def docker_connection() -> Connection:
    """An engine that answers."""
    try:
        return connect()
    except HarnessError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def docker_client(docker_connection: Connection) -> Iterator[Client]:
    """A client of the engine, to look at things from outside."""
    client = docker_connection.client()
    yield client
    client.close()


def _image(client: Client, name: str, script: str) -> str:
    from docker.errors import ImageNotFound

    try:
        client.inspect_image(name)
    except ImageNotFound:
        unavailable(f"no image {name}: run scripts/{script}")
    return name


@pytest.fixture(scope="session")
def full_image(docker_client: Client) -> str:
    """python:3.11 or its stand-in."""
    return _image(docker_client, FULL, "docker-image")


@pytest.fixture(scope="session")
def tiny_image(docker_client: Client) -> str:
    """busybox and bash, nothing else."""
    return _image(docker_client, TINY, "docker-image-tiny")


@pytest.fixture(params=[FULL, TINY])
def image(request: pytest.FixtureRequest) -> str:
    """Both images, one after the other."""
    fixture = "full_image" if request.param == FULL else "tiny_image"
    return cast(str, request.getfixturevalue(fixture))


@pytest.fixture(scope="session")
def _engines(docker_connection: Connection) -> Iterator[dict[SandboxConfig, DockerEngine]]:
    engines: dict[SandboxConfig, DockerEngine] = {}
    yield engines
    for engine in engines.values():
        engine.close()


@pytest.fixture(scope="session")
def docker_engine(tiny_image: str, _engines: dict[SandboxConfig, DockerEngine]) -> Engines:
    """`docker_engine(image=…, memory=…)`: an engine that passed its preflight, shared by tests."""

    def make(**settings: Any) -> DockerEngine:
        config = SandboxConfig(**{"image": tiny_image, "network": False, **settings})
        if config not in _engines:
            engine = engine_for(config, run="tests")
            assert isinstance(engine, DockerEngine)
            engine.preflight(lambda line: None)
            _engines[config] = engine
        return _engines[config]

    return make


@pytest.fixture
def sandboxes(docker_engine: Engines) -> Iterator[Sandboxes]:
    """`sandboxes(image=…, memory=…)`: a new container, removed after the test."""
    made: list[DockerSandbox] = []

    def make(
        attachment: Path | None = None, of: Sample | None = None, **settings: Any
    ) -> DockerSandbox:
        sandbox = docker_engine(**settings).start(of or sample(), attachment)
        made.append(sandbox)
        return sandbox

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def sandbox(sandboxes: Sandboxes, image: str) -> DockerSandbox:
    """A new container of each image, without network."""
    return sandboxes(image=image)


def running(sandbox: DockerSandbox, client: Client) -> list[str]:
    """Command lines of what runs in a container, without process 1 and what is dying already.

    A killed process is listed until its parent has been told, which takes time on a crowded
    machine: what counts is there at two looks. By its command line, as some change their number.
    """
    first = _listed(sandbox, client)
    if not first:
        return first
    time.sleep(1.0)
    still = Counter(first) & Counter(second := _listed(sandbox, client))
    return [line for line in second if still[line]]


def _listed(sandbox: DockerSandbox, client: Client) -> list[str]:
    listed = client.top(sandbox.container, ps_args="-eo pid,args")["Processes"]
    lines = [" ".join(fields[1:]) for fields in listed]
    return [line for line in lines if "# Process 1" not in line and not line.startswith("[")]


@contextmanager
def own_engine(folder: Path, client: Client, image: str) -> Iterator[Path]:
    """A second engine in `folder`, with an image of the first. Gives its socket. Root only."""
    if os.geteuid() != 0:
        unavailable("only root can start a second Docker engine")
    environment = {**os.environ, "ENGINE_DIR": str(folder)}
    script = str(ROOT / "scripts" / "docker-engine")
    started = subprocess.run(
        [script, "start"], env=environment, capture_output=True, text=True, check=False
    )
    if started.returncode:
        unavailable(f"no second Docker engine: {started.stderr}")
    try:
        from docker import APIClient

        socket = folder / "docker.sock"
        second: Client = APIClient(base_url=f"unix://{socket}")
        second.load_image(b"".join(client.get_image(image)))
        second.close()
        yield socket
    finally:
        subprocess.run([script, "stop"], env=environment, capture_output=True, check=False)


@pytest.fixture(scope="session")
def private_engine(
    tmp_path_factory: pytest.TempPathFactory, docker_client: Client, tiny_image: str
) -> Iterator[Path]:
    """A second engine of our own that a test may stop: the folder with its socket. Root only."""
    folder = tmp_path_factory.mktemp("engine")
    with own_engine(folder, docker_client, tiny_image):
        yield folder
