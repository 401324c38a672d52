"""The results table: cells, heading, marks, what is missing."""

import dataclasses
import io

import pandas as pd
import pytest
from rich.console import Console

from artifacts.aggregate import results, summarise
from artifacts.tables import CONFIGURATIONS, results_table
from raise_model.presets import shortened, trial_spec


@pytest.fixture
def center(store, make_spec, make_evaluation, evaluated):
    """Three seeds on Center, both data sets."""
    for seed, accuracy in enumerate((0.2, 0.3, 0.4)):
        evaluated(make_spec(seed), make_evaluation("raven"), [accuracy])
        evaluated(make_spec(seed), make_evaluation("iraven"), [accuracy + 0.1])
    return results(store)


def table_of(frame, **options):
    return results_table(summarise(frame), preset="demo", **options)


def test_cells_are_raven_and_iraven_with_the_paper_below(center):
    cells = table_of(center).cells
    assert list(cells.columns) == ["model", "Center"]
    assert list(cells["model"]) == ["RAISE", "RAISE (paper)"]
    assert list(cells["Center"]) == ["30.0±10.0-/40.0±10.0-", "99.2/99.8"]


def test_heading_says_what_the_numbers_rest_on(center):
    heading = "\n".join(table_of(center).heading)
    assert "preset demo" in heading
    assert "1000 optimiser steps" in heading
    assert "rule labels: 5% of the training problems" in heading
    assert "label map official" in heading
    assert "seeds 3" in heading


def test_fewer_than_three_seeds_have_no_mark(center):
    table = table_of(center[center["trial"].isin(sorted(set(center["trial"]))[:2])])
    assert "-" not in table.cells["Center"][0]
    assert list(table.details["mark"]) == ["", ""]


def test_partial_table_names_what_is_missing(center, make_spec, make_evaluation):
    asked = [(make_spec(seed).name, make_evaluation("raven")) for seed in range(5)]
    table = table_of(center, expected=asked, results=center)
    assert table.missing == [f"{make_spec(seed).name} on raven" for seed in (3, 4)]
    assert "PARTIAL: 2 results are missing" in table.to_markdown()
    assert make_spec(3).name in table.to_markdown()
    complete = table_of(center, expected=asked[:3], results=center)
    assert "PARTIAL" not in complete.to_markdown()


def test_average_needs_all_seven_configurations(store, make_spec, make_evaluation, evaluated):
    for place, name in enumerate(CONFIGURATIONS):
        evaluated(make_spec(configuration=name), make_evaluation(configuration=name), [place / 10])
        if name == "out_in_grid":
            assert "Average" not in table_of(results(store)).cells.columns
    cells = table_of(results(store)).cells
    assert list(cells.columns) == ["model", "Average", *CONFIGURATIONS.values()]
    assert cells["Average"][0] == "30.0/·"
    assert cells["Average"][1] == "90.0/·"


def test_an_ablation_has_nothing_of_the_paper_below_it(store, make_evaluation, evaluated):
    lite = trial_spec(
        model="raise", preset="lite", dataset="raven", configuration="center",
        train_digest="a", validation_digest="b", seed=0,
    )  # fmt: skip
    for spec, accuracy in ((lite, 0.9), (shortened(lite), 0.5)):
        evaluated(spec, make_evaluation("raven"), [accuracy])
    table = table_of(results(store))
    rows = dict(zip(table.cells["model"], table.cells["Center"], strict=True))
    (name,) = [name for name in rows if "(lite, ablation)" in name]
    assert rows.pop(name) == "50.0/·"
    assert sorted(rows.values()) == ["90.0/·", "99.2/·"]
    published = dict(zip(table.details["mean"], table.details["published"], strict=True))
    assert published[0.9] == 0.992
    assert pd.isna(published[0.5])


@pytest.mark.usefixtures("center")
def test_settings_that_differ_have_their_own_rows(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(0, steps=2000), make_evaluation("raven"), [0.6])
    cells = table_of(results(store)).cells
    assert list(cells["model"])[::2] == ["RAISE 1000 steps", "RAISE 2000 steps"]
    assert cells["Center"][2] == "60.0/·"


def test_markdown_has_both_spreads(center):
    text = table_of(center).to_markdown()
    lines = [line for line in text.splitlines() if line.startswith("| raise | Center | raven")]
    assert len(lines) == 1
    assert "| 30.0 | 10.0 | 5.2..54.8 | 28.0..32.0 | 20.0 |" in lines[0]
    assert "| 99.2 | below |" in lines[0]


def test_csv_holds_every_number(center):
    frame = pd.read_csv(io.StringIO(table_of(center).to_csv()))
    raven = frame[frame["dataset"] == "raven"].iloc[0]
    assert raven["mean"] == pytest.approx(0.3)
    assert raven["std"] == pytest.approx(0.1)
    assert raven["published"] == pytest.approx(0.992)
    assert raven["label_map"] == "official"


def test_terminal_table_shows_heading_and_cells(center):
    console = Console(file=io.StringIO(), width=120)
    console.print(table_of(center).to_rich())
    text = console.file.getvalue()
    assert "99.2/99.8" in text
    assert "label map official" in text


def test_empty_table_says_so():
    empty = pd.DataFrame(columns=["protocol", "split", "options"])
    table = results_table(empty, preset="demo")
    assert table.to_rows() == []
    assert "no results yet" in table.to_markdown()


def test_seen_test_problems_are_flagged_and_reported_apart(
    store, make_spec, make_evaluation, evaluated
):
    clean = {"problems": 3, "accuracy": [0.5], "unseen_accuracy": [0.6]}
    leak = {"problems": 860, "accuracy": [0.9, 0.8], "unseen_accuracy": [0.5, 0.6]}
    evaluated(make_spec(), make_evaluation("raven"), [0.6], seen=clean)
    evaluated(make_spec(), make_evaluation("iraven"), [0.6], seen=None)
    evaluated(make_spec(), make_evaluation("iraven_overlapping"), [0.7], seen=leak)
    table = table_of(results(store))
    names = list(table.cells["model"])[::2]
    assert names == ["RAISE", "RAISE iraven_overlapping"]
    assert list(table.cells["Center"])[::2] == ["60.0/60.0", "·/70.0†"]
    text = table.to_markdown()
    assert "nine panels of 860 of 2000 test problems; seen 85.0, unseen 55.0" in text
    assert "43.0: 85.0, others 55.0" in text
    assert "0.1: 50.0, others 60.0" in text
    assert "it is not known whether training shows" in text


def test_raise_plus_stands_beside_the_papers_raise(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(model="raise_plus"), make_evaluation("raven"), [0.6])
    cells = table_of(results(store)).cells
    assert list(cells["model"]) == ["RAISE plus", "RAISE (paper)"]
    assert list(cells["Center"]) == ["60.0/·", "99.2/·"]


def test_other_protocols_are_not_missing_here(center, make_spec, make_evaluation):
    other = dataclasses.replace(make_evaluation("raven"), protocol="odd_one_out")
    asked = [(make_spec(0).name, other), (make_spec(0).name, make_evaluation("raven"))]
    assert table_of(center, expected=asked, results=center).missing == []
