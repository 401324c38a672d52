"""A whole cluster: PostgreSQL, Prefect, MLflow, S3, two Ray nodes and a Prefect worker."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.hosts import Host, HostError, network, plug, unplug
from tests.cluster.parts import BUCKET, HOSTS, PREFECT_API, Parts

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
"""States of a flow run."""


class Cluster(Parts):
    """The parts, and what is asked of them."""

    def start(self) -> None:
        """:raises HostError: if a part does not come up."""
        for name in ("head", "node", "worker"):
            self._give_token(self.hosts[name])
        self.start_postgres(new=True)
        self.start_s3()
        self.join_ray("head")
        self.start_prefect()
        self.start_mlflow()
        self.start_observer()
        self.wait_for("prefect", "mlflow")
        self.ask("make_bucket", BUCKET)
        self.ask("make_bucket", "mlflow")
        self.join_ray("node", "worker")
        self.deploy()
        self.start_worker()
        self.wait_for("prefect-worker")

    def ask(self, what: str, *arguments: Any) -> Any:
        """See ``observer.py``."""
        pipes = self.parts["observer"].entered
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        pipes.stdin.write(json.dumps({"what": what, "with": arguments}) + "\n")
        pipes.stdin.flush()
        line = pipes.stdout.readline()
        if not line:
            raise HostError(f"observer ended: {self.parts['observer'].last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise HostError(f"{what}: {answer['error']}")
        return answer["answer"]

    def prefect(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the Prefect API."""
        command = ["curl", "-sS", "-m", "60", "-X", method, f"{PREFECT_API}{path}"]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        return json.loads(self.services.run(*command))

    def submit(self, deployment: str, **parameters: Any) -> str:
        """Id of a new run of ``raise/<deployment>``."""
        found = self.prefect("GET", f"/deployments/name/raise/{deployment}")
        run = self.prefect(
            "POST", f"/deployments/{found['id']}/create_flow_run",
            {"parameters": parameters, "state": {"type": "SCHEDULED"}},
        )  # fmt: skip
        return run["id"]

    def state(self, run: str) -> str:
        """Type of a flow run's state, "" while the server is away."""
        try:
            return self.prefect("GET", f"/flow_runs/{run}")["state_type"]
        except (HostError, json.JSONDecodeError, KeyError):
            return ""

    def message(self, run: str) -> str:
        return self.prefect("GET", f"/flow_runs/{run}")["state"]["message"] or ""

    def logs(self, run: str) -> str:
        found = self.prefect(
            "POST", "/logs/filter",
            {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": 200},
        )  # fmt: skip
        return "\n".join(line["message"] for line in found)

    def drivers(self) -> list[psutil.Process]:
        """Processes that lead a flow run."""
        found = []
        for process in self.hosts["worker"].processes():
            with contextlib.suppress(psutil.Error):
                if "PREFECT__FLOW_RUN_ID" in process.environ() and "ray" not in process.name():
                    found.append(process)
        return found

    def replace(self, name: str) -> None:
        """A host that lost power boots again, with an empty disk."""
        old = self.hosts[name]
        old.kill()
        self.hosts[name] = plug(Host(name, self.folder, *old.addresses), self.hosts["switch"])
        self._give_token(self.hosts[name])

    def pull_cable(self, name: str, *, cut: bool) -> None:
        unplug(self.hosts[name], self.hosts["switch"], cut=cut)


@contextlib.contextmanager
def running_cluster(*, keep_logs: Path | None = None) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, with everything it wrote.

    :param keep_logs: folder that gets the logs of all parts.
    """
    # Short: Ray's socket paths have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="raise-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with network(folder, **HOSTS) as hosts:
            cluster = Cluster(folder, hosts)
            cluster.start()
            yield cluster
    finally:
        if keep_logs is not None:
            shutil.copytree(folder / "logs", keep_logs, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
