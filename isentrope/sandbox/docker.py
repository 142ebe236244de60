"""Runs commands in docker containers: needed where a task brings its own image, as SWE-bench's do.

As with bubblewrap, each command runs in a fresh container that gets a copy of the tree and is thrown away: no network,
no capability, an ordinary user, a read-only root, and the work folder in memory.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, Limits, Outcome, Sandbox, tar_items
from isentrope.sandbox.bubblewrap import ENVIRONMENT, UNPACK
from isentrope.sandbox.limits import run_bounded

HOW_TO_GET = "https://docs.docker.com/engine/install"
USER = "65534:65534"
STARTING = 30.0  # seconds that a container may take to start, on top of the command's own
MAX_FOLDER = 2 << 30  # bytes of a work folder taken out of an image


class Docker(Sandbox):
    python = "python3"  # the image's own: ours is not in it

    def __init__(self, limits: Limits, image: str, work: str = "/repo") -> None:
        if not image:
            raise TaskError(
                "the docker sandbox needs an image: set task.options.image, e.g. one with Python and pytest"
            )
        if image.startswith("-"):
            raise TaskError(f"{image!r} is not the name of an image")
        self.work = work
        self._limits, self._image = limits, image

    def _check_works(self) -> None:
        docker_program()

    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        packed = self.tree.as_tar(self.work, extra or {})
        name = f"isentrope-{uuid.uuid4().hex}"
        argv = container_command(docker_program(), name, self._image, self.work, self._limits, command)
        limits = replace(self._limits, seconds=self._limits.seconds + STARTING)
        try:
            # memory and processes are counted by the container's own control group; files by nobody but its disk limit
            return run_bounded(argv, packed, limits, lambda pid: "")
        finally:  # the client may be gone while the container still runs
            _remove(name)

    def files_of_image(self, folder: str) -> dict[str, Item]:
        """A folder of the image, without version control. Nothing of the image is run for that."""
        docker = docker_program()
        made = _said([docker, "create", "--network", "none", self._image, "true"], 600.0).decode().strip()
        try:
            packed = _said([docker, "cp", f"{made}:{folder}", "-"], 600.0)
        finally:
            _remove(made)
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            items = {name.partition("/")[2]: item for name, item in tar_items(tar, MAX_FOLDER)}
        return {path: item for path, item in items.items() if path and not path.startswith(".git/")}


def _remove(container: str) -> None:
    subprocess.run([docker_program(), "rm", "--force", container], capture_output=True, timeout=60, check=False)


def docker_program() -> str:
    program = shutil.which("docker")
    if program is None:
        raise TaskError(
            f"this needs the docker sandbox and there is no docker here: {HOW_TO_GET}. Code is never run unconfined"
        )
    return program


def container_command(
    docker: str, name: str, image: str, work: str, limits: Limits, command: Sequence[str]
) -> list[str]:
    """The whole command line of one container."""
    argv = [
        docker, "run", "--rm", "--interactive", "--init", "--name", name, "--network", "none", "--user", USER,
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--hostname", "box", "--ipc", "none",
        "--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--pids-limit", str(limits.processes),
        "--cpu-shares", "512",
        "--ulimit", f"fsize={limits.file}", "--ulimit", f"cpu={max(1, round(limits.seconds))}",
        "--ulimit", "core=0", "--ulimit", "nofile=1024", "--log-driver", "none", "--pull", "missing",
    ]  # fmt: skip
    rooms = {work: limits.disk, "/box": limits.file, "/tmp": limits.file}
    for folder, size in rooms.items():
        options = f"rw,exec,nosuid,nodev,size={size},nr_inodes={limits.files},mode=1777"
        argv += ["--tmpfs", f"{folder}:{options}"]
    for variable, value in ENVIRONMENT.items():
        if variable not in ("PATH", "HOME"):  # the image knows its own programs
            argv += ["--env", f"{variable}={value}"]
    return [*argv, "--env", f"HOME={work}", "--workdir", work, "--entrypoint", "/bin/sh", image,
            "-c", UNPACK, "box", *command]  # fmt: skip


def _said(argv: Sequence[str], seconds: float) -> bytes:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise TaskError(f"docker {argv[1]} did not answer within {seconds:.0f} seconds") from error
    if done.returncode != 0:
        raise TaskError(f"docker {argv[1]} failed: {done.stderr.decode('utf-8', 'replace').strip()[:300]}")
    return done.stdout
