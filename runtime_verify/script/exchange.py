"""What the parent asks of the child that runs a script, and what the child answers. Nothing here imports torch."""

from __future__ import annotations

import enum

import msgspec

from ..records import Environment


class Boundary(enum.Enum):
    """What ends a step."""

    AUTO = "auto"
    OPTIMIZER = "optimizer steps"
    LOADER = "DataLoader iterations"


class End(enum.Enum):
    """How the script came to its end."""

    REACHED = "stopped after the steps asked for"
    BUDGET = "stopped when its time was up"
    FINISHED = "ended by itself"
    CRASHED = "crashed"


class Watched(msgspec.Struct, frozen=True):
    """Lines of a file, relative to the project, of which a run executes one or none; both ends count."""

    file: str
    first: int
    last: int


class Request(msgspec.Struct, frozen=True):
    """One run of a script.

    `tree` is the copy of the project, and the script's working folder is the process's own. `original` is the user's
    project, and `protected` are the folders and files outside of the copy that must not be written to: `original` and
    what its symbolic links lead to. `workspace` may be written to wherever it lies. After `warmup` steps, steps are
    timed until `steps` have been made in all, or until `budget` seconds have passed. `skip` is how many DataLoader
    iterations come before the first step where those are the boundary. `count` asks for the host-device
    synchronizations to be counted, and for the `watched` lines to be looked out for, which makes the times worthless.
    """

    script: str
    arguments: tuple[str, ...]
    tree: str
    original: str
    protected: tuple[str, ...]
    answer: str
    workspace: str
    steps: int
    warmup: int
    budget: float
    seed: int
    boundary: Boundary = Boundary.AUTO
    skip: int = 0
    count: bool = False
    watched: tuple[Watched, ...] = ()


class Observed(msgspec.Struct, frozen=True):
    """What the child saw.

    `durations` are the seconds of each timed step, `elapsed` those from the first timed step to the end of the last
    with everything in between, such as an evaluation. `syncs` are the synchronizations of each step after the warm-up.
    `losses` are the values on which a backward was called. `peak_bytes` is the peak of `memory` ("device memory" or
    "resident memory") since the warm-up, 0 where it cannot be known. `streams` are digests of the states of the random
    generators at the end. `loaded` are the project's files that were imported, `foreign` those that were imported from
    the original instead of the copy. `clock` says what took the times. `refused` are the paths of the original
    that the script tried to write to. `reached` are the indexes of the watched lines that were executed.
    """

    end: End
    message: str = ""
    boundary: Boundary = Boundary.AUTO
    steps: int = 0
    skipped: int = 0
    durations: tuple[float, ...] = ()
    elapsed: float = 0.0
    syncs: tuple[int, ...] | None = None
    sync_kinds: dict[str, int] = {}
    losses: tuple[float, ...] = ()
    peak_bytes: int = 0
    memory: str = ""
    streams: dict[str, str] = {}
    loaded: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    clock: str = ""
    device: str = "cpu"
    refused: tuple[str, ...] = ()
    reached: tuple[int, ...] | None = None
    environment: Environment | None = None
