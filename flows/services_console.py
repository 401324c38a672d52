"""``up`` as people see it: a spinner a service, then the addresses."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.services import DEFAULT_PORTS, NAMES, TITLES, Services, ray_token_command


def bring_up(ports: Mapping[str, int]) -> Services:
    """Start what does not run, showing how it goes on standard error.

    :raises UserError: if something cannot be started; nothing new is left running then.
    """
    services = Services()
    missing = [name for name in NAMES if name not in services.alive()]
    console = Console(stderr=True)
    if not missing:
        console.print(f"already running: {', '.join(TITLES.values())} of {services.home}")
        return services
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks = {name: bar.add_task(TITLES[name], total=1) for name in missing}

        def report(name: str, what: str) -> None:
            bar.update(tasks[name], description=f"{TITLES[name]} {what}",
                       completed=1 if what == "ready" else 0)  # fmt: skip
            if not console.is_terminal:
                console.print(f"{time.monotonic() - started:5.1f} s  {TITLES[name]} {what}")

        services.up(ports, report)
    console.print(f"up in {time.monotonic() - started:.0f} s; state and logs: {services.home}")
    return services


def print_what_stays() -> None:
    """Which services go on when a command has ended, and how to stop them."""
    services = Services()
    console = Console(soft_wrap=True, highlight=False)
    alive = services.alive()
    if services.is_changing():
        console.print("Another raise-rpm starts or stops the services now; see: raise-rpm status")
    elif not alive:
        console.print(f"The services of {services.home} are down; start them by: raise-rpm up")
    else:
        which = "The services stay" if len(alive) == len(NAMES) else (
            f"Of the services {', '.join(TITLES[name] for name in alive)} stay"
        )  # fmt: skip
        console.print(f"{which} up; stop them by: raise-rpm down")


def print_addresses() -> None:
    """Addresses of the services that run, and what to type next."""
    services = Services()
    console = Console(soft_wrap=True, highlight=False)
    alive = services.alive()
    for name, service in alive.items():
        if service.url:
            console.print(f"{TITLES[name]:<14} {service.url}")
    console.print(f"The Ray dashboard asks for a token: {ray_token_command(services.home)}")
    if "prefect" not in alive:
        return
    if alive["prefect"].url != f"http://127.0.0.1:{DEFAULT_PORTS['prefect']}":
        console.print("In each shell that runs prefect:")
        console.print(f"  export PREFECT_API_URL={alive['prefect'].url}/api")
    console.print("Run the paper, or a part of it:")
    console.print("  prefect deployment run raise/full-repro -p preset=demo --watch")
