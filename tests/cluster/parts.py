"""The parts of the cluster: how each is started, and on which host.

As ``docs/cluster.md`` says, each part where a lab would have it.
"""

import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.cluster.hosts import NETWORK, PYTHON, Host, HostError, Part, wait_for

POSTGRES, PREFECT, MLFLOW, S3 = (f"{NETWORK}.{number}" for number in (11, 12, 13, 14))
HEAD, NODE, WORKER = (f"{NETWORK}.{number}" for number in (21, 22, 31))
HOSTS = {
    "services": (POSTGRES, PREFECT, MLFLOW, S3),
    "head": (HEAD,),
    "node": (NODE,),
    "worker": (WORKER,),
}
RAY_ADDRESS = f"{HEAD}:6379"
PREFECT_API = f"http://{PREFECT}:4200/api"
MLFLOW_URI = f"http://{MLFLOW}:5000"
START_SECONDS = 300.0
"""Servers start several times slower on a machine that is busy."""
RAY_ATTEMPTS = 8
BUCKET = "raise"
POSTGRES_BIN = Path("/usr/lib/postgresql/15/bin")
HEALTH = {"prefect": f"{PREFECT_API}/health", "mlflow": f"{MLFLOW_URI}/health"}


class Parts:
    """All parts by name."""

    def __init__(self, folder: Path, hosts: dict[str, Host]) -> None:
        self.folder = folder
        self.hosts = hosts
        self.parts: dict[str, Part] = {}
        self.s3_trouble = folder / "s3-answers-500"
        self._token = secrets.token_hex(32)

    @property
    def services(self) -> Host:
        return self.hosts["services"]

    @property
    def home(self) -> Path:
        """The same path on every host."""
        return self.services.home

    def settings(self) -> dict[str, str]:
        """Environment of every process that knows the cluster."""
        return {
            "RAISE_HOME": str(self.home / "raise"),
            "AWS_ENDPOINT_URL": f"http://{S3}:9000",
            "AWS_ACCESS_KEY_ID": "raise",
            "AWS_SECRET_ACCESS_KEY": "only-in-this-test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "MLFLOW_TRACKING_URI": MLFLOW_URI,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "PREFECT_HOME": str(self.home / "prefect"),
            "PREFECT_API_URL": PREFECT_API,
            "PREFECT_CLI_PROMPT": "false",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
            "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.home / "ray_token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAY_CHDIR_TO_TRIAL_DIR": "0",
            "RAY_ADDRESS": RAY_ADDRESS,
            # Ray's own patience with its processes is half a minute.
            "RAY_agent_register_timeout_ms": "300000",
            "RAY_raylet_start_wait_time_s": "300",
            "RAY_worker_register_timeout_seconds": "300",
            "OMP_NUM_THREADS": "1",
        }

    def _give_token(self, host: Host) -> None:
        path = self.home / "ray_token"
        host.run("sh", "-c", f"umask 077 && printf %s {self._token} > {path}")

    def start_postgres(self, *, new: bool = False) -> None:
        data, host = self.home / "postgres", self.services
        if new:
            host.run("install", "-d", "-o", "postgres", "-g", "postgres", "-m", "700", str(data))
            host.run(
                str(POSTGRES_BIN / "initdb"), "--pgdata", str(data), "--username=postgres",
                "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8",
                user="postgres",
            )  # fmt: skip
            rule = f"host all all {NETWORK}.0/24 trust"
            host.run("sh", "-c", f"echo '{rule}' >> {data}/pg_hba.conf")
        self.parts["postgres"] = host.start(
            "postgres", str(POSTGRES_BIN / "postgres"), "-D", str(data), "-h", POSTGRES,
            "-c", f"unix_socket_directories={self.home}/tmp", "-c", "max_wal_size=64MB",
            user="postgres",
        )  # fmt: skip
        ready = [str(POSTGRES_BIN / "pg_isready"), "-q", "-h", POSTGRES, "-U", "postgres"]
        wait_for(
            "PostgreSQL does not answer",
            lambda: not host.run("sh", "-c", f"{' '.join(ready)} || echo no", check=False),
            START_SECONDS,
            self.parts["postgres"],
        )
        if new:
            for name in ("prefect", "mlflow"):
                statements = f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}"
                for statement in statements:
                    self._sql("postgres", statement)
            self._sql("prefect", "CREATE EXTENSION pg_trgm")

    def _sql(self, database: str, statement: str) -> None:
        psql = [str(POSTGRES_BIN / "psql"), "-q", "-h", POSTGRES, "-U", "postgres", "-d", database]
        self.services.run(*psql, "-c", statement)

    def start_s3(self) -> None:
        self.parts["s3"] = self.services.start(
            "s3", PYTHON, "-m", "tests.cluster.object_store", S3, "9000", str(self.s3_trouble)
        )

    def start_prefect(self) -> None:
        database = {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": (
                f"postgresql+asyncpg://prefect@{POSTGRES}:5432/prefect"
            )
        }
        self.parts["prefect"] = self.services.start(
            "prefect", PYTHON, "-m", "prefect", "--no-prompt", "server", "start",
            "--host", PREFECT, "--port", "4200", environment=self.settings() | database,
        )  # fmt: skip

    def start_mlflow(self) -> None:
        self.parts["mlflow"] = self.services.start(
            "mlflow", PYTHON, "-m", "mlflow", "server",
            "--backend-store-uri", f"postgresql+psycopg2://mlflow@{POSTGRES}:5432/mlflow",
            "--artifacts-destination", "s3://mlflow/artifacts",
            "--host", MLFLOW, "--port", "5000", "--workers", "1",
            environment=self.settings(),
        )  # fmt: skip

    def start_ray(self, host: str, *, environment: Mapping[str, str] | None = None) -> None:
        """``head`` and ``node`` have a slot each; ``worker`` only joins."""
        address = self.hosts[host].address
        role = (
            ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self.home}/ray"]
            if host == "head"
            else [f"--address={RAY_ADDRESS}"]
        )
        self.parts[host] = self.hosts[host].start(
            "ray", PYTHON, "-m", "tests.cluster.patient_ray", "start", "--block", *role,
            f"--node-ip-address={address}", f"--num-cpus={0 if host == 'worker' else 1}",
            f"--object-store-memory={128 * 1024**2}", "--dashboard-agent-listen-port=0",
            "--disable-usage-stats", "--log-color=false",
            environment=self.settings() | dict(environment or {}),
        )  # fmt: skip

    def join_ray(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Start Ray on hosts where it does not run, again and again, as systemd would.

        Ray gives up after half a minute, which a busy machine may need.

        :raises HostError: if one still does not run after many attempts.
        """
        for name in names:
            for attempt in range(RAY_ATTEMPTS):
                self._end_ray(name)
                self.start_ray(name, environment=environment)
                try:
                    self.wait_for(name)
                    break
                except HostError:
                    if attempt + 1 == RAY_ATTEMPTS:
                        raise

    def _end_ray(self, name: str) -> None:
        """End what is left of Ray on a host; never a driver."""
        if name in self.parts:
            self.parts[name].kill()
            self.parts[name].log.write_text("")
        for process in self.hosts[name].processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                words = " ".join([process.name(), *process.cmdline()])
                if "/ray/" in words or "ray::" in words:
                    process.kill()

    def start_observer(self) -> None:
        self.parts["observer"] = self.services.start(
            "observer", PYTHON, "-m", "tests.cluster.observer",
            environment=self.settings(), pipes=True,
        )  # fmt: skip

    def deploy(self) -> None:
        """``raise/full-repro`` and ``raise/faults`` for a process work pool."""
        for command in (
            ["work-pool", "create", "raise-pool", "--type", "process"],
            ["deploy", "--all"],
            [
                "deploy",
                "tests.cluster.longer:full_repro",
                "--name",
                "faults",
                "--pool",
                "raise-pool",
            ],
        ):
            self.hosts["worker"].run(
                PYTHON, "-m", "prefect", "--no-prompt", *command, environment=self.settings()
            )

    def start_worker(self) -> None:
        self.parts["prefect-worker"] = self.hosts["worker"].start(
            "prefect", PYTHON, "-m", "prefect", "worker", "start", "--pool", "raise-pool",
            environment=self.settings(),
        )  # fmt: skip

    def wait_for(self, *names: str) -> None:
        """:raises HostError: if one of these parts does not answer in time."""
        for name in names:
            wait_for(
                f"{name} does not answer",
                lambda name=name: self._is_ready(name),
                START_SECONDS,
                self.parts[name],
            )

    def _is_ready(self, name: str) -> bool:
        if name in HEALTH:
            return self._answers(HEALTH[name])
        said = "started!" if name == "prefect-worker" else "Ray runtime started"
        return said in self.parts[name].last_words()

    def _answers(self, url: str) -> bool:
        options = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "5"]
        return self.services.run("curl", *options, url, check=False) == "200"
