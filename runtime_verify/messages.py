"""What the parent asks a child process, and what it is told. One JSON object a line."""

from __future__ import annotations

import msgspec


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Import the workload `module` from the working folder. `device` is "cpu" or "cuda", `memory` in bytes.

    With `processes` above 1, join a gloo group as number `rank` by way of the file `rendezvous`.
    """

    module: str
    device: str
    scale: int
    threads: int
    memory: int
    rank: int = 0
    processes: int = 1
    rendezvous: str = ""


class Compute(msgspec.Struct, frozen=True, tag=True):
    """Set up with a seed, run once, and save what `run` returned.

    Weights are taken from the file `weights_from` if it is given, those there were saved to `weights_to`.
    """

    seed: int
    outputs: str
    weights_from: str = ""
    weights_to: str = ""


class Computed(msgspec.Struct, frozen=True, tag=True):
    """`dropped` names the weights of the file that this version does not have."""

    dropped: tuple[str, ...] = ()


class Count(msgspec.Struct, frozen=True, tag=True):
    """Count one run, in the ways that the device allows."""

    seed: int
    with_graph_breaks: bool = False


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Counters by key, each with the way in which it was counted."""

    counts: dict[str, float]
    ways: dict[str, str]


class SetUp(msgspec.Struct, frozen=True, tag=True):
    """Set up with a seed and run once, for the times that are asked for next."""

    seed: int


class Time(msgspec.Struct, frozen=True, tag=True):
    """Time `number` runs."""

    number: int


class Timed(msgspec.Struct, frozen=True, tag=True):
    """Seconds for one run."""

    seconds: float


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    """Write a snapshot of the GPU's memory during one run to the file."""

    seed: int
    path: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """It is done, and there is nothing to tell."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The workload raised. Its traceback is in the output."""

    message: str
    out_of_memory: bool = False


Request = Prepare | Compute | Count | SetUp | Time | Snapshot
Reply = Computed | Counted | Timed | Done | Failed
