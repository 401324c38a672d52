"""RAISE with torch alone: ``python -m raise_model generate | train | evaluate | export``.

The same data, specs and store as the flows use, without Ray, Prefect or MLflow: for a bare
GPU machine.  Progress goes to standard error, the result is one JSON line on standard output.
"""

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from raise_model.claims import ClaimLost, Held
from raise_model.errors import UserError, place_error
from raise_model.models import registry
from raise_model.presets import PRESETS, as_published, trial_spec
from raise_model.specs import EvaluationSpec
from raise_model.store import Store


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _store(arguments: argparse.Namespace) -> Store:
    store = Store(arguments.store)
    store.probe()
    return store


def _store_with_trials(arguments: argparse.Namespace) -> Store:
    """To be read: it may be one that cannot be written."""
    store = Store(arguments.store)
    if not store.list("trials"):
        raise UserError(f"no trial in {store.root}; check --store, or train one")
    return store


def _generate(arguments: argparse.Namespace) -> dict[str, Any]:
    from raise_model.data.generate import generate
    from raise_model.data.held_out import check_held_out, hold_out

    if arguments.held_out:
        check_held_out(arguments.configuration)
    store, shown = _store(arguments), -1

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if (tenth := 10 * done // max(total, 1)) != shown:
            shown = tenth
            _say(f"{arguments.dataset}/{arguments.configuration}: {done} of {total} problems")

    manifests = generate(
        store,
        dataset=arguments.dataset,
        configuration=arguments.configuration,
        problems=arguments.problems,
        workers=arguments.workers,
        progress=progress,
    )
    result: dict[str, Any] = {split: manifest.digest for split, manifest in manifests.items()}
    if arguments.held_out:
        held = hold_out(store, arguments.dataset, arguments.configuration)
        result["held_out"] = {
            split: {"problems": made.problems, "digest": made.digest}
            for split, made in held.items()
        }
    return result


def _train(arguments: argparse.Namespace) -> dict[str, Any]:
    from raise_model.data.grammar import configuration
    from raise_model.data.schema import open_manifest
    from raise_model.training.device import resolve_device
    from raise_model.training.trial import run_trial

    registry.solver_class(arguments.model)
    configuration(arguments.configuration)
    store = _store(arguments)
    digests = {
        split: open_manifest(store, arguments.dataset, arguments.configuration, split).digest
        for split in ("train", "val")
    }
    spec = trial_spec(
        model=arguments.model,
        preset=arguments.preset,
        dataset=arguments.dataset,
        configuration=arguments.configuration,
        train_digest=digests["train"],
        validation_digest=digests["val"],
        seed=arguments.seed,
        label_ratio=arguments.label_ratio,
    )
    if arguments.as_published:
        spec = as_published(spec)
    changes = {"precision": arguments.precision, "steps": arguments.steps}
    spec = dataclasses.replace(spec, **{k: v for k, v in changes.items() if v is not None})
    resolve_device(arguments.device)
    if store.trial(spec).is_done:
        _say(f"{spec.name} was finished before")
    else:
        _say(f"{spec.name}: {spec.steps} steps, log at {store.path(f'trials/{spec.name}/log.txt')}")
        store.trial(spec).outwait(_say)
    finished = run_trial(
        store,
        spec,
        device=arguments.device,
        threads=arguments.threads,
        cache=arguments.cache,
        report=lambda row: _say(" ".join(f"{k}={v:.4g}" for k, v in row.items())),
        minutes=arguments.minutes,
    )
    result = {"trial": spec.name, "finished": finished}
    return result | (store.trial(spec).done() if finished else {})


def _evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    from raise_model.data.schema import open_manifest
    from raise_model.evaluation.evaluate import PROTOCOLS, evaluate

    store = _store_with_trials(arguments)
    trial = store.trial(arguments.trial)
    if not arguments.trial or not store.exists(trial.file("spec.json")):
        raise UserError(
            f"no trial {arguments.trial!r} in {store.root}; its trials: "
            f"{', '.join(each.name for each in store.trials())}"
        )
    store.probe()
    configuration = trial.spec().data.configuration
    dataset = arguments.dataset
    protocol = PROTOCOLS.get(arguments.protocol)
    if protocol is None:
        raise UserError(
            f"unknown protocol {arguments.protocol!r}; known protocols: {', '.join(PROTOCOLS)}"
        )
    options = {name: of[0] for name, of in protocol.options.items() if not isinstance(of, type)}
    if "space" in options:
        options["space"] = arguments.space
    spec = EvaluationSpec(
        protocol=arguments.protocol,
        options=options | dict(arguments.option),
        dataset=dataset,
        configuration=configuration,
        split=arguments.split,
        digest=open_manifest(store, dataset, configuration, arguments.split).digest,
        rounds=arguments.rounds,
        seed=0,
        revision=protocol.revision,
    )
    folder = trial.evaluation(spec)
    if not folder.is_done:
        result = evaluate(store, trial, spec, device=arguments.device, cache=arguments.cache)
        folder.create_result(spec, result)
    result = folder.result()
    # What is long: answers problem by problem, and pictures.
    short = {name: value for name, value in result.items() if name not in ("correct", "png")}
    return {"trial": trial.name, "evaluation": spec.name, **short}


def _export(arguments: argparse.Namespace) -> dict[str, Any]:
    from raise_model.store_transfer import export_trials

    names = export_trials(
        _store_with_trials(arguments), arguments.folder, weights=arguments.weights
    )
    return {"exported": list(names)}


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1 on, not {text}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"it must be a whole number from 0 to 2^32 - 1, not {text}"
        )
    return int(text)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0.0 <= minutes < math.inf:
        raise argparse.ArgumentTypeError(f"it must be a number from 0 on, not {text}")
    return minutes


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"it must be NAME=VALUE, not {text}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m raise_model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], Any], text: str) -> Any:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("--store", required=True, help="folder, file:// or s3:// URI")
        return command

    home = Path(os.environ.get("RAISE_HOME") or ".raise")
    device: dict[str, Any] = {"choices": ("auto", "cpu", "cuda"), "default": "auto"}

    command = add("generate", _generate, "make a data set with the project's own generator")
    command.add_argument("--dataset", default="raven", help="raven, iraven, iraven_paired, ...")
    command.add_argument("--configuration", required=True)
    command.add_argument("--problems", type=int, default=10_000)
    command.add_argument("--held-out", action="store_true", help="also <dataset>_held_out")
    command.add_argument("--workers", type=_positive, default=os.cpu_count() or 1)

    command = add("train", _train, "train one trial, from its last checkpoint if it has one")
    command.add_argument("--model", default="raise")
    command.add_argument("--preset", required=True, choices=PRESETS)
    command.add_argument("--dataset", default="raven")
    command.add_argument("--configuration", required=True)
    command.add_argument("--seed", type=_seed, default=0)
    command.add_argument("--label-ratio", type=float, default=None, help="default: the paper's")
    command.add_argument(
        "--as-published",
        action="store_true",
        help="RAISE's lite networks, trained as the authors do, in as much time",
    )
    command.add_argument("--precision", choices=("fp32", "bf16"), help="default: the preset's")
    command.add_argument("--steps", type=_positive, help="default: the preset's; schedules stretch")
    command.add_argument("--device", **device)
    command.add_argument("--threads", type=_positive, default=1)
    command.add_argument("--minutes", type=_minutes, default=None, help="pause after so many")
    command.add_argument("--cache", type=Path, default=home / "cache")

    command = add("evaluate", _evaluate, "evaluate a finished trial")
    command.add_argument("trial", help="name of the trial's folder in the store")
    command.add_argument("--dataset", default="raven")
    command.add_argument("--split", default="test", choices=("train", "val", "test"))
    command.add_argument("--protocol", default="bottom_right")
    command.add_argument("--space", default="latent", choices=("latent", "pixel"))
    command.add_argument(
        "--option", type=_option, action="append", default=[], metavar="NAME=VALUE",
        help="another option of the protocol, e.g. odd=any; default: its first value",
    )  # fmt: skip
    command.add_argument("--rounds", type=_positive, default=1)
    command.add_argument("--device", **device)
    command.add_argument("--cache", type=Path, default=home / "cache")

    command = add("export", _export, "write finished trials as small records")
    command.add_argument("folder", type=Path)
    command.add_argument("--weights", action="store_true", help="with bf16 weights of one seed")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done or paused, 2 a mistake of the user, 128 + N stopped by signal N."""
    arguments = _parser().parse_args(argv)
    try:
        result = arguments.run(arguments)
    except (UserError, Held, ClaimLost) as error:
        _say(f"error: {error}")
        return 2
    except OSError as error:
        if (mistake := place_error(error)) is None:
            raise
        _say(f"error: {mistake}")
        return 2
    except KeyboardInterrupt as stop:
        _say("stopped; the same command goes on from what is finished (train: last checkpoint)")
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    print(json.dumps(result))
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    """As from the keyboard, so that claims are given back."""
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
