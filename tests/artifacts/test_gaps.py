"""What is missing, and the commands that fill it."""

import dataclasses
import itertools
import json
import shlex

import pytest

from artifacts.gaps import Asking, gaps
from artifacts.numbers import selection_numbers
from artifacts.paper_cells import paper_cells
from artifacts.records import read_records
from artifacts.report import build_report
from artifacts.report_html import page
from flows.request import Request
from flows.studies import lower
from raise_model.presets import as_published, shortened


@pytest.fixture
def one_seed(store, evaluated, training, evaluation):
    """The paper's cells beside one training of the demo, evaluated on RAVEN."""
    evaluated(training(), evaluation(), [0.9])
    return paper_cells(selection_numbers(read_records(store)), "demo")


def parsed(command):
    words = shlex.split(command)
    assert words[:4] == ["prefect", "deployment", "run", "raise/full-repro"]
    assert words[4::2] == ["-p"] * len(words[5::2])
    pairs = dict(word.split("=", 1) for word in words[5::2])
    return {key: json.loads(v) if v[0] == "[" else v for key, v in pairs.items()}


def test_commands_name_every_missing_cell_and_no_other(one_seed):
    found = gaps(one_seed, Asking(preset="demo"))
    asked = set()
    for gap in found:
        if gap.command:
            values = parsed(gap.command)
            assert values["preset"] == "demo"
            for study in values["studies"]:
                asked |= set(itertools.product([study], values["models"], values["configurations"]))
    # What one training misses is asked for in one cell's study, model and configuration; that
    # only I-RAVEN is missing of Center is a reason too.
    wanted = {
        (each.study, each.model, name)
        for each in one_seed
        if each.ours is None and each.is_buildable and each.cell.configuration != "average"
        for name in each.configurations
    }
    assert asked == wanted
    assert sum(gap.cells for gap in found) == sum(each.ours is None for each in one_seed)
    no_solver = [gap for gap in found if not gap.command]
    assert {model for gap in no_solver for model in gap.models} == {"prae", "alans", "gca"}


def test_commands_name_a_store_that_is_not_the_default():
    def commands(store):
        found = gaps(paper_cells([]), Asking(preset="lite", store=store))
        return [gap.command for gap in found if gap.command]

    place = "/a folder/it's"
    for command in commands(place):
        pair = shlex.split(command)[-1]
        assert pair.startswith("store=")
        assert json.loads(pair.removeprefix("store=")) == place
    assert commands("s3://raise/store")[0].endswith(""" -p store='"s3://raise/store"'""")
    assert "store=" not in "".join(commands(""))


def test_cells_of_too_few_seeds_are_apart_from_those_of_none(one_seed):
    found = gaps(one_seed, Asking(preset="demo", seeds=2))
    few = [gap for gap in found if gap.seeds]
    # The main table's cell of Center, and the same number in the table of answer selection.
    assert [gap.text for gap in few] == [
        "1 cell of RAISE, 1 of 2 seeds (study main_table)",
        "1 cell of RAISE, 1 of 2 seeds (study answer_selection)",
    ]
    assert {gap.configurations for gap in few} == {("center",)}
    assert [gap for gap in found if not gap.seeds] == [
        dataclasses.replace(gap, wanted=2) for gap in gaps(one_seed, Asking(preset="demo"))
    ]


def test_an_average_of_too_few_seeds_asks_for_all_seven(one_seed):
    (average,) = [
        each for each in one_seed
        if (each.cell.table, each.cell.dataset, each.cell.configuration, each.cell.model)
        == ("bottom_right_selection", "RAVEN", "average", "RAISE")
    ]  # fmt: skip
    (gap,) = gaps([average], Asking(preset="demo"))
    assert len(gap.configurations) == 7


def test_what_is_missing_is_named_with_its_command(filled):
    report = build_report(filled, preset="demo", seeds=3)
    html = page(report, [])
    assert report.gaps
    for gap in report.gaps:
        assert gap.text in report.to_markdown()
        if gap.command:
            assert gap.command in report.to_markdown()
            assert gap.command.replace('"', "&#34;").replace("'", "&#39;") in html
    assert report.summary()["cells"]["reproduced"] == 2 + 2 + 8


