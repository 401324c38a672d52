"""The command line ``raise-rpm``.

Tables for people go to standard output, progress to standard error; with ``--json`` the last
line of standard output is one JSON object.  Heavy packages are imported by the commands that
need them, so that ``--help`` is quick.

Exit status: 0 done, 1 the run failed, 2 a mistake that the user can mend.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from flows import cli_data, cli_models, cli_report, cli_show, cli_verify
from flows.services import DEFAULT_PORTS, PORT_OPTIONS, TITLES
from raise_model.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")


class Commands(click.Group):
    """Prints a user's mistake as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            if ctx.params["debug"]:
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)
        except Exception as error:
            # What the S3 client raises for credentials and addresses is of no common class.
            if ctx.params["debug"] or not type(error).__module__.startswith("botocore"):
                raise
            reason = " ".join(str(error).split())
            click.echo(f"error: S3: {reason}; see AWS_PROFILE, AWS_ENDPOINT_URL", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Tracebacks instead of one line.")
@click.version_option(package_name="raise-rpm")
def cli(debug: bool) -> None:
    """RAISE (ICLR 2024), reproduced as a sweep on Ray Tune with Prefect and MLflow."""


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="raise-rpm")


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, allow_nan=False))


def _rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _port_options(command: Callable[..., None]) -> Callable[..., None]:
    for name, option in reversed(PORT_OPTIONS.items()):
        command = click.option(
            option, f"{name}_port", default=DEFAULT_PORTS[name], show_default=True,
            type=click.IntRange(1, 65535), help=f"Port of {TITLES[name]}.",
        )(command)  # fmt: skip
    return command


@cli.command()
@_port_options
def up(**ports: int) -> None:
    """Start the services of this home and wait until they answer."""
    from flows.services_console import bring_up, print_addresses

    bring_up({name.removesuffix("_port"): port for name, port in ports.items()})
    print_addresses()


@cli.command()
def down() -> None:
    """Stop the services of this home and everything they started."""
    from flows.services import Services

    services = Services()
    found = services.down(lambda name, what: _say(f"{name} {what}"))
    click.echo("everything is stopped" if found else f"nothing runs in {services.home}")


@cli.command()
@json_option
def status(as_json: bool) -> None:
    """What runs, and where to look.  Exit status 1 if something does not answer."""
    from flows.services import Services, ray_token_command

    services = Services()
    found = services.status()
    rows = [
        (s.title, "answers" if s.answers else "silent" if s.running else "down",
         str(s.pid or ""), s.url, s.log)
        for s in found
    ]  # fmt: skip
    _print(_rows("", ("service", "state", "pid", "address", "log"), rows))
    if any(s.name == "ray" and s.running for s in found):
        click.echo(f"The Ray dashboard asks for a token: {ray_token_command(services.home)}")
    if as_json:
        _print_json({"home": str(services.home), "services": [asdict(s) for s in found]})
    if not all(s.answers for s in found):
        sys.exit(1)


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine and this shell.  Exit status 1 if something essential is broken."""
    from flows.doctor import examine
    from flows.services import Services

    checks = examine(Services())
    _print(_rows("", ("", "check", "found"), [(c.verdict, c.name, c.text) for c in checks]))
    broken = [c.name for c in checks if c.verdict == "fail"]
    if as_json:
        _print_json({"ok": not broken, "checks": [asdict(c) for c in checks]})
    if broken:
        _say(f"broken: {', '.join(broken)}")
        sys.exit(1)


@cli.command()
def serve() -> None:
    """Run flow runs of raise/full-repro, one at a time, until stopped (`up` starts this)."""
    from flows.runs import serve as run

    run()


parameter_option = click.option(
    "-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Parameter of the flow, as for prefect deployment run.",
)  # fmt: skip


@cli.command()
@parameter_option
@json_option
def plan(pairs: Sequence[str], as_json: bool) -> None:
    """Trials, steps, time and disk that a run on this machine would take."""
    from flows.local_plan import plan_here

    made, refusal = plan_here(cli_data.parse_parameters(pairs))
    rows = [(name.replace("_", " "), f"{value:.2f}" if isinstance(value, float) else str(value))
            for name, value in made.to_json().items()]  # fmt: skip
    _print(_rows("", ("", ""), rows))
    if refusal:
        _say(f"the flow would refuse it: {refusal}")
    if as_json:
        _print_json(made.to_json() | {"refusal": refusal})


@cli.command()
@click.argument("flow_run", required=False)
def cancel(flow_run: str | None) -> None:
    """Cancel a flow run (name or id; default: the newest) and wait until it has ended."""
    from flows.services import Services

    Services().reach_prefect()
    from flows.runs import cancel as cancel_run

    state = cancel_run(flow_run, _say)
    click.echo(f"{state.name}: the same parameters again go on where it stopped")


@cli.command()
@parameter_option
@_port_options
def demo(pairs: Sequence[str], **ports: int) -> None:
    """The whole pipeline at small scale: services, data, sweep, table."""
    from flows.services_console import bring_up, print_addresses

    bring_up({name.removesuffix("_port"): port for name, port in ports.items()})
    from flows.demo import run_demo

    completed = run_demo({"preset": "demo"} | cli_data.parse_parameters(pairs))
    print_addresses()
    click.echo("The services stay up; stop them by: raise-rpm down")
    sys.exit(0 if completed else 1)


for command in (
    *cli_data.COMMANDS,
    *cli_models.COMMANDS,
    *cli_report.COMMANDS,
    *cli_show.COMMANDS,
    *cli_verify.COMMANDS,
):
    cli.add_command(command)

if __name__ == "__main__":
    main()
