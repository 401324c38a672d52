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


def print_addresses() -> None:
    """Addresses of the services, and what to type next."""
    services = Services()
    console = Console(soft_wrap=True, highlight=False)
    known = services.known()
    for name, service in known.items():
        if service.url:
            console.print(f"{TITLES[name]:<14} {service.url}")
    console.print(f"The Ray dashboard asks for a token: {ray_token_command(services.home)}")
    if known["prefect"].url != f"http://127.0.0.1:{DEFAULT_PORTS['prefect']}":
        console.print("In each shell that runs prefect:")
        console.print(f"  export PREFECT_API_URL={known['prefect'].url}/api")
    console.print("Run the paper, or a part of it:")
    console.print("  prefect deployment run raise/full-repro -p preset=demo --watch")
