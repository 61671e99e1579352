"""Sandboxes in Docker: one container per sample, from preflight to removal.

What a container is given: the image, a writable `/workspace`, the sample's own attachment
read-only, limits on memory, processors and processes, `no-new-privileges`, no core dumps, no log
on the host's disk, a fixed host name and a fixed small environment on top of the image's own.
Nothing of the host's environment or files. Commands run as root of the container, as the image's
package managers expect.

The attachment is a bind mount of a private folder that holds nothing but a copy of that one file:
read-only for root too, and no path of the data set shows in the container's mount table. An engine
that cannot see this machine's files (DOCKER_HOST over TCP, a virtual machine) refuses such a mount
by its path, and SELinux would refuse it silently; then the file goes over the API into a volume,
and the volume is mounted read-only. Copying it into the container itself would leave it writable,
because root of the container may write whatever its own layer holds.
"""

from __future__ import annotations

import itertools
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from harness.errors import LackError, SandboxError, UsageError
from harness.live.attachment import copy_alone, fill_volume
from harness.live.docker_clean import CleanedContainer, clean, labels_for
from harness.live.docker_client import (
    Client,
    Connection,
    cause,
    connect,
    engine_errors,
    is_engine_error,
)
from harness.live.docker_image import identify
from harness.live.docker_sandbox import DockerSandbox
from harness.live.inside import INIT
from harness.live.owner import scratch_folder
from harness.live.sandbox import ImageIdentity, Progress, SandboxConfig
from harness.records import Sample

__all__ = ["CleanedContainer", "DockerEngine", "clean"]

_Kind = Literal["bind", "volume"]
_ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "TERM": "dumb"}


