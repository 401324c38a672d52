"""Looks at the store and at MLflow from a host: one JSON request a line, one JSON answer a line.

A process that stays, since importing the clients costs more than asking.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

from mlflow.tracking import MlflowClient

from artifacts.mlflow_runs import DATA_EXPERIMENT, EXPERIMENT, NODE_TAG, TRIAL_TAG
from artifacts.tracking import STUDY_TAG
from raise_model.store import Store, TrialFolder

VOLATILE = ("seconds", "provenance", "attempts")
"""Recorded beside a result; not the result."""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _steady(value: Any) -> Any:
    """A JSON value without what differs from run to run."""
    if isinstance(value, dict):
        return {key: _steady(item) for key, item in value.items() if key not in VOLATILE}
    return [_steady(item) for item in value] if isinstance(value, list) else value


def make_bucket(name: str) -> None:
    filesystem = Store(f"s3://{name}").filesystem
    if not filesystem.exists(name):
        filesystem.mkdir(name)


def copy_data(source: str, target: str) -> None:
    """The data sets of one store, for another."""
    filesystem = Store(source).filesystem
    for path in filesystem.find(f"{source}/datasets"):
        relative = path.split("/datasets/", 1)[1]
        filesystem.copy(path, f"{target.removeprefix('s3://')}/datasets/{relative}")


def has_data(root: str) -> bool:
    return root.endswith("/calm") or bool(Store(root).list("datasets"))


def done(root: str) -> list[str]:
    """Names of the finished trials."""
    return [trial.name for trial in Store(root).trials() if trial.is_done]


def claims(root: str) -> dict[str, dict[str, Any]]:
    """Newest claim of every trial that is not finished and whose claim was not given back."""
    held = {}
    for trial in Store(root).trials():
        names = trial.store.list(trial.file("claims"))
        if names and not trial.is_done:
            claim = trial.store.read_json(trial.file(f"claims/{names[-1]}"))
            if not claim["released"]:
                held[trial.name] = claim
    return held


def _trial(trial: TrialFolder) -> dict[str, Any]:
    path = trial.file("log.txt")
    log = trial.store.read(path).decode() if trial.store.exists(path) else ""  # just begun
    starts = [int(step) for step in re.findall(r"attempt \d+ starts at step (\d+)", log)]
    return {
        "done": _digest(trial.store.read(trial.file("done.json"))) if trial.is_done else None,
        "value": _steady(trial.done()) if trial.is_done else None,
        "curve": _digest(trial.store.read(trial.file("curve.parquet"))) if trial.is_done else None,
        "starts": starts,
        "finishes": len(re.findall(r" done: best", log)),
        "after_done": bool(re.search(r" done: best.*\n(?s:.*)attempt \d+ starts", log)),
        "evaluations": {folder.name: _steady(folder.result()) for folder in trial.evaluations()},
    }


def trials(root: str) -> dict[str, Any]:
    """What the store has of every trial."""
    return {trial.name: _trial(trial) for trial in Store(root).trials()}


def _runs(client: MlflowClient, experiment: str = EXPERIMENT) -> list[Any]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id], max_results=1000)) if found else []


def runs() -> list[dict[str, str]]:
    """Trials' runs in MLflow."""
    return [
        {
            "trial": run.data.tags[TRIAL_TAG],
            "status": run.info.status,
            "node": run.data.tags.get(NODE_TAG, ""),
            "accuracy": str(run.data.metrics.get("best_accuracy")),
        }
        for run in _runs(MlflowClient())
        if TRIAL_TAG in run.data.tags
    ]


def studies() -> list[dict[str, str]]:
    """Studies' runs in MLflow, each with its table."""
    client = MlflowClient()
    found = []
    for run in _runs(client):
        if STUDY_TAG in run.data.tags:
            with tempfile.TemporaryDirectory() as folder:
                table = ""
                if any(
                    file.path == "results.csv" for file in client.list_artifacts(run.info.run_id)
                ):
                    path = client.download_artifacts(run.info.run_id, "results.csv", folder)
                    table = Path(path).read_text()
            found.append({"status": run.info.status, "table": table})
    return found


def forget_runs() -> None:
    """An MLflow without runs for the next sweep."""
    client = MlflowClient()
    for experiment in (EXPERIMENT, DATA_EXPERIMENT):
        for run in _runs(client, experiment):
            client.delete_run(run.info.run_id)


QUESTIONS = {
    question.__name__: question
    for question in (
        make_bucket,
        copy_data,
        has_data,
        done,
        claims,
        trials,
        runs,
        studies,
        forget_runs,
    )
}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": QUESTIONS[request["what"]](*request["with"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
