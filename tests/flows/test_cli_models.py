"""The table of models, and its JSON."""

import json

from click.testing import CliRunner

from flows.cli import cli


def run(*arguments):
    return CliRunner().invoke(cli, ["models", "--preset", "smoke", *arguments])


def test_the_table_names_cost_protocols_and_what_is_not_there():
    result = run("--model", "transformer", "--model", "raise_plus")
    assert result.exit_code == 0, result.output
    costs, protocols = result.output.split("supports")
    (transformer,) = [line for line in costs.splitlines() if line.startswith("transformer")]
    assert transformer.split()[1:] == ["2,977", "0.00093", "5.72e-05", "20", "20px", "panels"]
    (plus,) = [line for line in costs.splitlines() if line.startswith("raise_plus")]
    assert plus.split()[1:6] == ["n/a"] * 5
    assert "bottom_right" in protocols
    assert "paper, lite, demo, smoke" in protocols


def test_json_is_one_object_on_the_last_line():
    result = run("--model", "anp", "--configuration", "grid_2x2", "--json")
    (card,) = json.loads(result.stdout.splitlines()[-1])["models"]
    assert (card["model"], card["configuration"]) == ("anp", "grid_2x2")
    assert card["parameters"] == 21962
    assert card["steps"]["paper"] == 120_000


def test_an_unknown_model_is_one_line():
    result = run("--model", "raize")
    assert result.exit_code == 2
    assert result.output.startswith("error: unknown model 'raize'; known models: anp, clap")
