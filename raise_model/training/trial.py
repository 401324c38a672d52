"""One training from its spec, in the store: claim, resume, fit, finish."""

import contextlib
import io
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from raise_model.claims import Claim, ClaimLost
from raise_model.data.loader import ProblemSet, load
from raise_model.data.splits import labelled_subset
from raise_model.errors import UserError
from raise_model.evaluation.selection import bottom_right
from raise_model.models import registry
from raise_model.models.solver import Solver
from raise_model.provenance import provenance
from raise_model.specs import TrialSpec
from raise_model.store import Store, TrialFolder
from raise_model.training import checkpoint
from raise_model.training.batches import ProblemStream
from raise_model.training.device import DeviceChoice, check_precision, resolve_device
from raise_model.training.fit import TrainingState, fit

Report = Callable[[dict[str, float]], None]


class TrialLog:
    """log.txt of a trial: rewritten whole, since object stores cannot append."""

    def __init__(self, folder: TrialFolder) -> None:
        self._folder = folder
        path = folder.file("log.txt")
        self._text = (
            folder.store.read(path).decode(errors="replace") if folder.store.exists(path) else ""
        )

    def add(self, line: str) -> None:
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        self._text += f"{stamp} {line}\n"
        self._folder.store.write(self._folder.file("log.txt"), self._text.encode(), durable=False)


def _load_split(store: Store, spec: TrialSpec, split: str, cache: Path) -> ProblemSet:
    """:raises UserError: if the data set is not the one that the spec names."""
    data = spec.data
    problems = load(
        store, data.dataset, data.configuration, split,
        image_size=data.image_size, resize=data.resize, cache=cache,
    )  # fmt: skip
    wanted = {"train": data.train_digest, "val": data.validation_digest}[split]
    if problems.digest != wanted:
        raise UserError(
            f"{data.dataset}/{data.configuration}/{split} under {store.root} has digest "
            f"{problems.digest[:12]}, the trial wants {wanted[:12]}; make that data set again"
        )
    return problems


def _new_state(store: Store, spec: TrialSpec, device: torch.device, cache: Path) -> TrainingState:
    train = _load_split(store, spec, "train", cache)
    solver = registry.build(spec.model, spec.config, spec.data.image_size, spec.seed).to(device)
    if registry.solver_class(spec.model).revision != spec.revision:
        raise UserError(
            f"{spec.name} was specified for revision {spec.revision} of {spec.model}, installed is "
            f"{registry.solver_class(spec.model).revision}; plan the sweep again"
        )
    batches = ProblemStream(
        train,
        labels=train.rule_labels(spec.data.label_map),
        labelled_rows=labelled_subset(
            train.num_problems, spec.data.label_ratio, spec.data.label_seed
        ),
        seed=spec.seed,
        device=device,
        candidates=solver.needs.candidates,
    )
    generator = torch.Generator(device).manual_seed(spec.seed)
    return TrainingState(solver=solver, batches=batches, generator=generator)


def _validator(
    store: Store, spec: TrialSpec, device: torch.device, cache: Path
) -> Callable[[Solver], dict[str, float]]:
    problems = _load_split(store, spec, "val", cache)

    def validate(solver: Solver) -> dict[str, float]:
        result = bottom_right(
            solver,
            problems,
            space="latent" if "latent" in solver.supports else "pixel",
            rounds=1,
            seed=spec.seed,
            device=device,
            limit=spec.validation_problems,
            label_map=spec.data.label_map,
        )
        metrics = {"validation_accuracy": result["accuracy"][0]}
        if result["rule_accuracy"] is not None:
            metrics["validation_rule_accuracy"] = result["rule_accuracy"]
        return metrics

    return validate


