"""The runs that were kept: one file for each device in `results/`, read without torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from .records import FORMAT, Environment, Results, Row, Table

FOLDER = Path(__file__).parent / "results"


class ResultsError(Exception):
    """A file of results cannot be read or written."""


class Measured(NamedTuple):
    """A row with the environment that it was measured in."""

    row: Row
    environment: Environment


class _Head(msgspec.Struct):
    format: int


def path_for(environment: Environment, folder: Path = FOLDER) -> Path:
    """The file for a device, such as `results/cuda-nvidia-h200.json`."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{environment.device} {environment.device_name}".lower()).strip("-")
    return folder / f"{name}.json"


def read(path: Path) -> Results:
    """The runs of a file. Raises ResultsError where it is not one, or of a later form."""
    try:
        data = path.read_bytes()
        if msgspec.json.decode(data, type=_Head).format > FORMAT:
            raise ResultsError(f"{path}: was written by a later torchlint")
        return msgspec.json.decode(data, type=Results)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise ResultsError(f"{path}: holds no results: {error}") from error


def save(table: Table, folder: Path = FOLDER) -> Path:
    """Add a run to its device's file, and give that file's path. Raises ResultsError; the file is then as it was.

    Runs of which every row was measured again later, and which hold nothing else, are left out.
    """
    path = path_for(table.environment, folder)
    runs = (*read(path).runs, table) if path.exists() else (table,)
    data = msgspec.json.format(msgspec.json.encode(Results(_current(runs))), indent=1)
    partial = path.with_suffix(".partial")
    try:
        folder.mkdir(exist_ok=True)
        partial.write_bytes(data + b"\n")
        partial.replace(path)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def newest_row(code: str, folder: Path = FOLDER) -> Measured | None:
    """A rule's row that was measured last, on whichever device. Files that cannot be read are passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            runs = read(path).runs
        except ResultsError:
            continue  # `torchlint verify --save` complains about it; a rule's page is shown all the same
        found += [Measured(row, run.environment) for run in runs for row in run.rows if row.code == code]
    return max(found, key=lambda measured: measured.row.measured, default=None)


def _current(runs: tuple[Table, ...]) -> tuple[Table, ...]:
    kept = []
    again: set[str] = set()
    for run in reversed(runs):
        codes = {row.code for row in run.rows}
        if run is runs[-1] or run.sweeps or run.sightings or codes - again:
            kept.append(run)
        again |= codes
    return tuple(reversed(kept))
