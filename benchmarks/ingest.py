"""Reading published problems into Parquet, against `cat` and against a plain loop.

    python benchmarks/ingest.py [--folder FOLDER] [--problems 2000] [--rounds 3] [--json]

The problems of a folder in the published layout are repeated under new indices, npz members
uncompressed as in the published archives, and then read, in turns, by

=======  ======================================================================================
cat      ``cat`` of every file into /dev/null
loop     one process, one file after the other: np.load, bilinear to 64x64, xml.etree, rules
ingest   ``raise_model.data.ingest``: all annotations, digests, Parquet; its workers' start too
=======  ======================================================================================

Peak memory is the resident memory of a fresh process with its workers, at its highest (Linux),
once for some problems and once for ten times as many.  Ends with status 1 if the loop is slower
than ``--loop-floor``: then the comparison says nothing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from raise_model.data.ingest import ingest
from raise_model.data.splits import split_of
from raise_model.store import Store

PUBLISHED = Path(__file__).parents[1] / "tests" / "data" / "published" / "raven"
GOAL = 4.0


def _repeat(source: Path, target: Path, problems: int) -> None:
    """``problems`` problems in the published layout, from those of ``source`` in turn."""
    npzs = sorted(source.rglob("RAVEN_*.npz"))
    if not npzs:
        raise SystemExit(f"error: no RAVEN_*.npz under {source}; give the published files")
    for number in range(problems):
        npz = npzs[number % len(npzs)]
        index = number // len(npzs)
        stem = target / npz.parent.name / f"RAVEN_{_free(target, npz, index)}"
        stem.parent.mkdir(parents=True, exist_ok=True)
        with np.load(npz) as arrays:
            np.savez(f"{stem}.npz", **arrays)
        shutil.copyfile(npz.with_suffix(".xml"), f"{stem}.xml")


def _free(target: Path, npz: Path, index: int) -> str:
    """The first index from ``index`` on that no problem of the configuration has yet."""
    while (target / npz.parent.name / f"RAVEN_{index}_{split_of(index)}.npz").exists():
        index += 1
    return f"{index}_{split_of(index)}"


def _multiply(source: Path, target: Path, times: int) -> None:
    """Hard links: ``times`` problems for each."""
    for npz in source.rglob("*.npz"):
        folder = target / npz.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        index = int(npz.stem.split("_")[1])
        for copy in range(times):
            new = index + copy * 100_000
            for suffix in (".npz", ".xml"):
                os.link(npz.with_suffix(suffix), folder / f"RAVEN_{new}_{split_of(new)}{suffix}")


def _cat(files: Sequence[Path]) -> None:
    for start in range(0, len(files), 1000):
        subprocess.run(
            ["cat", *map(str, files[start : start + 1000])], stdout=subprocess.DEVNULL, check=True
        )


def _loop(files: Sequence[Path]) -> None:
    """What a training script does for each file when it starts."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    for npz in files:
        if npz.suffix != ".npz":
            continue
        image = torch.from_numpy(np.load(npz)["image"])
        functional.interpolate(image[None].float(), (64, 64), mode="bilinear")
        root = ElementTree.parse(npz.with_suffix(".xml")).getroot()
        [(rule.get("name"), rule.get("attr")) for rule in root.iter("Rule")]


def _ingest(folder: Path, store: Path, workers: int, problems: int) -> None:
    report = ingest(Store(str(store)), [folder], workers=workers)
    if report.rejected or sum(made.problems for made in report.manifests) != problems:
        raise SystemExit(f"error: problems were rejected: {report.rejected[:1]}")
    shutil.rmtree(store)


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak(folder: Path, store: Path, workers: int, problems: int) -> float:
    """MiB of a fresh process and its workers together, at their highest."""
    arguments = [str(folder), str(store), str(workers), str(problems)]
    command = [sys.executable, __file__, "--ingest-only", *arguments]
    process = subprocess.Popen(command)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit("error: the measured process failed")
    return peak


def _resident(root: int) -> float:
    """MiB in memory of a process and all that it started."""
    parents: dict[int, int] = {}
    sizes: dict[int, float] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # It ended meanwhile.
            continue
        pid = int(fields["Pid"])
        parents[pid] = int(fields["PPid"])
        sizes[pid] = int(fields.get("VmRSS", "0 kB").split()[0]) / 1024
    own = {root}
    for _ in parents:
        grown = own | {pid for pid, parent in parents.items() if parent in own}
        if grown == own:
            break
        own = grown
    return sum(sizes.get(pid, 0.0) for pid in own)


