"""What ``--help`` says: everything, within 80 columns."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flows.cli import cli
from flows.full_repro import full_repro
from flows.parameters import PARAMETERS


def commands(command=cli, path=()):
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def help_of(path):
    found = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80, prog_name="raise-rpm")
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_help_fits_a_terminal_and_leaves_nothing_out(path, command):
    text = help_of(path)
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.partition("Commands:\n")[2], "a sentence of the list is cut"
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            # Whoever can leave an option out learns what is taken then.
            says = option.is_flag or option.show_default or "[default: " in option.help
            shown = isinstance(option.default, int | float | str | Path) or option.multiple
            assert says or shown, option.name


def test_a_default_is_shown_and_so_are_choices():
    text = " ".join(help_of(["generate"]).split())
    assert "up_down, out_in_center, out_in_grid" in text
    assert "[default: center]" in text
    assert "[default: 10000; x>=10]" in text
    assert "iraven_paired or iraven_overlapping. [default: raven]" in text
    stores = [" ".join(help_of(path).split()) for path, c in commands() if _has_store(c)]
    assert len(stores) > 8
    default = "RAISE_STORE, else RAISE_HOME/store; preset smoke has RAISE_HOME/smoke"
    assert all(f"URI. [default: {default}]" in text for text in stores)


def _has_store(command):
    return any(option.name == "root" for option in command.params)


def test_parameters_of_the_help_are_those_of_the_flow():
    known = full_repro.parameters.properties
    assert [each.name for each in PARAMETERS] == list(known)
    for each in PARAMETERS:
        about = known[each.name]
        choices = about.get("items", about).get("enum", [])
        found = (each.type, each.default, list(each.choices), each.about)
        description = " ".join(about["description"].split())
        assert found == (about["type"], about["default"], choices, description), each.name


@pytest.mark.parametrize(
    ("name", "preset"), [("plan", "auto"), ("results", "auto"), ("demo", "demo")]
)
def test_commands_that_take_parameters_list_them(name, preset):
    text = " ".join(help_of([name]).split())
    _, _, listed = text.partition("Parameters of the flow")
    for each in PARAMETERS:
        assert each.about in listed
        assert " ".join(each.choices) in listed
    assert f"(auto paper lite demo smoke) [default: {preset}]" in listed
    assert "(whole number) [default: 0]" in listed
