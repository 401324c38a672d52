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

from flows import cli_cluster, cli_data, cli_models, cli_report, cli_runs, cli_show, cli_verify
from flows.board import duration
from flows.cluster_settings import load
from flows.parameters import DemoCommand, ParametersCommand
from flows.services import DEFAULT_PORTS, PORT_OPTIONS, TITLES
from raise_model.errors import StoreAway, UserError, place_error
from tune_spaces.home import raise_home

if TYPE_CHECKING:
    from rich.table import Table

    from flows.status import Overview

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")


class Commands(click.Group):
    """Prints a user's mistake as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (UserError, StoreAway) as error:
            if ctx.params["debug"]:
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)
        except OSError as error:
            mistake = place_error(error)
            if ctx.params["debug"] or mistake is None:
                raise
            click.echo(f"error: {mistake}", err=True)
            ctx.exit(2)
        except Exception as error:
            # What the S3 client raises for credentials and addresses is of no common class.
            if ctx.params["debug"] or not type(error).__module__.startswith("botocore"):
                raise
            reason = " ".join(str(error).split())
            click.echo(f"error: S3: {reason}; see AWS_PROFILE, AWS_ENDPOINT_URL", err=True)
            ctx.exit(2)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option("--debug", is_flag=True, help="Tracebacks instead of one line.")
@click.version_option(package_name="raise-rpm")
def cli(debug: bool) -> None:
    """RAISE (ICLR 2024), reproduced as a sweep on Ray Tune with Prefect and MLflow."""
    # Whoever makes settings anew is not held up by damaged ones.
    context = click.get_current_context()
    if context.invoked_subcommand != "cluster-env":
        context.obj = load(raise_home())


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
    """Start the services and wait until they answer.

    They are those of RAISE_HOME (default: .raise in this folder).
    """
    from flows.services_console import bring_up, print_addresses

    bring_up({name.removesuffix("_port"): port for name, port in ports.items()})
    print_addresses()


@cli.command()
def down() -> None:
    """Stop the services and everything they started."""
    from flows.services import Services

    services = Services()
    found = services.down(lambda name, what: _say(f"{name} {what}"))
    click.echo("everything is stopped" if found else f"nothing runs in {services.home}")


@cli.command()
@json_option
@cli_data.store_option
def status(as_json: bool, root: str | None) -> None:
    """What runs, how far it is, and where to look.

    Shows the services of this home, the servers that PREFECT_API_URL and MLFLOW_TRACKING_URI
    name, wherever they are, and their runs; with --store (or RAISE_STORE) also how many trials a
    store has.  Exit status 1 if something does not answer.
    """
    from flows.services import Services, ray_token_command
    from flows.status import look

    services = Services()
    found = look(services, root or "")
    rows = [
        (s.title, "answers" if s.answers else "silent" if s.running else "down",
         str(s.pid or ""), s.url, s.log)
        for s in found.services
    ]  # fmt: skip
    rows += [
        (s.title, "answers" if s.answers else "silent", "", s.url, f"from {s.variable}")
        for s in found.servers
    ]
    _print(_rows("", ("service", "state", "pid", "address", "log"), rows))
    if found.services and not any(s.running for s in found.services):
        _say(f"looked in {services.home} (RAISE_HOME, else .raise in this folder)")
    if any(s.name == "ray" and s.running for s in found.services):
        click.echo(f"The Ray dashboard asks for a token: {ray_token_command(services.home)}")
    _show_runs(found)
    if root and not found.trials:
        _say(f"no trial in {root}")
    if as_json:
        _print_json(
            {
                "home": str(services.home),
                "services": [asdict(s) for s in found.services],
                "servers": [asdict(s) for s in found.servers],
                "runs": [run.to_json() for run in found.runs],
                "trials": dict(found.trials),
                "tracked": dict(found.tracked),
            }
        )
    if not found.all_answer:
        sys.exit(1)


def _show_runs(found: "Overview") -> None:
    if found.runs_problem:
        _say(found.runs_problem)
    if found.runs:
        rows = [
            (run.name, run.state, "" if run.percent is None else f"{run.percent:.0f} %",
             duration(run.seconds), " ".join(f"{k}={v}" for k, v in run.parameters.items()))
            for run in found.runs
        ]  # fmt: skip
        _print(_rows("", ("run", "state", "done", "time", "parameters"), rows))
    for run in found.runs:
        if run.state in ("Running", "Cancelling"):
            for stage, text in run.stages.items():
                click.echo(f"{run.name}: {stage}: {text}")
        elif run.message:
            click.echo(f"{run.name}: {run.message}")
    if found.tracked:
        best = found.tracked.get("best_accuracy")
        counts = [f"{n:.0f} {name}" for name, n in found.tracked.items() if name != "best_accuracy"]
        counts += [f"best validation accuracy {best:.3f}"] if best is not None else []
        click.echo(f"trials in MLflow: {', '.join(counts)}")
    if found.trials:
        counts = ", ".join(f"{number} {state}" for state, number in found.trials.items())
        click.echo(f"trials of the store: {counts}; more: raise-rpm trials")


@cli.command()
@json_option
@click.pass_obj
def doctor(loaded: frozenset[str], as_json: bool) -> None:
    """Check this machine and this shell.

    Exit status 1 if something essential is broken.
    """
    from flows.doctor import examine
    from flows.services import Services

    checks = examine(Services(), loaded)
    _print(_rows("", ("", "check", "found"), [(c.verdict, c.name, c.text) for c in checks]))
    broken = [c.name for c in checks if c.verdict == "fail"]
    if as_json:
        _print_json({"ok": not broken, "checks": [asdict(c) for c in checks]})
    if broken:
        _say(f"broken: {', '.join(broken)}")
        sys.exit(1)


@cli.command()
def serve() -> None:
    """Run flow runs, one at a time, until stopped.

    Those of raise/full-repro; `up` starts this.
    """
    from flows.runs import serve as run

    run()


parameter_option = click.option(
    "-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Parameter of the flow, as for prefect deployment run; may be given several times.",
)  # fmt: skip


@cli.command(cls=ParametersCommand)
@parameter_option
@click.option("--gpus", default=0, type=click.IntRange(0), show_default="what this machine has",
              help="GPUs of a cluster.")  # fmt: skip
@click.option("--gpu", default="", metavar="KIND", show_default="this machine's, else H100",
              help="Kind of the GPUs, for estimates: V100, A100, L40S, H100 or H200.")  # fmt: skip
@click.option("--slots", default=0, type=click.IntRange(0), show_default="as many as fit",
              help="Trials at once.")  # fmt: skip
@json_option
def plan(pairs: Sequence[str], gpus: int, gpu: str, slots: int, as_json: bool) -> None:
    """Trials, steps, time and disk that a run would take.

    Here, or on a given cluster.  Hours are those of the trainings; data sets and evaluations come
    on top.  Costs of steps are those of finished trials of the store, else of this project's own
    trainings of the preset, model and configuration, else estimates; the table says which.
    """
    from flows.local_plan import plan_here

    made, refusal = plan_here(
        cli_data.parse_parameters(pairs), gpus=gpus, gpu=gpu, slots=slots
    )  # fmt: skip
    value = made.to_json()
    titles = {"hours": "hours of training", "device_hours": f"{made.device} hours of training"}
    rows = [
        (titles.get(name, name.replace("_", " ")), _amount(v))
        for name, v in value.items()
        if name != "costs"
    ]
    _print(_rows("", ("", ""), rows))
    if made.costs:
        columns = (
            "model", "configuration", "trials", "steps", "s/step", f"{made.device} h", "known from"
        )  # fmt: skip
        costs = [
            (row.model, _some(row.configurations), str(row.trials), f"{row.steps:,}",
             f"{row.seconds_per_step:.3g}", f"{row.device_hours:,.1f}", row.source)
            for row in made.costs
        ]  # fmt: skip
        _print(_rows("", columns, costs))
    if refusal:
        _say(f"the flow would refuse it: {refusal}")
    if as_json:
        _print_json(value | {"refusal": refusal})


def _amount(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _some(configurations: Sequence[str]) -> str:
    return configurations[0] if len(configurations) == 1 else f"{len(configurations)} kinds"


@cli.command()
@click.argument("flow_run", required=False)
def cancel(flow_run: str | None) -> None:
    """Cancel a flow run and wait until it has ended.

    FLOW_RUN is its name or id (default: the newest that has not ended).
    """
    from flows.services import Services

    Services().reach_prefect()
    from flows.runs import cancel as cancel_run

    state = cancel_run(flow_run, _say)
    click.echo(f"{state.name}: the same parameters again go on where it stopped")


@cli.command(cls=DemoCommand)
@parameter_option
@_port_options
def demo(pairs: Sequence[str], **ports: int) -> None:
    """The whole pipeline at small scale.

    Services, data, sweep, evaluation and table.  The services stay up afterwards.
    """
    from flows.services_console import bring_up, print_addresses, print_what_stays

    parameters = {"preset": "demo"} | cli_data.parse_parameters(pairs)
    status = INTERRUPTED
    try:
        bring_up({name.removesuffix("_port"): port for name, port in ports.items()})
        from flows.demo import run_demo

        status = 0 if run_demo(parameters) else 1
        print_addresses()
    except KeyboardInterrupt:
        _say("interrupted")
    print_what_stays()
    sys.exit(status)


for command in (
    *cli_cluster.COMMANDS,
    *cli_data.COMMANDS,
    *cli_models.COMMANDS,
    *cli_report.COMMANDS,
    *cli_runs.COMMANDS,
    *cli_show.COMMANDS,
    *cli_verify.COMMANDS,
):
    cli.add_command(command)

if __name__ == "__main__":
    main()
