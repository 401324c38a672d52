"""A stored problem by its name."""

import pytest

from raise_model.data.generate import generate, make_problem
from raise_model.data.held_out import hold_out
from raise_model.data.reader import names_from, read_problem
from raise_model.errors import UserError
from raise_model.store import Store


@pytest.mark.parametrize("index", [0, 16, 57, 99])
def test_the_problem_is_the_generated_one(generated, index):
    manifest, problem = read_problem(generated, f"raven/grid_2x2/{index}")
    assert problem.digest() == make_problem("raven", "grid_2x2", 1234, index).digest()
    assert manifest.split == ("train" if index % 10 < 6 else "val" if index % 10 < 8 else "test")


def test_any_row_group_is_read(tmp_path):
    store = Store(str(tmp_path))
    generate(store, dataset="raven", configuration="center", problems=450)
    for index in (0, 425, 440):  # rows 0, 255 and 264 of the training split
        problem = read_problem(store, f"raven/center/{index}")[1]
        assert problem.digest() == make_problem("raven", "center", 1234, index).digest()
    hold_out(store, "raven", "center")
    split = read_problem(store, "raven_held_out/center/17")[0].split
    constant = make_problem("raven", "center", 1234, 17).rules[2]["rule"] == "constant"
    assert (split == "test") == constant


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raven/grid_2x2", "is no problem id"),
        ("raven/grid_2x2/x", "is no problem id"),
        ("raven/grid_2x2/100", "no problem 100 in raven/grid_2x2 .*train has 60 problems, 0 to 95"),
        ("raven/center/1", "no data set raven/center"),
    ],
)
def test_a_mistake_is_one_line(generated, name, message):
    with pytest.raises(UserError, match=message) as error:
        read_problem(generated, name)
    assert "\n" not in str(error.value)


def test_names_go_over_gaps_and_end_with_the_data(tmp_path):
    store = Store(str(tmp_path))
    generate(store, dataset="raven", configuration="center", problems=20, splits=("train", "test"))
    names = names_from(store, "raven", "center", 4, 5)
    assert [name.rsplit("/", 1)[1] for name in names] == ["4", "5", "8", "9", "10"]
    assert names_from(store, "raven", "center", 19, 5) == ["raven/center/19"]
    with pytest.raises(UserError, match=r"no problem 20 .*val not made"):
        names_from(store, "raven", "center", 20, 1)
