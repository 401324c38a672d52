"""A split as one array of small panels, derived once a machine and shared by its trials.

The canonical panels of 160 x 160 pixels are reduced by

* ``bilinear``: torch's bilinear interpolation without antialiasing, pixel centres aligned, as
  the authors reduce them (of every five rows at size 64 one is never read);
* ``area``: the mean of each of size x size equal squares; a pixel that lies in two of them
  counts in each by its share;

rounded to 8 bits, and kept as ``<cache>/<digest>-<size>-<resize>.npy``, which every process
maps into memory.
"""

import os
import uuid
from pathlib import Path

import cv2
import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from raise_model.data import schema
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Manifest
from raise_model.data.splits import rule_labels
from raise_model.errors import UserError
from raise_model.problem import NUM_CANDIDATES, NUM_PANELS, UNLABELLED, Batch
from raise_model.specs import LabelMap, Resize
from raise_model.store import Store


def resize_panels(
    panels: UInt8[np.ndarray, "n height width"], size: int, resize: Resize
) -> UInt8[np.ndarray, "n size size"]:
    """Reduce square panels.

    :raises UserError: if ``area`` would have to enlarge.
    """
    n, height, width = panels.shape
    if size == height == width:
        return panels
    if resize == "bilinear":
        small = np.empty((n, size, size), np.uint8)
        # A few at a time stay in the processor's cache: twice as fast.
        for start in range(0, n, PANELS_PER_PROBLEM):
            images = torch.from_numpy(panels[start : start + PANELS_PER_PROBLEM])[:, None].float()
            reduced = torch.nn.functional.interpolate(
                images, size=(size, size), mode="bilinear", align_corners=False, antialias=False
            )
            small[start : start + PANELS_PER_PROBLEM] = reduced.round_().byte()[:, 0].numpy()
        return small
    if size > height:
        raise UserError(f"resize=area reduces panels of {height} pixels, to {size} it cannot")
    # One tall image: squares never cross the border between two panels.
    tall = panels.reshape(n * height, width)
    return cv2.resize(tall, (size, n * size), interpolation=cv2.INTER_AREA).reshape(n, size, size)


class ProblemSet:
    """One split at one image size."""

    def __init__(
        self,
        manifest: Manifest,
        panels: UInt8[np.ndarray, "problems 16 size size"],
        target: Int[np.ndarray, " problems"],
        rules: list[list[tuple[int, str, str]]],
    ) -> None:
        self.manifest = manifest
        self.panels = panels
        self.target = target
        self._rules = rules
        self._flat = torch.from_numpy(panels).flatten(0, 1)
        self._flat_on: dict[torch.device, Tensor] = {torch.device("cpu"): self._flat}
        self._answers = torch.from_numpy(target.astype(np.int64))

    @property
    def num_problems(self) -> int:
        return len(self.panels)

    @property
    def digest(self) -> str:
        return self.manifest.digest

    def rule_labels(self, label_map: LabelMap) -> Int[np.ndarray, "problems attributes"]:
        """Rule ids of every problem; see :func:`raise_model.data.splits.rule_labels`."""
        return rule_labels(self.manifest.configuration, self._rules, label_map)

    def batch(
        self,
        rows: Int[Tensor, " batch"],
        device: torch.device,
        labels: Int[Tensor, "batch attributes"] | None = None,
        candidates: bool = False,
    ) -> Batch:
        """Some problems on a device; without ``labels`` they are unlabelled."""
        answers = self._answers[rows]
        first = rows * PANELS_PER_PROBLEM
        context = first[:, None] + torch.arange(NUM_PANELS - 1)
        offered = first[:, None] + NUM_PANELS - 1 + torch.arange(NUM_CANDIDATES)
        right = offered.gather(1, answers[:, None])
        if labels is None:
            labels = torch.full((len(rows), 0), UNLABELLED)
        return Batch(
            index=rows.to(device),
            panels=self._panels(torch.cat([context, right], 1), device),
            rule_labels=labels.to(device),
            candidates=self._panels(offered, device) if candidates else None,
            answer=answers.to(device) if candidates else None,
        )

    def _panels(self, numbers: Int[Tensor, "batch panels"], device: torch.device) -> Tensor:
        flat = self._on(device)
        picked = flat[numbers.flatten().to(flat.device)].to(device)
        return picked.float().div_(255).view(*numbers.shape, 1, *flat.shape[1:])

    def _on(self, device: torch.device) -> Tensor:
        """The panels on the device if they fit into half of its free memory, else in ours."""
        if device not in self._flat_on:
            free, _ = torch.cuda.mem_get_info(device)
            fits = self._flat.nbytes < free / 2
            self._flat_on[device] = self._flat.to(device) if fits else self._flat
        return self._flat_on[device]


def load(
    store: Store,
    dataset: str,
    configuration: str,
    split: str,
    *,
    image_size: int,
    resize: Resize,
    cache: Path,
) -> ProblemSet:
    """A complete split at one image size.

    :param cache: folder of the derived arrays of this machine.
    :raises UserError: if there is no such data set.
    """
    manifest = schema.open_manifest(store, dataset, configuration, split)
    path = cache / f"{manifest.digest[:32]}-{image_size}-{resize}.npy"
    shape = (manifest.problems, PANELS_PER_PROBLEM, image_size, image_size)
    if not _is_array(path, shape):
        _derive(store, manifest, image_size, resize, path)
    # Copy on write: torch wants writable memory, and nothing ever writes.
    panels = np.load(path, mmap_mode="c")
    target, rules = _annotations(store, manifest)
    return ProblemSet(manifest, panels, target, rules)


def _is_array(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether ``path`` holds a whole array of that shape, so that a damaged file is made anew."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return False
    return array.shape == shape and array.dtype == np.uint8


def _derive(store: Store, manifest: Manifest, size: int, resize: Resize, path: Path) -> None:
    """Write the array in full under a name of its own, then put it in place.

    Two processes may do so at once: both are right, and the last one stays.

    :raises UserError: if the cache cannot be written, or the data set is not whole.
    """
    shape = (manifest.problems, PANELS_PER_PROBLEM, size, size)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    temporary = path.with_name(f".deriving-{uuid.uuid4().hex}.npy")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written, not mapped: a full disk is then an error and not the end of the process.
        with temporary.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for chunk in schema.read_chunks(store, manifest, ["panels"]):
                panels = schema.panels_of(chunk).reshape(-1, PANEL_SIZE, PANEL_SIZE)
                file.write(np.ascontiguousarray(resize_panels(panels, size, resize)).data)
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write the cache {path.parent}: {reason}; free space or choose another "
            "folder (RAISE_HOME)"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _annotations(
    store: Store, manifest: Manifest
) -> tuple[Int[np.ndarray, " problems"], list[list[tuple[int, str, str]]]]:
    targets: list[int] = []
    rules: list[list[tuple[int, str, str]]] = []
    for rows in schema.read_chunks(store, manifest, ["target", "rules"], rows=4096):
        targets += rows.column("target").to_pylist()
        rules += [
            [(rule["component"], rule["attribute"], rule["rule"]) for rule in problem]
            for problem in rows.column("rules").to_pylist()
        ]
    return np.array(targets, dtype=np.int8), rules
