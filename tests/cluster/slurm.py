"""A Slurm cluster of three hosts: the controller, and two nodes with a GPU by name only."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from tests.cluster.hosts import NETWORK, PYTHON, REPOSITORY, Host, network, wait_for

HOSTS = {
    "login": (f"{NETWORK}.41",),
    "node1": (f"{NETWORK}.42",),
    "node2": (f"{NETWORK}.43",),
}
SCRIPT = REPOSITORY / "deploy" / "slurm.sbatch"
NODES = ("node1", "node2")
START_SECONDS = 60.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
"""States of a job."""

CONF = """\
ClusterName=raise
SlurmctldHost=login({login})
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
SlurmUser=root
StateSaveLocation={home}/slurmctld
SlurmdSpoolDir={home}/slurmd
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=30
KillWait=30
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName=node1 NodeAddr={node1} CPUs={cpus} RealMemory=8192 Gres=gpu:1
NodeName=node2 NodeAddr={node2} CPUs={cpus} RealMemory=8192 Gres=gpu:1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A running Slurm; jobs are submitted from ``login`` in :attr:`work`, which all share."""

    def __init__(self, folder: Path, hosts: Mapping[str, Host], cpus: int) -> None:
        self.hosts = hosts
        self.work = folder / "work"
        self.work.mkdir()
        self._conf = folder / "slurm.conf"
        self._key = folder / "munge.key"
        self._key.write_bytes(os.urandom(64))
        self._key.chmod(0o400)
        home = hosts["login"].home
        addresses = {name: hosts[name].address for name in HOSTS}
        self._conf.write_text(CONF.format(home=home, cpus=cpus, **addresses))
        # Slurm does not count a GPU without a device file.
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        # Without names each daemon waits for DNS, which does not answer.
        names = folder / "hosts"
        names.write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"{address} {name}\n" for name, address in addresses.items())
        )
        for name in HOSTS:
            hosts[name].run("mount", "--bind", str(names), "/etc/hosts")

    @property
    def temporary(self) -> Path:
        """A folder on each node's own disk."""
        return self.hosts["login"].home / "j"

    def start(self) -> None:
        """:raises HostError: if a part does not come up."""
        parts = []
        for name in HOSTS:
            host = self.hosts[name]
            files = {
                option: f"--{option}-file={host.home}/munge.{option}"
                for option in ("pid", "log", "seed")
            }
            # It returns when its daemon listens.
            host.run(
                "munged", "--force", f"--key-file={self._key}",
                f"--socket={host.home}/munge.socket", *files.values(),
            )  # fmt: skip
            command = "slurmctld" if name == "login" else "slurmd"
            identity = [] if name == "login" else ["-N", name]
            host.run("mkdir", f"{host.home}/{command}")
            part = host.start(command, command, "-D", *identity, environment=self._environment())
            parts.append(part)
        wait_for(
            "nodes are not idle",
            lambda: self.ask("sinfo", "-h", "-o", "%t %D").strip() == "idle 2",
            START_SECONDS,
            *parts,
        )
        self._own = {process.pid for name in NODES for process in self.hosts[name].processes()}

    def _environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self._conf)}

    def ask(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Output of one of Slurm's commands.

        :raises HostError: if it fails.
        """
        return self.hosts["login"].run(
            "env", f"--chdir={self.work}", *command,
            environment=self._environment() | dict(environment or {}),
        )  # fmt: skip

    def submit(self, *parameters: str, options: Sequence[str] = (), **environment: str) -> str:
        """Number of a new job, whose commands are those of this Python.

        :param parameters: of the flow; ``options`` are those of ``sbatch``.
        """
        given = {
            "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
            "RAISE_TMP": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            # A busy machine is slow to start Ray.
            "RAY_agent_register_timeout_ms": "300000",
            "RAY_raylet_start_wait_time_s": "300",
        }
        chosen = [f"--param={parameter}" for parameter in parameters]
        return self.ask(
            "sbatch", "--parsable", *options, str(SCRIPT), *chosen, environment=given | environment
        ).strip()

    def state(self, job: str) -> str:
        found = self.ask("scontrol", "show", "job", job)
        return found.partition("JobState=")[2].split()[0]

    def wait(self, job: str, seconds: float) -> str:
        """State in which a job ended."""
        wait_for(f"job {job} has not ended", lambda: self.state(job) in ENDED, seconds, every=2.0)
        return self.state(job)

    def output(self, job: str) -> str:
        return (self.work / f"raise-{job}.log").read_text(errors="replace")

    def left(self) -> list[str]:
        """Processes and folders of jobs on the nodes."""
        found = []
        for name in NODES:
            host = self.hosts[name]
            for process in host.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.pid not in self._own:
                        found.append(f"{name}: {' '.join(process.cmdline())}")
            folders = host.run("find", str(host.home), "-maxdepth", "1", "-name", "j")
            found += [f"{name}: {folder}" for folder in folders.split()]
        return found


@contextlib.contextmanager
def running_slurm(cpus: int) -> Iterator[Slurm]:
    """:param cpus: that each node says it has."""
    # Ray's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with network(folder, **HOSTS) as hosts:
            slurm = Slurm(folder, hosts, cpus)
            slurm.start()
            yield slurm
