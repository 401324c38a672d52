"""Panels of the lite settings: how large they are, and the patches that encoders cut them into."""

from collections.abc import Mapping

_RAISE: Mapping[str, int] = {
    "center": 20,
    "left_right": 32,
    "up_down": 32,
    "out_in_center": 48,
    "out_in_grid": 60,
    "grid_2x2": 32,
    "grid_3x3": 48,
}
_COMPARED: Mapping[str, int] = {**_RAISE, "out_in_center": 32, "out_in_grid": 40, "grid_3x3": 32}


def image_size(configuration: str) -> int:
    """Pixels across a panel of RAISE: shapes of six or more, and borders of slots where those of
    its patches are.
    """
    return _RAISE[configuration.removesuffix("_uni")]


def compared_image_size(configuration: str) -> int:
    """Pixels across a panel of the compared solvers: shapes of four or more.

    RAISE's panels take them two to three times as long; cut into larger patches instead, what
    they draw is blurred (Transformer on O-IC: three times the error of a pixel).
    """
    return _COMPARED[configuration.removesuffix("_uni")]


def compared_patch(configuration: str) -> int:
    """Pixels across a patch of the compared solvers' first convolution.

    An even number of patches, since the second convolution joins two by two.
    """
    return 5 if compared_image_size(configuration) == 20 else 4


def pixel_weight(size: int) -> float:
    """Factor that gives the pixels of a smaller panel the weight of the paper's 64x64."""
    return 64 * 64 / (size * size)
