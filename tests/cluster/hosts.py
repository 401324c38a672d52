"""Hosts of a cluster on one machine: processes with a network, process table, name and disk apart.

Each host is a set of Linux namespaces without a name, so that they are gone with their last
process, and two clusters on one machine cannot meet.  The first process of a host waits for
the end of a pipe that the harness holds: however the harness ends, all hosts end with it.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parents[2]
NETWORK = "10.77.0"
DISK_MIB = 2048
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")


class HostError(RuntimeError):
    """A command on a host failed, or a part of the cluster did not come up."""


class Host:
    """One machine of the cluster.

    ``home`` has the same path on every host and is a disk of its own on each.
    """

    def __init__(self, name: str, folder: Path, *addresses: str) -> None:
        """:param folder: holds ``home`` (where the disk is mounted) and ``logs``."""
        self.name = name
        self.addresses = addresses
        self.home = folder / "home"
        self._logs = folder / "logs"
        self._parts: list[Part] = []
        for path in (self.home, self._logs):
            path.mkdir(exist_ok=True)
        # With a command after it the shell stays, and reaps what loses its parent.
        script = (
            f"hostname {name} && ip link set lo up && "
            f"mount -t tmpfs -o size={DISK_MIB}m,mode=755 {name} {self.home} && "
            f"mkdir -m 1777 {self.home}/tmp && mkdir {self.home}/user && "
            "mount -t tmpfs -o size=512m,mode=1777 shm /dev/shm && "
            "echo ready && cat >/dev/null; exit 0"
        )
        self._unshare = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._unshare.stdout is not None
        if self._unshare.stdout.readline() != "ready\n":
            raise HostError(f"host {name} does not start; namespaces need root")
        self.pid = psutil.Process(self._unshare.pid).children()[0].pid
        """Of the first process, outside."""
        self._pid_namespace = os.readlink(f"/proc/{self.pid}/ns/pid")

    @property
    def address(self) -> str:
        return self.addresses[0]

    def _inside(self, command: Sequence[str], user: str | None) -> list[str]:
        enter = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--ipc", "--pid", "--mount"]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*enter, "--", "env", f"--chdir={REPOSITORY}", *become, *command]

    def environment(self) -> dict[str, str]:
        """What every process of this host gets."""
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.home / "user"),
            "TMPDIR": str(self.home / "tmp"),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": "*",
            "DO_NOT_TRACK": "true",
        }

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None,
        user: str | None = None, timeout: float = 300, check: bool = True,
    ) -> str:  # fmt: skip
        """Output of a command that ends.

        :raises HostError: if it fails, with the end of what it said.
        """
        done = subprocess.run(
            self._inside(command, user),
            env=self.environment() | dict(environment or {}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout,
        )  # fmt: skip
        if check and done.returncode:
            raise HostError(f"{self.name}: {' '.join(command)}: {done.stdout[-3000:]}")
        return done.stdout

    def start(
        self, name: str, *command: str, environment: Mapping[str, str] | None = None,
        user: str | None = None, pipes: bool = False,
    ) -> "Part":  # fmt: skip
        """A process that stays; its output goes to ``logs/<host>-<name>.log``."""
        log = self._logs / f"{self.name}-{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._inside(command, user),
                env=self.environment() | dict(environment or {}),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._parts.append(Part(name, process, log))
        return self._parts[-1]

    def processes(self) -> list[psutil.Process]:
        """Those that live on this host."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if (
                    os.readlink(f"/proc/{process.pid}/ns/pid") == self._pid_namespace
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def owns(self, machine: str) -> bool:
        """Whether a claim's ``machine`` is this host."""
        return machine.endswith(self._pid_namespace)

    def route(self, address: str, *, cut: bool) -> None:
        """Cut this host off from one address, or let it through again."""
        self.run("ip", "route", "add" if cut else "del", "unreachable", f"{address}/32")

    def fill_disk(self) -> None:
        """Leave no byte free under ``home``."""
        with contextlib.suppress(HostError):
            self.run("dd", "if=/dev/zero", f"of={self.home}/filler", "bs=1M")

    def free_disk(self) -> None:
        self.run("rm", "-f", f"{self.home}/filler")

    def kill(self) -> None:
        """Power off: every process of this host at once."""
        if self._unshare.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self.pid).kill()
        for process in (self._unshare, *(part.entered for part in self._parts)):
            process.wait(timeout=60)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()


class Part:
    """A started process of a host."""

    def __init__(self, name: str, entered: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.entered = entered
        """``nsenter``, which ends when the process does."""

    @property
    def is_alive(self) -> bool:
        return self.entered.poll() is None

    def family(self) -> list[psutil.Process]:
        """The process, first, and its descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.entered.pid).children(recursive=True)
        return []

    def signal(self, number: int) -> None:
        """To the process alone."""
        if family := self.family():
            family[0].send_signal(number)

    def kill(self, *, family: bool = True) -> None:
        for process in self.family() if family else self.family()[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.entered.wait(timeout=30)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


@contextlib.contextmanager
def network(folder: Path, **hosts: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Hosts by name, each with its addresses, on one switch."""
    switch = Host("switch", folder)
    started = {"switch": switch}
    try:
        switch.run("ip", "link", "add", "bridge", "type", "bridge")
        switch.run("ip", "link", "set", "bridge", "up")
        for name, addresses in hosts.items():
            started[name] = plug(Host(name, folder, *addresses), switch)
        yield started
    finally:
        for host in started.values():
            host.kill()


def plug(host: Host, switch: Host) -> Host:
    """Connect a new host to the switch."""
    port = f"p-{host.address.rpartition('.')[2]}"
    # Of a host that had this address before, where the kernel has not yet removed it.
    switch.run("ip", "link", "delete", port, check=False)
    subprocess.run(
        ["nsenter", f"--target={switch.pid}", "--net", "ip", "link", "add", port, "type", "veth",
         "peer", "name", "eth0", "netns", str(host.pid)],
        check=True,
    )  # fmt: skip
    switch.run("ip", "link", "set", port, "master", "bridge", "up")
    for address in host.addresses:
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    host.run("ip", "link", "set", "eth0", "up")
    # Ray asks which of its addresses the way out would take; there is none beyond the switch.
    host.run("ip", "route", "add", "default", "dev", "eth0")
    return host


def unplug(host: Host, switch: Host, *, cut: bool) -> None:
    """Pull a host's cable, or put it back."""
    port = f"p-{host.address.rpartition('.')[2]}"
    switch.run("ip", "link", "set", port, "down" if cut else "up")


def wait_for(what: str, ready, seconds: float, *parts: Part, every: float = 1.0) -> None:
    """:raises HostError: if ``ready`` stays false, or one of ``parts`` ends before."""
    deadline = time.monotonic() + seconds
    while not ready():
        for part in parts:
            if not part.is_alive:
                raise HostError(f"{part.name} ended: {part.last_words()}")
        if time.monotonic() > deadline:
            words = "".join(part.last_words() for part in parts)
            raise HostError(f"{what} after {seconds:.0f} s: {words}")
        time.sleep(every)


PYTHON = sys.executable
