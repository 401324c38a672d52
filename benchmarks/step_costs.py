"""Seconds of an optimiser step by preset, model and configuration, from records of trainings.

Writes ``flows/step_costs.csv``, from which ``raise-rpm plan`` takes its costs, anew:
``python benchmarks/step_costs.py`` after records were added to ``artifacts/reports/store``.
"""

import argparse
from pathlib import Path

from flows.step_costs import FILE, measured_steps, write_table
from raise_model.trial_record import read_record

RECORDS = Path(__file__).parents[1] / "artifacts" / "reports" / "store"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of the records")
    parser.add_argument("--output", type=Path, default=FILE, help="CSV file to write")
    arguments = parser.parse_args()
    steps = measured_steps(read_record(path) for path in sorted(arguments.records.glob("*.json")))
    with arguments.output.open("w", newline="") as file:
        write_table(steps, file)
    trainings = sum(step.trainings for step in steps)
    print(f"{arguments.output}: {len(steps)} rows of {trainings} trainings")


if __name__ == "__main__":
    main()
