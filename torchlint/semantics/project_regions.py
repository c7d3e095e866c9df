"""Regions over a whole project: which loops are step loops, what is hot, and where gradients are off or wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from torchlint.semantics.facts import OUTSIDE, FunctionFacts
from torchlint.semantics.values import may_carry_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torchlint.semantics.facts import Linked, Place
    from torchlint.semantics.project import Project

MOST_ROUNDS = 12  # of deciding loops: what depends on itself may not settle


class ProjectRegions:
    """What follows from who calls whom: worked out once, after the last round. `facts` gives each file its part."""

    def __init__(self, project: Project) -> None:
        self.project = project
        layout, summaries = project.layout, project.summaries
        self._device_homes = {layout.home(path) for path, summary in summaries.items() if summary.device}
        self._decide_loops()
        self.hot = self._spread_heat()
        self.grad_off = self._spread_grad_off()
        self.differentiates = project.calling(
            {f.id for f in project.functions.values() if has_event(f, "backward", "step", "differentiate")}
        )
        self.exposed = self._find_exposed()
        self.reaches_backward = self._find_reaching()

    def facts(self, path: str) -> Linked:
        """What concerns one file altogether."""
        summary = self.project.summaries[path]
        own, names, _, _ = self.project.near(summary)
        return msgspec.structs.replace(
            self.project.flow_facts(path),
            hot=frozenset(own & self.hot),
            grad_off=frozenset(own & self.grad_off),
            always_grad_off=frozenset(names & self.grad_off),
            step_loops=frozenset(n for name in own for n in self.step_loops[name]),
            differentiates=frozenset(names & self.differentiates),
            exposed=frozenset(names & self.exposed),
            reaches_backward=frozenset(own & self.reaches_backward),
            sync_wrappers=frozenset(n for n in names if self.project.functions[n].single_return_sync),
            memory_getters=frozenset(n for n in names if self.project.functions[n].memory_getter),
            escapes=frozenset(own & self.project.escapes),
            called=frozenset(own & self.project.sites.keys()),
            device=self.project.layout.home(path) in self._device_homes,
        )

    def _decide_loops(self) -> None:
        """Which loops are step loops: a least fixed point over what called functions do outside and inside their
        loops.
        """
        self.own_training: set[str] = set()  # backward or step outside any loop of the function, callees included
        self.own_forward: set[str] = set()
        self.holds_step_loop: set[str] = set()
        self.step_loops: dict[str, set[int]] = {f: set() for f in self.project.functions}
        pending = dict.fromkeys(self.project.functions)
        for _ in range(MOST_ROUNDS):
            if not pending:
                return
            changed: dict[str, None] = {}
            for name in pending:
                if self._decide_function(self.project.functions[name]):
                    changed[name] = None
                    changed.update((caller, None) for caller, _ in self.project.sites.get(name, ()))
            pending = {name: None for name in self.project.functions if name in changed} if changed else {}

    def _decide_function(self, function: FunctionFacts) -> bool:
        """Decide a function's loops by what is known of the functions it calls; whether that told anything new."""
        before = self._told(function.id)
        training, forward, held = self._work_of(function)
        steps = self.step_loops[function.id]
        around = {loop.number: loop.outer for loop in function.loops}
        for loop in reversed(function.loops):
            number = loop.number
            holds = number in held or any(number in _chain(around, inner) for inner in steps)
            few = loop.short and any(earlier in steps for earlier in loop.after)
            if number in training or (not holds and not few and (loop.loads or number in forward)):
                steps.add(number)
            else:
                steps.discard(number)
        if OUTSIDE in training:
            self.own_training.add(function.id)
        if OUTSIDE in forward:
            self.own_forward.add(function.id)
        if steps or OUTSIDE in held:
            self.holds_step_loop.add(function.id)
        return self._told(function.id) != before

    def _told(self, name: str) -> tuple[bool, bool, bool, int]:
        return (
            name in self.own_training,
            name in self.own_forward,
            name in self.holds_step_loop,
            len(self.step_loops[name]),
        )

    def _work_of(self, function: FunctionFacts) -> tuple[set[int], set[int], set[int]]:
        """The loops of a function whose own body trains, does a forward, and calls something that holds a step loop."""
        training: set[int] = set()
        forward: set[int] = set()
        held: set[int] = set()
        for event in self.project.events(function):
            number, guarded = event.place[0]
            if event.kind in ("backward", "step"):
                training.add(number)
            elif not guarded and (event.kind == "forward" or (event.kind == "layer" and number == OUTSIDE)):
                forward.add(number)
        for call, callees in self.project.callees[function.id]:
            number, guarded = call.place[0]
            for callee in callees:
                if callee in self.own_training:
                    training.add(number)
                if callee.endswith(".forward"):
                    continue  # a module's call is one forward, whatever loops are in it
                within = function.in_module and self.project.functions[callee].in_module
                if callee in self.own_forward and not guarded and not within:
                    forward.add(number)
                if callee in self.holds_step_loop:
                    held.update(around for around, _ in call.place)
        return training, forward, held

    def is_hot_place(self, function_id: str, place: Place, hot: set[str]) -> bool:
        """Whether code at `place` of a function runs on every iteration of some step loop."""
        steps = self.step_loops.get(function_id, set())
        for number, guarded in place[:-1]:
            if number in steps:
                return not guarded
        return function_id in hot and not place[-1][1]

    def _spread_heat(self) -> set[str]:
        hot = {f.id for f in self.project.functions.values() if f.in_module and f.id.endswith(".forward")}
        queue = list(self.project.callees)
        for caller in queue:  # grows: a function that turns out hot heats what it calls
            for call, callees in self.project.callees[caller]:
                fresh = [callee for callee in callees if callee not in hot]
                if fresh and self.is_hot_place(caller, call.place, hot):
                    hot.update(fresh)
                    queue.extend(fresh)
        return hot

    def _spread_grad_off(self) -> set[str]:
        """Functions that always run without gradients: by decorator, or at every call site in view."""
        off = {f.id for f in self.project.functions.values() if f.grad_off}
        queue = list(self.project.sites)
        for name in queue:  # grows: what a function without gradients calls may be the next
            if name in off or name in self.project.escapes:
                continue
            if all(call.grad_off or caller in off for caller, call in self.project.sites.get(name, ())):
                off.add(name)
                queue.extend(c for _, callees in self.project.callees[name] for c in callees if c not in off)
        return off

    def _find_exposed(self) -> set[str]:
        """Functions that do a forward with gradients on, directly or in a function that they call."""
        found = {
            f.id
            for f in self.project.functions.values()
            if not f.grad_off and any(e.kind in ("forward", "layer") and not e.grad_off for e in self.project.events(f))
        }
        queue = [name for name in found if not name.endswith(".forward")]
        for name in queue:
            for caller, call in self.project.sites.get(name, ()):
                if caller not in found and not call.grad_off and not self.project.functions[caller].grad_off:
                    found.add(caller)
                    if not caller.endswith(".forward"):
                        queue.append(caller)
        return found

    def _find_reaching(self) -> set[str]:
        """Functions whose result, still carrying a graph, reaches code that differentiates: a caller, or a caller's
        caller.
        """
        carrying = {name for name, value in self.project.returns.items() if may_carry_graph(value)}
        queue = [
            f.id
            for f in self.project.functions.values()
            if has_event(f, "backward", "differentiate") or (f.in_module and f.id.endswith(".forward"))
        ]
        found: set[str] = set()
        for name in queue:
            for call, callees in self.project.callees[name]:
                if call.grad_off or call.discarded:
                    continue
                fresh = [c for c in callees if c in carrying and c not in found]
                found.update(fresh)
                queue.extend(fresh)
        return found


def has_event(function: FunctionFacts, *kinds: str) -> bool:
    return any(event.kind in kinds for event in function.events)


def _chain(around: Mapping[int, int], number: int) -> Iterator[int]:
    """The loops around loop `number`, innermost first; `around` maps a loop to the one around it."""
    outer = around.get(number, OUTSIDE)
    while outer != OUTSIDE:
        yield outer
        outer = around.get(outer, OUTSIDE)
