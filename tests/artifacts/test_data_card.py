"""Data cards: every count against a literal one."""

from collections import Counter

import matplotlib as mpl
import numpy as np
import pytest

from artifacts.data_card import make_card, to_markdown, write_card
from raise_model.data.generate import generate, leak_source, make_problem
from raise_model.errors import UserError
from raise_model.store import Store

mpl.use("Agg")
PROBLEMS = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    store = Store(str(tmp_path_factory.mktemp("card")))
    for dataset in ("raven", "iraven_overlapping"):
        generate(store, dataset=dataset, configuration="out_in_grid", problems=PROBLEMS)
    return store


@pytest.fixture(scope="module")
def card(data):
    return make_card(data, "raven", "out_in_grid")


@pytest.fixture(scope="module")
def problems():
    return [make_problem("raven", "out_in_grid", 1234, index) for index in range(PROBLEMS)]


def test_histograms_are_literal_counts(card, problems):
    for component in (0, 1):
        for attribute in ("type", "size", "color", "angle"):
            wanted = Counter(
                entity[attribute]
                for problem in problems
                for panel in problem.entities[:8]
                for entity in panel
                if entity["component"] == component
            )
            assert card.histograms[component, attribute] == wanted
        numbers = Counter(
            sum(entity["component"] == component for entity in panel)
            for problem in problems
            for panel in problem.entities[:8]
        )
        assert card.histograms[component, "number"] == numbers
        uniformity = Counter(problem.layouts[0][component]["uniformity"] for problem in problems)
        assert card.histograms[component, "uniformity"] == uniformity


def test_rules_and_targets_are_literal_counts(card, problems):
    assert card.targets == Counter(problem.target for problem in problems)
    sizes = Counter(
        rule["rule"] + (f" {rule['value']:+d}" if rule["value"] else "")
        for problem in problems
        for rule in problem.rules
        if (rule["component"], rule["attribute"]) == (1, "size")
    )
    assert card.rules[1, "size"] == sizes
    groups = Counter(rule["attribute"] for problem in problems for rule in problem.rules[4:5])
    moved = sum(n for what, n in card.rules[1, "number_position"].items() if "of position" in what)
    assert moved == groups["position"]
    assert all(sum(counts.values()) == PROBLEMS for counts in card.rules.values())


def test_candidates_equal_to_the_answer_are_counted(card, problems):
    wanted = 0
    for problem in problems:
        answer = problem.panels[8 + problem.target]
        equal = [np.array_equal(answer, panel) for panel in problem.panels[8:]]
        wanted += sum(equal) > 1
    assert card.ambiguous == wanted


def test_overlap_with_other_data_sets_is_told(data, card):
    assert card.overlaps["iraven_overlapping"].seen == {}
    leaky = make_card(data, "iraven_overlapping", "out_in_grid")
    leaks = [i for i in range(PROBLEMS) if leak_source("out_in_grid", i) is not None]
    assert sorted(leaky.overlaps["raven"].seen) == leaks
    assert f"| train of raven, test | {len(leaks)} |" in to_markdown(leaky)


def test_repeated_problems_are_counted(tmp_path):
    store = Store(str(tmp_path))
    # The test problems of one data set are training problems of the same size of another.
    generate(store, dataset="raven", configuration="center", problems=20)
    assert make_card(store, "raven", "center").repeated == {
        "train": 0, "train, val": 0, "train, test": 0, "val": 0, "val, test": 0, "test": 0,
    }  # fmt: skip


def test_written_card_has_text_and_plot(card, tmp_path):
    path = write_card(card, tmp_path / "card")
    text = path.read_text()
    assert text.startswith("# raven/out_in_grid")
    assert f"| train | {PROBLEMS * 6 // 10} |" in text
    assert "| outer | size |" in text
    assert (tmp_path / "card" / "attributes.png").read_bytes().startswith(b"\x89PNG")


def test_missing_data_and_blocked_folders_are_one_line(data, card, tmp_path):
    with pytest.raises(UserError, match="no data set iraven/center"):
        make_card(data, "iraven", "center")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_card(card, tmp_path / "file" / "below")
