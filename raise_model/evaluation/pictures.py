"""Small pictures in results, so that a report shows them without weights or data."""

import base64

import cv2
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

_SHADE = 4
"""Grey values are rounded to multiples of it, which takes half the space."""


def png_of(images: Float[Tensor, "rows columns size size"]) -> str:
    """A grid of pictures as PNG in base64, white lines of a pixel between them.

    :param images: shares of white.
    """
    framed = torch.nn.functional.pad(images, (0, 1, 0, 1), value=1.0)
    grid = framed.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
    shades = grid.mul(255 / _SHADE).round().mul(_SHADE).clamp_max(255).byte().numpy()
    _, encoded = cv2.imencode(".png", shades, (cv2.IMWRITE_PNG_COMPRESSION, 9))
    return base64.b64encode(encoded.tobytes()).decode()


def pictures_of(png: str, rows: int, columns: int) -> Float[np.ndarray, "rows columns size size"]:
    """The pictures of :func:`png_of`.

    :raises ValueError: if it is no such picture.
    """
    grid = cv2.imdecode(np.frombuffer(base64.b64decode(png), np.uint8), cv2.IMREAD_GRAYSCALE)
    size = 0 if grid is None else grid.shape[0] // rows
    if grid is None or grid.shape != (rows * size, columns * size):
        raise ValueError(f"png is no grid of {rows} x {columns} pictures")
    cells = grid.reshape(rows, size, columns, size).transpose(0, 2, 1, 3)
    return cells[:, :, :-1, :-1] / 255
