"""What an optimiser step costs, and how that is known.

In order of trust: finished trainings of the same setting in the store at hand; this project's own
trainings of the preset, model and configuration (:mod:`flows.step_costs`); a round figure for the
model; and for paper-size networks the step's arithmetic over a share of the device's peak rate.
Every cost says which it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from flows.step_costs import is_gpu, measured_step
from raise_model.errors import UserError
from raise_model.specs import TrialSpec, fingerprint
from raise_model.store import Store

SAMPLES = 5
"""Finished trainings of a setting that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A device as the estimates see it."""

    name: str
    tflops: Mapping[str, float]
    """Peak rate of dense matrix products by precision, TFLOP/s, as its maker states it."""
    share: float
    """Of the peak that a training is taken to reach."""


CPU = Hardware(name="one thread of a server CPU", tflops={"fp32": 0.067}, share=0.5)
"""Measured: AMD EPYC (Zen 3); RAISE at paper size reaches half of the peak
(``benchmarks/train_step.py``)."""
GPUS: Mapping[str, Hardware] = {
    name: Hardware(name=f"one {name}", tflops=dict(zip(("fp32", "bf16"), peak, strict=False)),
                   share=1 / 3)
    for name, peak in {
        "V100": (15.7,), "A100": (19.5, 312.0), "L40S": (91.6, 362.0), "H100": (67.0, 989.0),
        "H200": (67.0, 989.0),
    }.items()
}  # fmt: skip
"""A third of the peak is an assumption: no training was measured on a GPU yet."""
DEFAULT_GPU = "H100"

_ROUND: Mapping[str, Mapping[str, float]] = {
    "lite": {"raise": 0.2, "transformer": 0.06, "anp": 0.13, "lgpp": 0.09, "clap": 0.09},
    "demo": {"raise": 0.1, "transformer": 0.04, "anp": 0.08, "lgpp": 0.06, "clap": 0.08},
    "smoke": {"raise": 0.03},
}
"""Seconds of a step by preset and model, whatever the configuration, on one CPU thread."""
_SMALL_STEP = 0.05
"""Seconds of a GPU's step of small networks: launching kernels, not arithmetic; a guess."""
_SMALL = ("lite", "demo", "smoke")

GFLOP: Mapping[str, float] = {
    "raise": 5.9, "transformer": 6.0, "lgpp": 1.1, "clap": 0.6, "anp": 0.2,
}  # fmt: skip
"""Of a problem in a training step at paper size, forwards and backwards
(``raise-rpm models --preset paper``)."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Seconds of an optimiser step, and where the figure is from."""

    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """What trainings of a model whose costs are known in the same way still cost."""

    model: str
    configurations: Sequence[str]
    trials: int
    steps: int
    seconds_per_step: float
    """Mean."""
    device_hours: float
    """Of GPUs, or of CPUs where there are none."""
    source: str


def setting(spec: TrialSpec) -> str:
    """Identity of all trainings that do the same work in a step."""
    value: dict[str, Any] = spec.to_json() | dict.fromkeys(("seed", "steps", "validate_every"))
    for name in ("train_digest", "validation_digest", "label_seed", "dataset"):
        value["data"][name] = None
    return fingerprint("cost", value)


class Costs:
    """Costs of steps on one kind of device."""

    def __init__(self, store: Store, preset: str, device: str, *, gpu: str = "") -> None:
        """:raises UserError: for a GPU that is not known."""
        if gpu and gpu not in GPUS:
            raise UserError(f"unknown GPU {gpu!r}; known: {', '.join(GPUS)}")
        self._store = store
        self._preset = preset
        self._on_gpu = device == "cuda"
        self._hardware = GPUS[gpu or DEFAULT_GPU] if self._on_gpu else CPU
        self._trained: dict[str, StepCost] = {}

    def learn(self, finished: Iterable[TrialSpec]) -> None:
        """Take finished trainings of the store into account, those of this kind of device."""
        chosen: dict[str, list[TrialSpec]] = {}
        for spec in finished:
            same = chosen.setdefault(setting(spec), [])
            if len(same) < SAMPLES:
                same.append(spec)
        for key, specs in chosen.items():
            done = [self._store.trial(spec).done() for spec in specs]
            done = [d for d in done if self._matches(d.get("provenance", {}))]
            if done:
                where = ", ".join(sorted({d["provenance"]["device"] for d in done}))
                self._trained[key] = StepCost(
                    seconds=median(d["seconds"] / d["step"] for d in done),
                    source=f"measured: {len(done)} trials of the store on {where}",
                )

    def _matches(self, provenance: Mapping[str, Any]) -> bool:
        device = provenance.get("device", "")
        return bool(device) and is_gpu(device) == self._on_gpu

    def step(self, spec: TrialSpec, share: float = 1.0) -> StepCost:
        """Cost of a step of a training that has this share of a device."""
        if (known := self._trained.get(setting(spec))) is not None:
            return known
        if (row := measured_step(spec, on_gpu=self._on_gpu)) is not None:
            return StepCost(seconds=row.seconds, source=row.source())
        if self._preset not in _SMALL:
            return self._estimated(spec, min(1.0, share))
        if self._on_gpu:
            return StepCost(seconds=_SMALL_STEP, source="guess: small networks on a GPU")
        known = _ROUND[self._preset]
        if spec.model in known:
            source = f"estimate: one thread of a CPU, {spec.model} on any configuration"
            return StepCost(seconds=known[spec.model], source=source)
        return StepCost(seconds=known["raise"], source="guess: as raise")

    def _estimated(self, spec: TrialSpec, share: float) -> StepCost:
        hardware = self._hardware
        peak = hardware.tflops.get(spec.precision, hardware.tflops["fp32"])
        gflop = _gflop_of_step(spec)
        rate = 1000 * peak * hardware.share * share
        return StepCost(
            seconds=gflop / rate,
            source=f"estimate: arithmetic at {hardware.share:.0%} of {1000 * peak:,.0f} GFLOP/s of "
            f"{hardware.name}, {spec.precision}",
        )


def relative_cost(preset: str, spec: TrialSpec) -> float:
    """Of a training, for comparisons within a preset; the same wherever it is asked for."""
    if preset in _SMALL:
        known = _ROUND[preset]
        return spec.steps * known.get(spec.model, known["raise"])
    return spec.steps * _gflop_of_step(spec)


def _gflop_of_step(spec: TrialSpec) -> float:
    """Arithmetic of a step at paper size; a model that was not counted is taken for RAISE."""
    return GFLOP.get(spec.model, GFLOP["raise"]) * _problems(spec.config)


def _problems(config: Mapping[str, Any]) -> int:
    """Problems of a step, at most: few labelled ones make a smaller batch."""
    if "batch_size" in config:
        return config["batch_size"]
    joint = config["labelled_batch"] + config["unlabelled_batch"]
    return joint if config["batches"] == "joint" else config["labelled_batch"]