def _saver(
    folder: TrialFolder, claim: Claim, log: TrialLog
) -> Callable[[TrainingState, bool], None]:
    def save(state: TrainingState, is_best: bool) -> None:
        claim.confirm()
        if is_best:
            weights = {"solver": state.solver.state_dict()}
            meta = {"validation_accuracy": state.best_accuracy}
            checkpoint.save(folder, "best", state.step, weights, meta)
        checkpoint.save(folder, "last", state.step, state.tensors(), state.meta())
        # Writing may have taken longer than others wait: theirs are not to be pruned.
        claim.confirm()
        # Only now: the last checkpoint names the best one that a resumed run relies on.
        checkpoint.prune(folder, "best", state.best_step)
        checkpoint.prune(folder, "last", state.step)
        row = " ".join(f"{k}={v:.5g}" for k, v in state.curve[-1].items())
        log.add(f"{row} seconds={state.seconds:.1f}")

    return save


def _finish(folder: TrialFolder, claim: Claim, state: TrainingState, device: torch.device) -> None:
    """Write the curve, then done.json last: whoever sees it sees the rest."""
    columns = sorted({key for row in state.curve for key in row})
    table = pa.table({key: [row.get(key) for row in state.curve] for key in columns})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    claim.confirm()
    folder.store.write(folder.file("curve.parquet"), buffer.getvalue())
    with contextlib.suppress(FileExistsError):
        folder.store.create_json(
            folder.file("done.json"),
            {
                "step": state.step,
                "best_step": state.best_step,
                "validation_accuracy": state.best_accuracy,
                "seconds": state.seconds,
                "attempts": claim.attempt,
                "parameters": sum(p.numel() for p in state.solver.parameters()),
                "provenance": provenance(device),
            },
        )


def run_trial(
    store: Store,
    spec: TrialSpec,
    *,
    device: DeviceChoice,
    threads: int,
    cache: Path,
    report: Report | None = None,
    minutes: float | None = None,
) -> bool:
    """Train ``spec`` to its end, from its last checkpoint where there is one.

    :param report: called with every new row of the curve (step, steps, losses, metrics).
    :param minutes: pause at the first validation after so many minutes.
    :returns: True when the training is finished (also if it was before), False when paused.
    :raises Held: if a living process trains it.
    """
    folder = store.trial(spec)
    if folder.is_done:
        return True
    target = resolve_device(device)
    check_precision(spec.precision, target)
    torch.set_num_threads(threads)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    folder.put_spec(spec)
    gpus = [target] if target.type == "cuda" else []
    with folder.claim() as claim, torch.random.fork_rng(gpus):
        if folder.is_done:  # finished by another process since the look above
            return True
        log = TrialLog(folder)
        try:
            return _run_claimed(folder, claim, log, spec, target, cache, report, deadline)
        except ClaimLost:
            raise  # the log is the other attempt's
        except Exception:
            log.add(f"attempt {claim.attempt} failed\n{traceback.format_exc()}")
            raise


def _run_claimed(
    folder: TrialFolder,
    claim: Claim,
    log: TrialLog,
    spec: TrialSpec,
    device: torch.device,
    cache: Path,
    report: Report | None,
    deadline: float | None,
) -> bool:
    store = folder.store
    torch.manual_seed(spec.seed)
    state = _new_state(store, spec, device, cache)
    validate = _validator(store, spec, device, cache)
    if (last := checkpoint.load(folder, "last")) is not None:
        state.restore(last.step, last.tensors, last.meta)
    log.add(f"attempt {claim.attempt} starts at step {state.step} of {spec.steps} on {device}")
    if report is not None:
        # The rows of earlier attempts again: whoever listens may have missed them.
        for row in state.curve:
            report({**row, "steps": float(spec.steps)})
    finished = fit(
        state,
        steps=spec.steps,
        validate_every=spec.validate_every,
        precision=spec.precision,
        validate=validate,
        save=_saver(folder, claim, log),
        report=lambda row: report({**row, "steps": float(spec.steps)}) if report else None,
        pause=lambda: deadline is not None and time.monotonic() >= deadline,
    )
    if finished:
        _finish(folder, claim, state, device)
        log.add(f"done: best validation accuracy {state.best_accuracy:.4f} at {state.best_step}")
    return finished
