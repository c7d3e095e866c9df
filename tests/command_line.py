"""Runs the command line in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchlint.cli import main

if TYPE_CHECKING:
    import pytest


class Completed(NamedTuple):
    """How a run ended."""

    status: int
    out: str
    err: str


class CommandLine:
    """Call it with the arguments of a command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Completed:
        self._capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 2
        return Completed(status, *self._capsys.readouterr())