class DockerEngine:
    """Makes `DockerSandbox`es on the engine that DOCKER_HOST or Docker's context names."""

    def __init__(self, config: SandboxConfig, *, run: str) -> None:
        if config.memory is not None and not re.fullmatch("[0-9]+[bkmg]?", config.memory.lower()):
            raise UsageError(
                f"{config.memory!r} is no amount of memory", hint="--memory 4g, or 512m"
            )
        self._config = config
        self._run = run
        self._preparing = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._ready: tuple[Connection, ImageIdentity] | None = None
        self._closed = False
        self._open: set[DockerSandbox] = set()
        self._scratch: Path | None = None
        self._count = itertools.count(1)
        self._by_volume = False

    def preflight(self, progress: Progress) -> ImageIdentity:
        """Find engine and image, remove what dead recordings left, and run one trial command.

        LackError: package, engine or image missing, or a container cannot be run. UsageError: the
        engine refuses the settings. Does its work once.
        """
        return self._prepared(progress)[1]

    def start(self, sample: Sample, attachment: Path | None) -> DockerSandbox:
        connection, image = self._prepared(lambda line: None)
        labels = labels_for(self._run, sample)
        client = connection.client()
        with engine_errors(connection.host, SandboxError, "sandbox could not be started"):
            if attachment is None or not sample.file_name:
                return self._launch(connection, image, labels)
            if not self._by_volume:
                folder = self._folder()
                copy_alone(attachment, sample.file_name, folder)
                try:
                    return self._launch(
                        connection, image, labels, ("bind", str(folder)), lambda: _delete(folder)
                    )
                except Exception as error:
                    if not is_engine_error(error) or str(folder) not in cause(error):
                        raise
                    self._by_volume = True  # the engine does not see our files
            volume = f"gaia-harness-{secrets.token_hex(8)}"
            fill_volume(client, image.id, volume, labels, attachment, sample.file_name)
            return self._launch(
                connection, image, labels, ("volume", volume), lambda: client.remove_volume(volume)
            )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sandboxes = list(self._open)
        if sandboxes:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(DockerSandbox.close, sandboxes))
        if self._scratch is not None:
            _delete(self._scratch)

    def _prepared(self, progress: Progress) -> tuple[Connection, ImageIdentity]:
        with self._preparing:
            if self._ready is None:
                self._ready = self._prepare(progress)
            return self._ready

    def _prepare(self, progress: Progress) -> tuple[Connection, ImageIdentity]:
        connection = connect()
        client = connection.client()
        with engine_errors(connection.host, LackError, "the Docker engine cannot be used"):
            left = clean()
            if left:
                progress(f"removed {len(left)} containers of recordings that were killed")
            image = identify(client, self._config.image, progress)
            self._by_volume = "name=selinux" in (client.info().get("SecurityOptions") or ())
        self._try_out(connection, image)
        client.close()
        return connection, image

    def _try_out(self, connection: Connection, image: ImageIdentity) -> None:
        """Run one command the way all will be run."""
        what = f"no container can be run from {image.reference}"
        hint = f"docker run --rm {image.reference} bash -c true"
        with engine_errors(connection.host, LackError, what, hint):
            try:
                sandbox = self._launch(connection, image, labels_for(self._run, None))
            except Exception as error:
                if "executable file not found" in cause(error):
                    raise LackError(
                        f"{what}: it has no bash", hint="name an image with bash"
                    ) from error
                if getattr(error, "status_code", None) != 400:
                    raise
                raise UsageError(
                    f"the Docker engine refuses the sandbox's settings: {cause(error)}",
                    hint="change --memory, --cpus, --pids-limit or --docker-image",
                ) from error
            try:
                reply = sandbox.run("true", 60.0)
            except SandboxError as error:
                raise LackError(f"{what}: {error.message}", hint=hint) from None
            finally:
                sandbox.close()
            if reply.exit_code != 0:
                raise LackError(f"{what}: `true` gave {reply}", hint=hint)

    def _launch(
        self,
        connection: Connection,
        image: ImageIdentity,
        labels: dict[str, str],
        shared: tuple[_Kind, str] | None = None,
        release: Callable[[], object] = lambda: None,
    ) -> DockerSandbox:
        """A started container. `shared`: kind and source of what is mounted at /shared_files.

        `release` removes that source; it is called when the container is gone or never came.
        Raises what the SDK raises.
        """
        client = connection.client()
        container = ""
        try:
            container = client.create_container(**self._settings(client, image, labels, shared))[
                "Id"
            ]
            client.start(container)
        except BaseException:
            if container:
                client.remove_container(container, force=True, v=True)
            release()
            raise
        finally:
            client.close()

        def forget(sandbox: DockerSandbox) -> None:
            with self._lock:
                self._open.discard(sandbox)
            release()

        sandbox = DockerSandbox(connection, container, image, self._config, forget)
        with self._lock:
            self._open.add(sandbox)
            closed = self._closed
        if closed:
            sandbox.close()
            raise SandboxError("sandbox was closed")
        return sandbox

    def _settings(
        self,
        client: Client,
        image: ImageIdentity,
        labels: dict[str, str],
        shared: tuple[_Kind, str] | None,
    ) -> dict[str, Any]:
        """The arguments of `create_container`."""
        from docker.types import LogConfig, Mount, Ulimit

        config = self._config
        sample = re.sub("[^A-Za-z0-9_.-]", "_", labels["gaia-harness.sample"])[:40] or "preflight"
        mounts = []
        if shared:
            kind, source = shared
            mounts = [Mount("/shared_files", source, type=kind, read_only=True)]
        limits: dict[str, Any] = {}
        if config.memory is not None:
            limits |= {"mem_limit": config.memory, "memswap_limit": config.memory}
        if config.cpus is not None:
            limits["nano_cpus"] = int(config.cpus * 1e9)
        if config.pids_limit is not None:
            limits["pids_limit"] = config.pids_limit
        return {
            "image": image.id,
            "name": f"gaia-harness-{sample}-{secrets.token_hex(4)}",
            "labels": labels,
            "entrypoint": ["bash", "-c", INIT],
            "command": [],
            "environment": _ENVIRONMENT,
            "hostname": "sandbox",
            "user": "0:0",
            "stop_signal": "SIGKILL",  # process 1 heeds no other; `docker stop` need not wait
            "working_dir": "/workspace",
            "healthcheck": {"test": ["NONE"]},
            "use_config_proxy": False,  # it would copy the user's proxy settings into the container
            "host_config": client.create_host_config(
                network_mode="bridge" if config.network else "none",
                mounts=mounts,
                security_opt=["no-new-privileges"],
                ulimits=[Ulimit(name="core", soft=0, hard=0)],
                log_config=LogConfig(type="none"),
                **limits,
            ),
        }

    def _folder(self) -> Path:
        """A path for one attachment's copy; nothing is there yet."""
        with self._lock:
            if self._scratch is None:
                self._scratch = scratch_folder()
            return self._scratch / str(next(self._count))


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