def main() -> int:
    """Print the table, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=PUBLISHED, help="published problems")
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--memory-problems", type=int, default=1000, help="and ten times as many")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop-floor", type=float, default=500.0, help="problems a second")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ingest-only", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ingest_only:
        folder, store, workers, problems = arguments.ingest_only
        _ingest(Path(folder), Path(store), int(workers), int(problems))
        return 0
    with tempfile.TemporaryDirectory(prefix="raise-ingest-") as scratch:
        home = Path(scratch)
        _repeat(arguments.folder, home / "raven", arguments.problems)
        files = sorted(path for path in (home / "raven").rglob("*") if path.is_file())
        size = sum(file.stat().st_size for file in files)
        _loop(files[:20])  # Imports, and what libraries set up once.
        times: dict[str, list[float]] = {"cat": [], "loop": [], "ingest": []}
        for _ in range(arguments.rounds):
            times["cat"].append(_seconds(lambda: _cat(files)))
            times["loop"].append(_seconds(lambda: _loop(files)))
            times["ingest"].append(
                _seconds(
                    lambda: _ingest(
                        home / "raven", home / "store", arguments.workers, arguments.problems
                    )
                )
            )
        peaks = _peaks(arguments, home)
    return _report(arguments, times, size, peaks)


def _peaks(arguments: argparse.Namespace, home: Path) -> tuple[float, float] | None:
    """MiB for some problems, and for ten times as many; None where none are asked for.

    Of one configuration, so that already the fewer fill whole row groups.
    """
    few = arguments.memory_problems
    if not few:
        return None
    _repeat(min((home / "raven").iterdir()), home / "few", few)
    _multiply(home / "few", home / "many", 10)
    store = home / "store"
    return (
        _peak(home / "few", store, arguments.workers, few),
        _peak(home / "many", store, arguments.workers, 10 * few),
    )


def _median_ratio(opponent: Sequence[float], own: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(opponent, own, strict=True))


def _report(
    arguments: argparse.Namespace,
    times: dict[str, list[float]],
    size: int,
    peaks: tuple[float, float] | None,
) -> int:
    import torch

    from raise_model.provenance import commit
    from raise_model.training.device import device_name

    hardware = device_name(torch.device("cpu"))
    rates = {name: arguments.problems / statistics.median(times[name]) for name in times}
    ratio = _median_ratio(times["loop"], times["ingest"])
    share = _median_ratio(times["cat"], times["ingest"])
    print(f"{'':8}{'problems/s':>12}{'MB/s':>10}{'processes':>11}")
    for name, rate in rates.items():
        processes = arguments.workers if name == "ingest" else 1
        speed = rate * size / arguments.problems / 1e6
        print(f"{name:8}{rate:12.0f}{speed:10.0f}{processes:11}")
    print(f"ingest is {ratio:.2f} times the loop (goal {GOAL:.0f}) and {share:.2f} of cat")
    if peaks:
        few = arguments.memory_problems
        print(f"peak memory {peaks[0]:.0f} MiB for {few} problems, {peaks[1]:.0f} for {10 * few}")
    print(f"{hardware}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, commit {commit()}")
    fair = rates["loop"] >= arguments.loop_floor
    if not fair:
        print(
            f"the loop reads {rates['loop']:.0f} problems/s, less than {arguments.loop_floor:.0f}: "
            "this machine is slow or busy, so the comparison does not count (--loop-floor)"
        )
    if arguments.json:
        result = {
            "benchmark": "ingest",
            "problems_per_second": {name: round(rate, 1) for name, rate in rates.items()},
            "megabytes_per_second": {
                name: round(rate * size / arguments.problems / 1e6, 1)
                for name, rate in rates.items()
            },
            "times_the_loop": round(ratio, 3),
            "goal": GOAL,
            "share_of_cat": round(share, 3),
            "loop_floor": arguments.loop_floor,
            "fair": fair,
            "peak_mib": peaks and [round(peak) for peak in peaks],
            "problems": arguments.problems,
            "memory_problems": arguments.memory_problems,
            "rounds": arguments.rounds,
            "workers": arguments.workers,
            "threads": 1,
            "hardware": hardware,
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "commit": commit(),
        }
        print(json.dumps(result))
    return 0 if fair else 1


if __name__ == "__main__":
    sys.exit(main())
