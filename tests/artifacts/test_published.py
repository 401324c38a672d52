"""The paper's numbers and the comparison with them."""

import pytest

from artifacts import published
from artifacts.published import Published, bottom_right, mark


def test_all_rows_are_there():
    frame = published.frame()
    assert len(frame) == 912
    assert frame["accuracy_percent"].between(0, 100).all()


@pytest.mark.parametrize(
    ("dataset", "configuration", "ratio", "space", "expected"),
    [
        ("raven", "center", 0.05, "latent", 0.992),
        ("iraven", "center", 0.05, "latent", 0.998),
        ("iraven_published", "center", 0.05, "latent", 0.998),
        ("raven", "grid_2x2", 1.0, "latent", 0.682),
    ],
)
def test_values_of_the_main_table(dataset, configuration, ratio, space, expected):
    found = bottom_right(
        model="raise", dataset=dataset, configuration=configuration, label_ratio=ratio, space=space
    )
    assert found is not None
    assert found.accuracy == pytest.approx(expected)
    assert found.std is None


def lookup(**changes):
    cell = {
        "model": "raise",
        "dataset": "raven",
        "configuration": "center",
        "label_ratio": 0.05,
        "space": "latent",
    }
    return bottom_right(**(cell | changes))


def test_each_variant_has_its_own_value():
    rows = published.frame().set_index(["table", "dataset", "configuration", "model"])
    percent = rows["accuracy_percent"]
    key = ("RAVEN", "center")
    unlabelled = percent["bottom_right_selection_no_labels", *key, "RAISE (-aux)"]
    assert lookup(label_ratio=0.0).accuracy == pytest.approx(unlabelled / 100)
    pixel = percent["answer_selection_strategy", *key, "RAISE-pixel"]
    assert lookup(space="pixel").accuracy == pytest.approx(pixel / 100)
    uniform = percent["bottom_right_selection_uni", "RAVEN", "grid_2x2_uni", "RAISE"]
    assert lookup(configuration="grid_2x2_uni").accuracy == pytest.approx(uniform / 100)


def test_what_the_paper_lacks_is_none_and_anp_compares_pixels():
    assert lookup(model="my_solver") is None
    assert lookup(dataset="iraven_paired") is None
    assert lookup(model="transformer", space="pixel") is None
    assert lookup(model="anp", space="pixel").accuracy == 0.098


def test_values_are_as_printed():
    shares = [
        share for cell in published.cells() for share in (cell.value.accuracy, cell.value.std)
    ]
    assert all(share is None or share == round(share, 3) for share in shares)
    row = published.frame().iloc[1]
    assert (row["accuracy_percent"], published.cells()[1].value.accuracy) == (24.1, 0.241)
    assert lookup(configuration="grid_3x3", label_ratio=1.0).accuracy == 0.777


def test_mark_widens_the_interval_by_the_binomial_error_of_two_thousand_problems():
    paper = Published(accuracy=0.5, std=None)
    assert paper.error == pytest.approx(0.0111803, abs=1e-6)
    assert mark(0.52, 0.01, 3, paper) == "inside"
    assert mark(0.53, 0.01, 3, paper) == "above"
    assert mark(0.47, 0.01, 3, paper) == "below"


def test_mark_uses_the_printed_deviation_of_ten_trials():
    paper = Published(accuracy=0.5, std=0.0316227766)
    assert paper.error == pytest.approx(0.01)
    assert mark(0.5199, 0.01, 3, paper) == "inside"
    assert mark(0.5201, 0.01, 3, paper) == "above"


def test_no_mark_with_fewer_than_three_seeds():
    assert mark(0.5, 0.5, 2, Published(accuracy=0.5, std=None)) is None


@pytest.mark.parametrize(
    ("dataset", "title"),
    [
        ("raven", "RAVEN"),
        ("iraven", "I-RAVEN"),
        ("iraven_paired", "I-RAVEN (paired)"),
        ("iraven_overlapping", "I-RAVEN (overlapping)"),
        ("raven_published_held_out", "RAVEN (published files, held out)"),
        ("mine", "mine"),
    ],
)
def test_a_data_set_has_its_published_name_and_says_how_it_differs(dataset, title):
    assert published.dataset_title(dataset) == title
