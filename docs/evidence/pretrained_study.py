"""The study on features of a pretrained network, whose design is in `pretrained.md`.

    python docs/evidence/pretrained_study.py run --features=DIR --results=DIR [--settings=NAME ...]
    python docs/evidence/pretrained_study.py progress --results=DIR
    python docs/evidence/pretrained_study.py collect --results=DIR

`run` runs what is planned and has not run. It may be stopped at any time, and given again.
Each finished run is a line in the folder of the results. Two processes with different settings may
share the folder. `progress` says how far each setting is, and how long the rest takes. `collect`
writes the numbers of each setting whose runs are complete to `docs/evidence/pretrained/results`,
from which `python docs/evidence/write_pages.py` makes the tables of the page.

DIR of the features has `tiny_imagenet.npz` and `omniglot.npz`, which `train.embed` writes.
"""

import argparse
import sys
from pathlib import Path

# The program of this checkout comes before an installed one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pretrained import collecting, design, progress, running
from pretrained.records import Records


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "progress", "collect"])
    parser.add_argument("--features", type=Path, help="the folder of the features")
    parser.add_argument("--results", type=Path, required=True, help="the folder of finished runs")
    parser.add_argument("--settings", nargs="*", default=[], help="only these")
    arguments = parser.parse_args()
    study = design.study()
    if unknown := set(arguments.settings) - set(design.names(study.settings)):
        parser.error(f"no setting is {sorted(unknown)}; they are {design.names(study.settings)}")
    records = Records(arguments.results, study.digest)
    if arguments.command == "progress":
        sys.stdout.write(progress.table(study, records))
    elif arguments.command == "collect":
        for path in collecting.write(study, records, arguments.results):
            sys.stdout.write(f"{path}\n")
    else:
        if arguments.features is None:
            parser.error("run needs --features")
        running.run(
            study,
            records,
            arguments.features,
            only=arguments.settings,
            labels=arguments.results,
            report=_report,
        )


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
