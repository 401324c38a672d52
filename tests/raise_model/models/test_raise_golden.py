"""Twenty steps of a tiny float64 RAISE on fixed panels, against committed numbers.

A change of these numbers is a change of every trial: raise ``Raise.revision``, then write the
file anew with ``RAISE_WRITE_GOLDEN=1 pytest tests/raise_model/models/test_raise_golden.py``.
"""

import json
import os
from pathlib import Path

import pytest
import torch

from raise_model.models.raise_net.model import Raise

GOLDEN = Path(__file__).parent.parent / "golden" / "raise.json"
STEPS = 20

SETTINGS = {
    "code": {
        "label_loss": "code", "rule_net_target": "learnable", "targets_per_problem": 1,
        "decoded_panels": 1, "batches": "separate", "optimizer": "rmsprop",
    },
    "leave_one_out": {
        "label_loss": "mean_log", "rule_net_target": "zero", "targets_per_problem": 3,
        "decoded_panels": 9, "batches": "joint", "optimizer": "adamw", "ema_decay": 0.5,
    },
}  # fmt: skip


def run(solver, batches):
    """Total loss of every step, then some numbers of a prediction."""
    (optimizer,) = solver.optimizers().values()
    generator = torch.Generator().manual_seed(11)
    totals = []
    while len(totals) < STEPS:
        losses = solver.training_steps(batches, generator)
        while len(totals) < STEPS:
            (rate,) = solver.set_step(len(totals), STEPS).values()
            if (loss := next(losses, None)) is None:
                break
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
            totals.append(loss.total.item())
    missing = torch.zeros(2, 9, dtype=torch.bool)
    missing[:, [2, 8]] = True
    solver.eval()
    with torch.no_grad():
        prediction = solver.predict(batches.draw("all", 2).panels, missing, generator)
    images = prediction.images[:, :, 0, ::5, ::5].flatten().tolist()
    return {
        "totals": totals, "latents": prediction.latents.flatten().tolist(), "images": images,
        "rules": prediction.rules.flatten().tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_steps_give_the_committed_numbers(name, build, batches):
    numbers = run(build(**SETTINGS[name]), batches(dtype=torch.float64))
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("RAISE_WRITE_GOLDEN"):
        golden = {**golden, "revision": Raise.revision, name: numbers}
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    assert golden["revision"] == Raise.revision
    assert golden[name].keys() == numbers.keys()
    for part, values in numbers.items():
        assert values == pytest.approx(golden[name][part], rel=1e-6), part
