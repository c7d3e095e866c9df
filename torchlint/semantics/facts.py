"""The records that cross files: what a file tells the others (`FileSummary`), and what it gets back (`Linked`)."""

from __future__ import annotations

import msgspec

from torchlint.semantics.layers import LayerSummary, LinkedLayers
from torchlint.semantics.values import UNKNOWN, Value

Place = tuple[tuple[int, bool], ...]

MODULE_BODY = "<module>"
OUTSIDE = -1  # the "loop" number of a function's own body


class LoopFacts(msgspec.Struct, frozen=True, array_like=True):
    """A loop of a function: its number in the file, the loop around it (-1: none), and what its head says.

    loads: it iterates a DataLoader; short: it is a `range` loop, which after a step loop makes a few pictures and no
    more; after: for a short one, the loops before it in the body of the loop around both.
    """

    number: int
    outer: int
    loads: bool = False
    short: bool = False
    after: tuple[int, ...] = ()


class EventFacts(msgspec.Struct, frozen=True, array_like=True):
    """A forward, layer, backward, step or differentiate event, its place, and whether gradients are off there."""

    kind: str
    place: Place
    grad_off: bool = False


class CallFacts(msgspec.Struct, frozen=True, array_like=True):
    """A call of project code: who, from where, in which grad mode, with which values."""

    callee: str
    place: Place
    grad_off: bool
    positional: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    bound: bool
    starred: bool
    discarded: bool


class FunctionFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one function (or a module body) does, calls and gives back.

    What more it could say if it knew: `open` are the parameters of which its own file says nothing, `asks` the
    attributes of other files' classes ("pkg.net:Net.decoder") that nobody could tell yet.
    """

    id: str
    parameters: tuple[str, ...]
    returns: Value = UNKNOWN
    loops: tuple[LoopFacts, ...] = ()
    events: tuple[EventFacts, ...] = ()
    calls: tuple[CallFacts, ...] = ()
    grad_off: bool = False
    mentions_grad_off: bool = False
    in_module: bool = False
    has_receiver: bool = False
    moves: bool = False
    memory_getter: bool = False
    single_return_sync: bool = False
    guards: bool = False
    open: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()


class ClassFacts(msgspec.Struct, frozen=True, array_like=True):
    """A class: its bases (project ids or external names), methods and attributes."""

    id: str
    bases: tuple[str, ...]
    methods: tuple[str, ...]
    properties: tuple[str, ...]
    attributes: dict[str, Value] = {}


class FileSummary(msgspec.Struct, frozen=True):
    """Everything that other files may need to know of one file."""

    module: str
    functions: tuple[FunctionFacts, ...] = ()
    classes: tuple[ClassFacts, ...] = ()
    names: dict[str, Value] = {}
    stars: tuple[str, ...] = ()
    escapes: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    device: bool = False
    layers: LayerSummary = LayerSummary()

    def revised(self, revision: FileSummary) -> FileSummary:
        """This summary with what a later round has to say of some functions and classes in its place."""
        functions = {facts.id: facts for facts in revision.functions}
        classes = {facts.id: facts for facts in revision.classes}
        return msgspec.structs.replace(
            self,
            functions=tuple(functions.get(facts.id, facts) for facts in self.functions),
            classes=tuple(classes.get(facts.id, facts) for facts in self.classes),
            names={**self.names, **revision.names},
            references=tuple(sorted({*self.references, *revision.references})),
        )


class Linked(msgspec.Struct, frozen=True):
    """What the project says about one file. `again` names its functions that may say more now than they did."""

    returns: dict[str, Value] = {}
    parameters: dict[str, dict[str, Value]] = {}
    refs: dict[str, Value] = {}
    classes: dict[str, ClassFacts] = {}
    hot: frozenset[str] = frozenset()
    grad_off: frozenset[str] = frozenset()
    always_grad_off: frozenset[str] = frozenset()
    step_loops: frozenset[int] = frozenset()
    trains: frozenset[str] = frozenset()
    differentiates: frozenset[str] = frozenset()
    exposed: frozenset[str] = frozenset()
    reaches_backward: frozenset[str] = frozenset()
    mentions_grad_off: frozenset[str] = frozenset()
    sync_wrappers: frozenset[str] = frozenset()
    memory_getters: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    escapes: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    moves: frozenset[str] = frozenset()
    device: bool = False
    again: frozenset[str] = frozenset()
    layers: LinkedLayers = LinkedLayers()

    @property
    def flow_inputs(self) -> tuple[object, ...]:
        """What flow and places are worked out from: where it is the same, so are they."""
        return (
            self.returns,
            self.parameters,
            self.refs,
            self.classes,
            self.trains,
            self.guards,
            self.mentions_grad_off,
            self.moves,
        )
