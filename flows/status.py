"""What this shell can see: services of its home, servers that its environment names, runs.

A user on a laptop that is pointed at a cluster's servers has no services at home, and wants to
know of the runs there; all addresses come from the environment, as for ``prefect`` and
``mlflow`` themselves.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flows.services import Services, Status, answers
from raise_model.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that the environment names."""

    title: str
    variable: str
    url: str
    answers: bool


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Everything that ``raise-rpm status`` shows."""

    services: list[Status]
    """Of this home; not looked at where the environment names servers and none runs here."""
    servers: list[Server]
    runs: list[Any] = field(default_factory=list)
    """Of :class:`flows.remote_runs.RunStatus`."""
    runs_problem: str = ""
    """Why there are no runs to show, in one line."""
    trials: Mapping[str, int] = field(default_factory=dict)
    """Of a store that was named, by state."""
    tracked: Mapping[str, float] = field(default_factory=dict)
    """Trials in MLflow by status, and the ``best_accuracy`` on validation problems of any; where
    no Prefect server is named that could say more."""

    @property
    def all_answer(self) -> bool:
        services = all(service.answers for service in self.services)
        return services and all(s.answers for s in self.servers) and not self.runs_problem


def named_servers(environment: Mapping[str, str]) -> list[Server]:
    """Prefect and MLflow, where the environment says where they are."""
    places = (("Prefect", "PREFECT_API_URL"), ("MLflow", "MLFLOW_TRACKING_URI"))
    return [
        Server(
            title=title,
            variable=variable,
            url=url,
            answers=answers(url.rstrip("/") + "/health", 10.0),
        )
        for title, variable in places
        if (url := environment.get(variable, "")).startswith(("http://", "https://"))
    ]


def look(services: Services, store: str = "") -> Overview:
    """Ask everything once.

    :param store: folder or URI of a store whose trials to count.
    """
    servers = named_servers(os.environ)
    alive = services.alive()
    here = services.status() if alive or not servers else []
    runs, problem = [], ""
    if "prefect" in alive or any(s.title == "Prefect" and s.answers for s in servers):
        services.reach_prefect()
        runs, problem = _runs()
    tracked: Mapping[str, float] = {}
    mlflow = next((s.url for s in servers if s.title == "MLflow" and s.answers), "")
    if mlflow and not any(s.title == "Prefect" for s in servers):
        tracked = tracked_trials(mlflow)
    trials: Mapping[str, int] = {}
    if store:
        from flows.trial_states import Observer
        from raise_model.store import Store

        trials = dict(Observer(Store(store)).counts())
    return Overview(
        services=here, servers=servers, runs=runs, runs_problem=problem, trials=trials,
        tracked=tracked,
    )  # fmt: skip


def tracked_trials(uri: str) -> dict[str, float]:
    """Trials that an MLflow server has, by status, and the best accuracy of any.

    :raises UserError: if the server does not answer.
    """
    from artifacts.mlflow_runs import TRIAL_TAG, Experiment

    runs = Experiment(uri).search(f"tags.`{TRIAL_TAG}` LIKE '%'")
    found: dict[str, float] = dict(Counter(run.info.status.lower() for run in runs))
    known = [run.data.metrics.get("validation_accuracy") for run in runs]
    if accuracies := [value for value in known if value is not None]:
        found["best_accuracy"] = max(accuracies)
    return found


def _runs() -> tuple[list[Any], str]:
    from prefect.client.orchestration import get_client

    from flows.remote_runs import read_runs

    try:
        with get_client(sync_client=True) as client:
            return list(read_runs(client)), ""
    except UserError as error:
        return [], str(error)
