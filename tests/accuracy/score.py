#!/usr/bin/env python3
"""Score torchlint's eight core rules against labels of real repositories.

    python tests/accuracy/score.py CHECKOUTS [--command "python -m torchlint"] [--repository owner/name]

CHECKOUTS is a folder that holds a checkout of each labelled repository under the repository's own name. torchlint runs
on each whole checkout, so that it knows the project's facts, and its findings in the labelled files are compared with
the labels. Exit 1 where the development set falls below the precision or recall that is asked for, 2 where torchlint
fails or a checkout of the development set is missing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CODES = ("TL101", "TL201", "TL203", "TL301", "TL401", "TL405", "TL501", "TL502")
SETS = ("development", "held-out")
LABELS = Path(__file__).with_name("labels.json")
PRECISION, RECALL = 0.95, 0.90

Place = tuple[str, int, str]  # path in the repository, line, code


class ScoreError(Exception):
    """What keeps a repository from being scored; the message says where."""


@dataclass(frozen=True)
class Difference:
    """A place where the tool and the labels disagree: `kind` is "false" or "missed"."""

    kind: str
    repository: str
    path: str
    line: int
    code: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind:<6} {self.repository} {self.path}:{self.line} {self.code}  {self.why}"


@dataclass
class Tally:
    """How often the tool was right (`true`), reported what it should not (`false`), and missed what it should
    report.
    """

    true: int = 0
    false: int = 0
    missed: int = 0

    def add(self, other: Tally) -> None:
        self.true += other.true
        self.false += other.false
        self.missed += other.missed

    @property
    def precision(self) -> float:
        return _share(self.true, self.true + self.false)

    @property
    def recall(self) -> float:
        return _share(self.true, self.true + self.missed)


Tallies = dict[str, Tally]  # by code


def main(arguments: Sequence[str] | None = None) -> int:
    """Score every repository that is checked out, print the differences and a table for each set."""
    options = _parser().parse_args(arguments)
    repositories = json.loads(options.labels.read_text(encoding="utf-8"))
    if options.repository:
        repositories = [r for r in repositories if r["repository"] in options.repository]
    tallies: dict[str, Tallies] = {}
    absent = False
    for repository in repositories:
        try:
            checkout = _checkout(options.checkouts, repository)
            if checkout is None:
                absent = absent or repository["set"] == "development"
                continue
            found = findings(checkout, shlex.split(options.command))
            scored, differences = score(repository, found)
        except ScoreError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        for difference in differences:
            print(difference)
        total = tallies.setdefault(repository["set"], defaultdict(Tally))
        for code, tally in scored.items():
            total[code].add(tally)
    for name in SETS:
        if name in tallies:
            print("\n".join(_table(name, tallies[name])))
    return 2 if absent else _status(tallies.get("development", {}))


def findings(checkout: Path, command: Sequence[str]) -> set[Place]:
    """The findings of the eight rules in a whole checkout, by the command line that everybody uses."""
    options = ("--isolated", "--no-cache", "--exit-zero", "--select", ",".join(CODES), "--output-format", "json")
    done = subprocess.run([*command, *options, str(checkout)], capture_output=True, text=True)
    if done.stderr:
        print(done.stderr, end="", file=sys.stderr)
    try:
        rows = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ScoreError(f"{checkout}: {shlex.join(command)} gave no report (exit {done.returncode})") from None
    root = checkout.resolve()
    return {
        (Path(row["filename"]).resolve().relative_to(root).as_posix(), row["location"]["row"], row["code"])
        for row in rows
        if row["code"] in CODES
    }


def score(repository: dict[str, Any], found: set[Place]) -> tuple[Tallies, list[Difference]]:
    """Compare findings with a repository's labels.

    What no label speaks of is to stay silent; a disputable place ("either") counts for neither side. Findings in files
    without labels count for nothing.
    """
    tallies: Tallies = defaultdict(Tally)
    differences = []
    for path, code, line, verdict, why in sorted(_judged(repository, found)):
        is_found = (path, line, code) in found
        if verdict == "flag":
            tallies[code].true += is_found
            tallies[code].missed += not is_found
        elif verdict == "silent":
            tallies[code].false += is_found
        if verdict != "either" and is_found != (verdict == "flag"):
            kind = "false" if is_found else "missed"
            differences.append(Difference(kind, repository["repository"], path, line, code, why))
    return tallies, differences


def _judged(repository: dict[str, Any], found: set[Place]) -> Iterator[tuple[str, str, int, str, str]]:
    """(path, code, line, verdict, why) for each label, and for each finding without one in a labelled file."""
    for file in repository["files"]:
        path = file["path"]
        labelled = {(label["code"], label["line"]) for label in file["labels"]}
        for label in file["labels"]:
            yield path, label["code"], label["line"], label["verdict"], label["why"]
        for place, line, code in found:
            if place == path and (code, line) not in labelled:
                yield path, code, line, "silent", "(no label)"


def _checkout(folder: Path, repository: dict[str, Any]) -> Path | None:
    """The checkout of a repository, None where there is none; another commit than the labelled one is said aloud."""
    name, commit = repository["repository"], repository["commit"]
    checkout = Path(folder, name.rpartition("/")[2])
    if not checkout.is_dir():
        print(f"skipped {name}: no checkout at {checkout}", file=sys.stderr)
        return None
    for file in repository["files"]:
        if not Path(checkout, file["path"]).is_file():
            raise ScoreError(f"{checkout}: {file['path']} is missing: the labels are of commit {commit}")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True).stdout.strip()
    if head and head != commit:
        print(f"warning: {checkout} is at {head}, the labels are of {commit}: lines may differ", file=sys.stderr)
    return checkout


def _table(name: str, tallies: Tallies) -> Iterator[str]:
    total = Tally()
    yield f"\n{name:<12}{'true':>6}{'false':>7}{'missed':>8}{'precision':>11}{'recall':>8}"
    for code in CODES:
        tally = tallies.get(code, Tally())
        total.add(tally)
        yield _row(code, tally)
    yield _row("all", total)


def _row(title: str, tally: Tally) -> str:
    shares = f"{tally.precision:>11.3f}{tally.recall:>8.3f}"
    return f"{title:<12}{tally.true:>6}{tally.false:>7}{tally.missed:>8}{shares}"


def _share(part: int, whole: int) -> float:
    """Nothing reported is nothing reported wrongly; nothing to find is nothing missed."""
    return part / whole if whole else 1.0


def _status(tallies: Tallies) -> int:
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return int(total.precision < PRECISION or total.recall < RECALL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Score the eight core rules against labels of real repositories.")
    parser.add_argument("checkouts", type=Path, metavar="CHECKOUTS", help="a folder with a checkout of each repository")
    parser.add_argument(
        "--labels", type=Path, default=LABELS, help="the labels (default: labels.json beside this script)"
    )
    parser.add_argument(
        "--command", default=shlex.join([sys.executable, "-m", "torchlint"]), help="how to start torchlint"
    )
    parser.add_argument("--repository", action="append", help="score only this repository (owner/name); repeatable")
    return parser


if __name__ == "__main__":
    sys.exit(main())
