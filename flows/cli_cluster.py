"""The command that makes a cluster's settings."""

from collections.abc import Sequence
from pathlib import Path

import click

from flows.cluster_settings import FILE, SERVER_FILE, write


@click.command("cluster-env")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--services", default="127.0.0.1", show_default=True, metavar="HOST",
              help="Host of Prefect, MLflow and the object store.")  # fmt: skip
@click.option("--head", metavar="HOST", help="Host of the Ray head.  [default: that of --services]")
def cluster_env(folder: Path, services: str, head: str | None) -> None:
    """Make the files that a cluster's settings are in.

    cluster.env and servers.env in FOLDER (default: here): addresses and new passwords.  A
    cluster.env that is there stays as it is; servers.env is made to fit it.
    """
    written = write(folder, services, head or services)
    for path in written:
        click.echo(f"{path} written (mode 600)")
    if not written:
        click.echo(f"{FILE} and {SERVER_FILE} in {folder} are as they should be")


COMMANDS: Sequence[click.Command] = (cluster_env,)