def test_missing_adds_up_with_the_coverage(filled):
    report = build_report(filled, preset="lite", seeds=3)
    counts = report.summary()["cells"]
    # Per data set 5 of 10 models of the main table, 5 of 10 at -Uni, and 5 of held-out rules.
    assert counts["no solver"] == 5 * (16 + 6 + 2)
    assert counts["published"] == 912
    assert counts["missing"] == 912 - counts["own model only"] - counts["no solver"]
    trainable = [gap for gap in report.gaps if gap.command]
    assert sum(gap.cells for gap in trainable) == counts["missing"] + counts["own model only"]
    assert sum(gap.own_only for gap in report.gaps) == counts["own model only"] == 2
    headings = [heading for heading, _ in report.missing()]
    assert headings == [
        "792 cells of the paper without a number of ours, 2 of them with a number of this "
        "project's own model",
        "This project's own models, and studies beyond the paper",
        "120 cells of the paper whose models have no solver here yet",
    ]
    for heading in headings:
        assert f"### {heading}" in report.to_markdown()
        assert heading.replace("'", "&#39;") in page(report, [])
    few = build_report(filled, preset="demo", seeds=5)
    assert few.missing()[1][0] == "12 cells of the paper with fewer than 5 seeds"
    assert "3 of 5 seeds" in few.missing_markdown()


def test_models_without_a_solver_have_no_command(filled):
    *_, (heading, found) = build_report(filled, preset="lite").missing()
    assert "no solver" in heading
    assert [gap.text for gap in found] == [
        "80 cells of PrAE, ALANS, GCA (study main_table)",
        "30 cells of PrAE, ALANS, GCA (study uniform_noise)",
        "10 cells of PrAE, ALANS, GCA (study held_out)",
    ]
    assert not any(gap.command for gap in found)


def test_own_models_are_filled_up_too(filled):
    report = build_report(filled, preset="lite", store_parameter="s3://raise/store")
    (gap,) = report.own_gaps
    # Of fourteen, I-RAVEN's Center is there.
    assert (gap.models, gap.cells, gap.configurations[0]) == (["raise_plus"], 13, "center")
    assert """-p models='["raise_plus"]'""" in gap.command
    assert gap.command.endswith(""" -p store='"s3://raise/store"'""")
    assert gap.command in report.to_markdown()
    assert gap.command.replace('"', "&#34;").replace("'", "&#39;") in page(report, [])
    few = build_report(filled, preset="lite", seeds=3).own_gaps
    assert {(gap.cells, gap.seeds) for gap in few} == {(13, 0), (1, 1)}
    assert not [gap for gap in build_report(filled, preset="demo").own_gaps if "plus" in gap.text]


def lowered(gap):
    values = {key: value for key, value in parsed(gap.command).items() if key != "store"}
    return lower(Request(**values), lambda *split: "0" * 64)


def test_what_studies_beyond_the_paper_lack_is_named(store, evaluated, training, evaluation):
    for ratio in (0.0, 0.01, 0.05, 0.2, 1.0):
        evaluated(training(ratio=ratio, preset="lite"), evaluation(), [0.5])
    grid = {"configuration": "grid_2x2"}
    on_grid = dataclasses.replace(evaluation(), **grid)
    for model in ("raise", "raise_plus"):
        short = shortened(training(model=model, preset="lite", **grid))
        evaluated(as_published(short) if model == "raise" else short, on_grid, [0.5])
    report = build_report(store, preset="lite")
    said = {gap.text: gap for gap in report.own_gaps}
    ratios = said["2 cells of RAISE, 10 % and 50 % labels (study label_ratio)"]
    assert {0.1, 0.5} <= {trial.data.label_ratio for trial in lowered(ratios).trials}
    official = said["1 cell of RAISE, as here, the authors' label map (study ablation)"]
    assert official.configurations == ("grid_2x2",)
    trained = {(trial.model, trial.data.label_map) for trial in lowered(official).trials}
    assert ("raise", "official") in trained
    more = {gap.text for gap in build_report(store, preset="lite", seeds=3).own_gaps}
    assert (
        "5 cells of RAISE, 0 %, 1 %, 5 %, 20 % and 100 % labels, 1 of 3 seeds (study label_ratio)"
        in more
    )


def test_evaluations_that_no_study_runs_have_a_command_of_their_own(
    store, evaluated, training, evaluation
):
    test = {kind: evaluation(protocol="odd_one_out", odd=kind) for kind in ("any", "bottom_right")}
    for kind in test:
        evaluated(training(preset="lite"), test[kind], [], panel_accuracy=0.5)
    other = training(preset="lite", configuration="out_in_center")
    evaluated(other, evaluation(), [0.5])
    report = build_report(store, preset="lite", store_parameter="s3://raise/store")
    study, single = report.own_gaps
    assert study.text == "1 row of RAISE (study odd_one_out)"
    assert study.configurations == ("out_in_center",)
    assert lowered(study).evaluations
    assert single.text == "1 row of RAISE, O-IC, Odd-one-out: last panel"
    assert single.command == (
        f'python -m raise_model evaluate {other.name} --store "s3://raise/store" --dataset raven '
        "--split test --protocol odd_one_out --rounds 2 --option odd=bottom_right"
    )
    assert single.command in report.missing_markdown()
