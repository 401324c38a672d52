"""Pictures are read back as they were written."""

import numpy as np
import pytest
import torch

from raise_model.evaluation.pictures import pictures_of, png_of


def test_a_grid_is_read_back_to_a_fourth_of_the_grey_values():
    images = torch.rand(2, 5, 7, 7, generator=torch.Generator().manual_seed(0))
    again = pictures_of(png_of(images), 2, 5)
    assert again.shape == (2, 5, 7, 7)
    assert np.abs(again - images.numpy()).max() < 2.5 / 255
    assert png_of(images) == png_of(images)


def test_another_grid_is_refused():
    png = png_of(torch.zeros(2, 5, 7, 7))
    with pytest.raises(ValueError, match="no grid of 3 x 5 pictures"):
        pictures_of(png, 3, 5)
    with pytest.raises(ValueError, match="no grid"):
        pictures_of("AAAA", 2, 5)
