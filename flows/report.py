"""Stage 4: the aggregated table, in Prefect, in MLflow and as text."""

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from artifacts import aggregate
from artifacts.tables import ResultsTable
from artifacts.tracking import Tracker
from flows.progress import Progress
from flows.studies import Lowered
from flows.tables import table_of
from raise_model.store import Store


@task(name="report", cache_policy=NO_CACHE, description="Aggregate, and publish the table.")
def report(
    store: Store, lowered: Lowered, preset: str, tracker: Tracker, progress: Progress
) -> ResultsTable:
    """What is missing is named in the table."""
    table = table_of(store, preset, lowered.evaluations)
    tracker.sync(store, lowered.trials)
    tracker.summarise(aggregate.summarise(aggregate.results(store, lowered.evaluations)))
    tracker.upload("results.md", table.to_markdown())
    tracker.upload("results.csv", table.to_csv())
    create_table_artifact(
        table=table.to_rows(),
        key="raise-results",
        description="\n".join([table.title, *table.heading, *table.notes]),
    )
    links = [
        f"- MLflow: [{tracker.uri}]({tracker.uri}/{tracker.experiment_path})",
        f"- store: `{store.root}`",
        "- a trial's log: `raise-rpm logs TRIAL`",
    ]
    create_markdown_artifact(
        markdown=f"# Results of preset {preset}\n\n" + "\n".join(links) + "\n\n"
        + table.to_markdown(),
        key="raise-report",
        description="Aggregated results, and where to find the rest",
    )  # fmt: skip
    progress.update("report", 1.0, f"table of {len(table.details)} numbers", now=True)
    return table
