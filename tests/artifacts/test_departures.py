"""The footnotes on models."""

import pytest

from artifacts.departures import departures


@pytest.mark.parametrize("model", ["raise", "raise_plus", "transformer", "anp", "lgpp", "clap"])
def test_every_model_says_what_it_does_otherwise(model):
    found = departures(model)
    assert len(found) >= 4
    for item in found:
        assert "``" not in item
        assert ":data:" not in item
        assert item.count("`") % 2 == 0
        assert item == " ".join(item.split())


def test_items_end_where_the_list_ends():
    (last,) = [item for item in departures("lgpp") if item.startswith("A batch crosses")]
    assert last.endswith("(not in `paper`).")
    (clamped,) = [item for item in departures("lgpp") if "clamped" in item]
    assert clamped == "Logarithms of standard deviations are clamped to +-`LOG_STD_BOUND`."


def test_a_model_that_is_not_registered_has_none():
    assert departures("none") == []
