"""The fault matrix: sweeps that meet a fault in the middle and are resumed.

``python -m tests.cluster.fault_matrix GROUP | FAULT ...`` runs one group of four (1 to 5) or
single faults on a cluster of its own, after one undisturbed sweep, and writes their rows into
``docs/faults.md``.  A group takes less than 25 minutes on two free cores.
"""

import argparse
import datetime
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import Cluster, running_cluster
from tests.cluster.fault_sweep import Result, say, sweep, verdict
from tests.cluster.faults import FAULTS, GROUPS, TRIALS
from tests.cluster.hosts import REPOSITORY, HostError

PAGE = REPOSITORY / "docs" / "faults.md"
HEADER = """# Faults

Sweeps of twelve short trainings (preset `smoke` with 120 steps, four configurations, three
seeds) on two Ray nodes, with a Prefect worker on a third machine, Prefect and MLflow on
PostgreSQL and the store on S3, all as processes in network namespaces of one machine. The
fault comes in the middle, while a trial runs (on the node that it strikes); where it ended the
run, the same deployment is run again.
Written by `python -m tests.cluster.fault_matrix`.

- *sweep*: the fault came alone, or after others in the same sweep
- *done before*: trials of the twelve that were finished when it came
- *runs*: how each run of the deployment ended; `lost`: its process was gone and Prefect not told
- *restarts*: trainings that went on in another process
- *lost*: finished trials that changed or vanished; *twice*: finished trials trained again
- *duplicates*: trials with more than one MLflow run
- *table*: weights' measures, curves, evaluations and final table, compared bit for bit with an
  undisturbed sweep on the same cluster

| fault | sweep | done before | runs | restarts | lost | twice | duplicates | table | s | date |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def write_row(name: str, cells: Sequence[str]) -> None:
    """Put a row into the page, in place of an older one."""
    text = PAGE.read_text() if PAGE.exists() else HEADER
    rows = dict(re.findall(r"(?m)^\| ([^|]+?) \|(.*)$", text.split("|---|", 1)[1]))
    rows[name] = f" {' | '.join([*cells, f'{datetime.date.today()}'])} |"
    order = [known for known in FAULTS if known in rows]
    body = "".join(f"| {known} |{rows[known]}\n" for known in order)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(HEADER + body)


def run_faults(cluster: Cluster, sweeps: Sequence[Sequence[str]], calm: Result) -> int:
    """Number of sweeps after which something was wrong."""
    bad = 0
    for names in sweeps:
        say(f"{', '.join(names)} ...")
        try:
            result = sweep(cluster, "-".join(names), [FAULTS[name] for name in names])
        except HostError as error:
            bad += 1
            say(f"    {error}")
            continue
        cells, wrong = verdict(result, calm)
        for name in names:
            others = f"{len(names) - 1} others" if len(names) > 1 else "alone"
            write_row(name, [others, str(len(result.before[name])), *cells])
        say(f"    {cells}")
        for line in wrong:
            say(f"    WRONG {line}")
        bad += bool(wrong)
    return bad


def calm_sweep(cluster: Cluster) -> Result:
    """The undisturbed sweep, which also makes the data of the others."""
    say(f"undisturbed sweep on {platform.platform()}, {os.cpu_count()} CPUs ...")
    calm = sweep(cluster, "calm", [])
    if calm.states != ["COMPLETED"] or len(calm.trials) != TRIALS:
        raise HostError(f"the undisturbed sweep: {calm.states}, {len(calm.trials)} trials")
    say(f"    {calm.seconds:.0f} s")
    return calm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", help=f"1 to {len(GROUPS)}, or names of faults")
    parser.add_argument(
        "--together", action="store_true", help="all faults in one sweep, one after the other"
    )
    parser.add_argument("--logs", type=Path, help="folder for the logs of all parts")
    arguments = parser.parse_args()
    names = []
    for what in arguments.what:
        names += GROUPS[int(what)] if what.isdecimal() else [n for n in FAULTS if what in n]
    with running_cluster(keep_logs=arguments.logs) as cluster:
        sweeps = [names] if arguments.together else [[name] for name in names]
        return min(1, run_faults(cluster, sweeps, calm_sweep(cluster)))


if __name__ == "__main__":
    sys.exit(main())
