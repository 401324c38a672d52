"""Stage 4: the aggregated table and the report, in Prefect and in MLflow."""

from collections.abc import Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from artifacts import aggregate
from artifacts.report import Report, build_report
from artifacts.tables import ResultsTable
from artifacts.tracking import Tracker
from flows.progress import Progress
from flows.studies import Lowered
from flows.tables import store_parameter, table_of
from raise_model.store import Store


@task(name="report", cache_policy=NO_CACHE, description="Aggregate, and publish the table.")
def report(
    store: Store,
    lowered: Lowered,
    preset: str,
    tracker: Tracker,
    progress: Progress,
    is_last: bool,
) -> ResultsTable:
    """What is missing is named in the table.

    :param is_last: whether the run has nothing more to train or to evaluate.
    """
    table = table_of(store, preset, lowered.evaluations)
    tracker.sync(store, lowered.trials)
    tracker.summarise(aggregate.summarise(aggregate.results(store, lowered.evaluations)))
    tracker.upload("results.md", table.to_markdown())
    tracker.upload("results.csv", table.to_csv())
    made = build_report(
        store,
        preset=preset,
        seeds=len({trial.seed for trial in lowered.trials}),
        store_parameter=store_parameter(store, preset),
    )
    uploaded = upload(made, tracker)
    create_table_artifact(
        table=table.to_rows(),
        key="raise-results",
        description="\n".join([table.title, *table.heading, *table.notes]),
    )
    create_markdown_artifact(
        markdown=summary(made, table, store, tracker, uploaded),
        key="raise-report",
        description="Aggregated results, and where to find the rest",
    )
    # This table is of bottom-right selection; a study may ask for other protocols alone.
    numbers = f"{len(table.details)} numbers" if len(table.details) else "other evaluations alone"
    text = f"{'table' if is_last else 'first table'} of {numbers}"
    progress.update("report", 1.0 if is_last else 0.5, text, now=True)
    return table


def upload(made: Report, tracker: Tracker) -> Sequence[str]:
    """Hand the report's texts to the tracker, in a folder ``report``; returns their names."""
    files = made.files(png=False)
    for name, data in files.items():
        tracker.upload(f"report/{name}", data.decode())
    return [f"report/{name}" for name in files]


def summary(
    made: Report, table: ResultsTable, store: Store, tracker: Tracker, uploaded: Sequence[str]
) -> str:
    """Markdown: links, how much of the paper is reproduced, the table, what is missing."""
    counts = made.summary()["cells"]
    experiment = f"{tracker.uri}/{tracker.experiment_path}"
    main = [name for name in uploaded if name.count("/") == 1 and name != "report/README.md"]
    parts = [
        f"# Results of preset {made.preset}",
        f"- MLflow: [{experiment}]({experiment}); artifacts of the study's run: "
        + ", ".join(f"`{name}`" for name in main)
        + ", LaTeX, CSV and figures beside them\n"
        f"- the same on this machine: `raise-rpm report --preset {made.preset} "
        f"--store {store.root}`\n"
        f"- store: `{store.root}`\n"
        "- a trial's log: `raise-rpm logs TRIAL`",
        f"{counts['reproduced']} of the paper's {counts['published']} numbers are reproduced: "
        f"{counts['inside']} inside, {counts['above']} above, {counts['below']} below, "
        f"{counts['no mark']} with too few seeds for a mark; {counts['own model only']} more have "
        "a number of a model of this project that extends the paper's.",
        table.to_markdown(),
        "## Missing of the paper",
        made.missing_markdown(),
    ]
    return "\n\n".join(parts) + "\n"
