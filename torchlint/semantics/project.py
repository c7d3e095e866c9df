"""Facts that cross files: a small storable summary for each file, and the link step that joins them.

A summary says of each function what it calls, from where (loops, guards, grad mode) and with what, what it does
(forward, backward, optimizer step), and what it returns. `link` follows calls through the project until nothing
changes: which loops are step loops, which functions are hot, which always run without gradients, what helpers return
and what their parameters are. A file then gets back only what concerns it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from torchlint import torch_api
from torchlint.semantics.callables import agreed
from torchlint.semantics.facts import (
    MODULE_BODY,
    CallFacts,
    ClassFacts,
    EventFacts,
    FileSummary,
    FunctionFacts,
    Linked,
)
from torchlint.semantics.layers import LinkedLayers, link_layers
from torchlint.semantics.project_regions import ProjectRegions, has_event
from torchlint.semantics.values import UNKNOWN, Value, join_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torchlint.semantics.layout import ProjectLayout

_TORCH_KINDS = frozenset(
    {"tensor", "module", "optimizer", "loader", "dataset", "instance", "distribution", "accelerator"}
)
_SETTLED = (".forward", ".__init__")
# Class families whose instances have a kind of their own; others are plain instances.
INSTANCE_KINDS = frozenset({"module", "dataset", "loader", "optimizer", "scheduler"})


class Project:
    """All summaries joined: names resolved, calls followed. `flow_facts` gives each file its part."""

    def __init__(self, layout: ProjectLayout, summaries: Mapping[str, FileSummary]) -> None:
        self.layout = layout
        self.summaries = {path: summaries[path] for path in sorted(summaries)}
        self.modules = {s.module: s for s in self.summaries.values()}
        self.functions = {f.id: f for s in self.summaries.values() for f in s.functions}
        self.classes = {c.id: c for s in self.summaries.values() for c in s.classes}
        self._resolved: dict[str, Value] = {}
        self._resolving: set[str] = set()
        self._lineages: dict[str, list[str]] = {}
        self.parameters: dict[str, dict[str, Value]] = {}
        self.returns: dict[str, Value] = {f.id: f.returns for f in self.functions.values()}
        self.escapes = {self._target(e) for s in self.summaries.values() for e in s.escapes}
        self._nearby: dict[str, tuple[set[str], set[str], dict[str, Value], dict[str, ClassFacts]]] = {}
        self._returned: dict[str, list[str]] = {}
        self._settled_classes: dict[str, tuple[ClassFacts, list[str]]] = {}
        self._by_method: dict[str, list[str]] = defaultdict(list)
        self._subclasses: dict[str, list[str]] = defaultdict(list)
        for cls in self.classes.values():
            for base in cls.bases:
                self._subclasses[self._target(base)].append(cls.id)
            for method in cls.methods:
                self._by_method[method].append(f"{cls.id}.{method}")
        self._late_forwards: dict[str, list[EventFacts]] = defaultdict(list)
        self.callees = {f.id: [(call, self._callee_ids(f, call)) for call in f.calls] for f in self.functions.values()}
        self._passed: dict[str, dict[str, list[Value]]] = defaultdict(dict)
        self.parameters = self._join_parameters(self.callees)
        self._follow_parameters()
        self.returns = {name: self.settle(value) for name, value in self.returns.items()}
        self.sites = self._find_sites()
        self.trains = self.calling({f.id for f in self.functions.values() if has_event(f, "backward", "step")})

    # Names

    def resolve(self, reference: str) -> Value:
        """What a reference stands for, through re-exports, calls and attributes.

        "pkg.mod:name" is a name of a module, "…()" the result of calling it, "….attr" a member, "pkg.mod:f@x" what
        all call sites pass for the parameter x of f, and "?.name" the one method of the project so named.
        """
        found = self._resolved.get(reference)
        if found is not None:
            return found
        if reference in self._resolving or len(self._resolving) > 40:
            return UNKNOWN
        self._resolving.add(reference)
        try:
            value = self._first_found(reference.split("|"))
        finally:
            self._resolving.discard(reference)
        self._resolved[reference] = value
        return value

    def _first_found(self, candidates: list[str]) -> Value:
        value = UNKNOWN
        for candidate in candidates:
            value = self._resolve_one(candidate)
            if value.kind != "unknown":
                break
        return value

    def _resolve_one(self, reference: str) -> Value:
        if reference in self.functions:
            return Value("function", name=reference)
        if reference in self.classes:
            return Value("class", name=reference)
        if reference.startswith("?.") and not reference.endswith("()"):
            return self._only_method(reference[2:])
        function, at, parameter = reference.partition("@")
        if at:
            return self.parameters.get(function, {}).get(parameter, UNKNOWN)
        if reference.endswith("()"):
            return self._called(self.resolve(reference[:-2]))
        owner, dot, name = reference.rpartition(".")
        if dot and ":" in owner:
            return self._member(self.resolve(owner), name)
        module, _, name = reference.partition(":")
        return self._name_of(module, name)

    def _only_method(self, name: str) -> Value:
        """The method of that name, where the project has one alone."""
        found = self._by_method.get(name, ())
        if len(found) != 1 or name in self.classes[found[0].rpartition(".")[0]].properties:
            return UNKNOWN
        return Value("function", name=found[0])

    def _name_of(self, module: str, name: str) -> Value:
        """A module-level name, a star import's included, or a submodule."""
        summary = self.modules.get(module)
        value = UNKNOWN
        if summary is not None:
            value = self.settle(summary.names.get(name, UNKNOWN))
            for star in summary.stars if value.kind == "unknown" else ():
                value = self.resolve(f"{star}:{name}")
                if value.kind != "unknown":
                    break
        if value.kind == "unknown":
            submodule = f"{module}.{name}" if module else name
            if self.layout.exists(submodule):
                return Value("package", name=submodule)
        return value

    def _called(self, value: Value) -> Value:
        """What calling a resolved value gives."""
        if value.kind == "class":
            family = self.family(value.name)
            return Value(
                family if family in INSTANCE_KINDS else "instance", name=value.name, host=family in INSTANCE_KINDS
            )
        if value.kind == "symbol":
            return self._external_result(value.name)
        if value.kind == "function":
            return self.settle(self.returns.get(value.name, UNKNOWN))
        if value.kind == "either":
            return agreed([self._called(part) for part in value.items])
        if value.kind == "module":
            forward = self.find_method(value.name, "forward") if ":" in value.name else None
            result = self.settle(self.returns[forward]) if forward is not None else UNKNOWN
            return result if result.kind not in ("unknown", "none") else Value("tensor", opaque=True)
        return UNKNOWN

    def _member(self, value: Value, name: str) -> Value:
        if value.kind == "package":
            return self.resolve(f"{value.name}:{name}")
        if value.kind == "symbol":
            return Value("symbol", name=torch_api.canonical(f"{value.name}.{name}"))
        if ":" not in value.name:
            return UNKNOWN
        method = self.find_method(value.name, name)
        if method is not None:
            owner = method.rpartition(".")[0]
            if name in self.classes[owner].properties:
                return self.settle(self.returns.get(method, UNKNOWN))
            return Value("function", name=method)
        return self.attribute(f"{value.name}.{name}")

    def _target(self, name: str) -> str:
        """The project id behind a name, the name itself where it is external."""
        if ":" not in name or name in self.functions or name in self.classes:
            return name
        value = self.resolve(name)
        return value.name if value.name else name

    def bases_of(self, class_id: str) -> list[str]:
        """The class and all its bases, nearest first: project ids and external names."""
        # on the way to resolving a name not every base may be known yet: that is not kept
        return lineage(class_id, self._direct_bases, {} if self._resolving else self._lineages)

    def _direct_bases(self, class_id: str) -> list[str]:
        facts = self.classes.get(class_id)
        return [self._target(base) for base in facts.bases] if facts is not None else []

    def find_method(self, class_id: str, name: str, *, skip_own: bool = False) -> str | None:
        """The id of the method that `name` means on an instance of the class."""
        for base in self.bases_of(class_id):
            if skip_own and base == class_id:
                continue
            facts = self.classes.get(base)
            if facts is not None and name in facts.methods:
                return f"{base}.{name}"
        return None

    def family(self, class_id: str) -> str:
        """ "module", "dataset", … for a class by its bases; empty for a plain one."""
        return family_of(self.bases_of(class_id))

    # Calls

    def _callee_ids(self, caller: FunctionFacts, call: CallFacts) -> list[str]:
        callee = call.callee
        if callee.startswith("?."):
            found = self._by_method.get(callee[2:], [])
            return list(found) if len(found) == 1 else []
        value = self.resolve(callee)
        if value.kind == "class":
            init = self.find_method(value.name, "__init__")
            return [init] if init else []
        if value.kind == "module":
            if not torch_api.is_light(value.name):
                kind = "layer" if caller.in_module else "forward"
                self._late_forwards[caller.id].append(EventFacts(kind, call.place, call.grad_off))
            forward = self.find_method(value.name, "forward") if ":" in value.name else None
            return [forward] if forward else []
        if value.kind != "function":
            return []
        return [value.name, *self._overrides(value.name)]

    def _follow_parameters(self) -> None:
        """Resolve the calls of parameters, now that it is known what call sites pass for them."""
        late: dict[str, list[tuple[CallFacts, list[str]]]] = {}
        self._resolved = {
            name: value for name, value in self._resolved.items() if "@" not in name and value.kind != "unknown"
        }
        for function in self.functions.values():
            calls = self.callees[function.id]
            for position, (call, _) in enumerate(calls):
                if "@" in call.callee:
                    calls[position] = (call, self._callee_ids(function, call))
                    late.setdefault(function.id, []).append(calls[position])
        if late:
            self.parameters |= self._join_parameters(late)

    def events(self, function: FunctionFacts) -> Iterator[EventFacts]:
        """What a function does: the events seen in its file, and the calls that turned out to be of modules."""
        yield from function.events
        yield from self._late_forwards.get(function.id, ())

    def _overrides(self, function_id: str) -> list[str]:
        """The same method in subclasses of its class: a call through a base may run any of them."""
        owner, _, name = function_id.rpartition(".")
        if owner not in self.classes:
            return []
        found = []
        queue = list(self._subclasses.get(owner, ()))
        seen = set(queue)
        while queue:
            current = queue.pop(0)
            if name in self.classes[current].methods:
                found.append(f"{current}.{name}")
            for sub in self._subclasses.get(current, ()):
                if sub not in seen:
                    seen.add(sub)
                    queue.append(sub)
        return found

    def settle(self, value: Value) -> Value:
        """`value` with references replaced by what they turned out to be."""
        if value.kind == "ref":
            return self.resolve(value.name)
        if value.items:
            items = tuple(self.settle(item) for item in value.items)
            if items != value.items:
                return msgspec.structs.replace(value, items=items)
        return value

    @staticmethod
    def _external_result(name: str) -> Value:
        """What a re-exported external name gives when called."""
        made = torch_api.class_kind(name)
        if made:
            return Value(made, name=name, host=made in ("module", "loader"))
        return Value("tensor") if torch_api.returns_tensor(name) else UNKNOWN

    def _join_parameters(
        self, calls_by_caller: Mapping[str, list[tuple[CallFacts, list[str]]]]
    ) -> dict[str, dict[str, Value]]:
        """What all call sites in view, these and earlier ones, pass for each parameter of what these call; unknown
        where a function is also handed over as a value.
        """
        called: dict[str, None] = {}
        for calls in calls_by_caller.values():
            for call, callees in calls:
                for callee in callees:
                    function = self.functions.get(callee)
                    if function is None or callee in self.escapes:
                        continue
                    called[callee] = None
                    passed = self._passed[callee]
                    for name, value in _bound_arguments(function, call):
                        if value.kind == "ref" or value.items:
                            value = self.settle(value)
                        found = passed.get(name)
                        if found is None:
                            passed[name] = [value]
                        elif value is not found[-1]:
                            found.append(value)
        return {
            callee: joined
            for callee in called
            if (
                joined := {
                    name: value
                    for name, values in self._passed[callee].items()
                    if (value := _agreed(values)).kind not in ("unknown", "none")
                }
            )
        }

    def _find_sites(self) -> dict[str, list[tuple[str, CallFacts]]]:
        """For each function the calls that may run it, with the function that they stand in."""
        sites: dict[str, list[tuple[str, CallFacts]]] = defaultdict(list)
        for caller, calls in self.callees.items():
            for call, callees in calls:
                for callee in callees:
                    sites[callee].append((caller, call))
        return dict(sites)

    def calling(self, start: set[str]) -> set[str]:
        """`start` and every function that calls, directly or not, one of it."""
        found = set(start)
        queue = list(start)
        for name in queue:
            fresh = {caller for caller, _ in self.sites.get(name, ()) if caller not in found}
            found |= fresh
            queue.extend(fresh)
        return found

    # What a file gets

    def flow_facts(self, path: str) -> Linked:
        """What concerns one file's flow: names, and what other files' functions take, return and do."""
        summary = self.summaries[path]
        own, names, refs, classes = self.near(summary)
        others = names - own
        return Linked(
            returns={n: v for n in sorted(others) if _tells(v := self.returns[n])},
            parameters={
                n: told
                for n in sorted(own)
                if (told := {p: v for p, v in self.parameters.get(n, {}).items() if _tells(v)})
            },
            refs={k: v for k, v in refs.items() if v.kind != "unknown" and (k[0] != "?" or _tells(v))},
            classes=classes,
            trains=frozenset(names & self.trains),
            mentions_grad_off=frozenset(n for n in others if self.functions[n].mentions_grad_off),
            guards=frozenset(n for n in others if self.functions[n].guards),
            moves=frozenset(n for n in others if self.functions[n].moves),
        )

    def near(self, summary: FileSummary) -> tuple[set[str], set[str], dict[str, Value], dict[str, ClassFacts]]:
        """A file's own functions, those and all that it may call, what its references mean, and the classes in view."""
        known = self._nearby.get(summary.module)
        if known is not None:
            return known
        own = {f.id for f in summary.functions}
        refs = {reference: self.resolve(reference) for reference in summary.references}
        classes = self._classes_near(summary, refs)
        names = {c for name in own for _, callees in self.callees[name] for c in callees}
        names |= {v.name for v in refs.values() if v.kind == "function"}
        names |= {part.name for v in refs.values() if v.kind == "either" for part in v.items}
        for facts in classes.values():
            names |= {f"{facts.id}.{method}" for method in facts.methods}
        names = {name for name in names if name in self.functions} | own
        self._nearby[summary.module] = (own, names, refs, classes)
        return own, names, refs, classes

    def may_say_more(self, path: str) -> frozenset[str]:
        """The functions of a file that may say more, with what the project knows now, than they did."""
        return frozenset(f.id for f in self.summaries[path].functions if self._may_say_more(f))

    def _may_say_more(self, function: FunctionFacts) -> bool:
        """Whether what the project knows now may change what a function does, gives back or passes on.

        A forward gives a tensor whatever it is given. Once an initializer's parameters are known, so are the
        attributes that the class's methods read.
        """
        if function.id.endswith(".forward"):
            return False
        owner = function.id.rpartition(".")[0] if function.has_receiver else ""
        if self._learns(function.id) or (owner and self._learns(f"{owner}.__init__")):
            return True
        if any(_tells(self.attribute(asked)) for asked in function.asks) or self._moves_guards(function):
            return True
        if function.id.endswith(".__init__"):
            return False
        calls = [(c, ids) for c, ids in self.callees[function.id] if not any(i.endswith(_SETTLED) for i in ids)]
        returns_open = not function.id.endswith(MODULE_BODY) and not _is_known(function.returns)
        is_open = returns_open or any(not _is_known(v) for c, ids in calls if ids for v in c.positional)
        return is_open and any(_matters(self.returns[i]) for c, ids in calls for i in ids if i in self.returns)

    def attribute(self, path: str) -> Value:
        """The value of "pkg.net:Net.decoder", an attribute that some class gives its instances."""
        owner, _, name = path.rpartition(".")
        for base in self.bases_of(owner):
            facts = self.classes.get(base)
            if facts is not None and name in facts.attributes:
                return self.settle(facts.attributes[name])
        return UNKNOWN

    def _moves_guards(self, function: FunctionFacts) -> bool:
        """Whether it is known only now what is guarded: by a test that a called function makes, or not, because a
        called function trains.
        """
        return any(
            self.functions[name].guards or (name in self.trains and any(guarded for _, guarded in call.place))
            for call, callees in self.callees[function.id]
            for name in callees
        )

    def _learns(self, name: str) -> bool:
        """Whether call sites tell what a parameter is of which the function's own file says nothing."""
        function, given = self.functions.get(name), self.parameters.get(name)
        if function is None or not given:
            return False
        return any(_matters(given.get(parameter, UNKNOWN)) for parameter in function.open)

    def _classes_near(self, summary: FileSummary, refs: Mapping[str, Value]) -> dict[str, ClassFacts]:
        """The project classes that the file's references, values and bases lead to."""
        wanted = [
            v.name for v in refs.values() if v.kind in ("class", "module", "instance", "dataset", "loader") and v.name
        ]
        wanted += [b for c in summary.classes for b in map(self._target, c.bases)]
        wanted += [c.id for c in summary.classes]
        for function in summary.functions:
            for _, callees in self.callees[function.id]:
                for callee in callees:
                    wanted += self._classes_returned(callee)
            for value in self.parameters.get(function.id, {}).values():
                wanted += _classes_in(value)
        found: dict[str, ClassFacts] = {}
        while wanted:
            name = wanted.pop()
            if name not in found and name in self.classes:
                found[name], leads_to = self._settled_class(name)
                wanted += leads_to
        own = {c.id for c in summary.classes}
        return {name: facts for name, facts in sorted(found.items()) if name not in own}

    def _classes_returned(self, function: str) -> list[str]:
        known = self._returned.get(function)
        if known is None:
            known = self._returned[function] = _classes_in(self.returns.get(function, UNKNOWN))
        return known

    def _settled_class(self, name: str) -> tuple[ClassFacts, list[str]]:
        """A class with what its bases and attributes turned out to be, and the classes that these lead to."""
        known = self._settled_classes.get(name)
        if known is None:
            facts = self.classes[name]
            settled = {attribute: self.settle(value) for attribute, value in facts.attributes.items()}
            bases = tuple(self._target(b) for b in facts.bases)
            leads_to = [*bases, *(found for value in settled.values() for found in _classes_in(value))]
            known = ClassFacts(facts.id, bases, facts.methods, facts.properties, settled), leads_to
            self._settled_classes[name] = known
        return known


def link(layout: ProjectLayout, summaries: Mapping[str, FileSummary], *, last: bool = True) -> dict[str, Linked]:
    """Join all summaries of a project; the result maps each path to what concerns that file: all of it after the
    `last` round, and before what flow reads.
    """
    project = Project(layout, summaries)
    if not last:
        return {
            path: msgspec.structs.replace(project.flow_facts(path), again=project.may_say_more(path))
            for path in project.summaries
        }
    regions = ProjectRegions(project)
    layers = link_layers({path: s.layers for path, s in project.summaries.items()}, project)
    return {
        path: msgspec.structs.replace(regions.facts(path), layers=layers.get(path, LinkedLayers()))
        for path in project.summaries
    }


def lineage(class_id: str, direct_bases: Callable[[str], list[str]], known: dict[str, list[str]]) -> list[str]:
    """A class and all its bases, nearest first. `known` keeps what has been found: a long chain of classes is climbed
    once.
    """
    chain: dict[str, None] = {}
    current, bases = class_id, direct_bases(class_id)
    while current not in known and current not in chain and len(bases) == 1:
        chain[current] = None
        current, bases = bases[0], direct_bases(bases[0])
    if current not in known and current not in chain:
        found, queue = {current: None}, bases
        for base in queue:
            if base not in found:
                found[base] = None
                queue.extend(direct_bases(base))
        known[current] = list(found)
    above = known.get(current, [])
    for derived in reversed(chain):
        above = known[derived] = [derived, *above]
    return known[class_id]


def family_of(bases: list[str]) -> str:
    """The kind of a class's instances from its bases' names, nearest first."""
    for base in bases:
        if ":" in base:
            continue
        if base in torch_api.MODULE_BASES or (
            torch_api.class_kind(base) == "module" and not base.startswith("torchvision.models.")
        ):
            return "module"
        if base.startswith("torchvision.models.") and base.rpartition(".")[2][:1].isupper():
            return "module"
        kind = torch_api.class_kind(base)
        if kind in ("dataset", "loader", "optimizer", "scheduler"):
            return kind
        if base == "torch.autograd.Function":
            return "autograd"
    return ""


def _agreed(values: list[Value]) -> Value:
    """What all call sites agree on: unknown as soon as one is unknown."""
    for value in values:
        if value.kind == "unknown" or value.kind == "ref":
            return UNKNOWN
    return join_all(values) if len(values) > 1 else values[0]


def _bound_arguments(function: FunctionFacts, call: CallFacts) -> list[tuple[str, Value]]:
    """(parameter, value) for every parameter that a call fills."""
    names = function.parameters
    if call.bound and function.has_receiver and names:
        names = names[1:]
    if call.starred:
        return [(name, UNKNOWN) for name in names]
    found = list(zip(names, call.positional, strict=False))
    by_position = names[: len(call.positional)]
    for key, value in call.keywords:
        if key == "**":
            return [(name, UNKNOWN) for name in names]
        if key in names and key not in by_position:
            found.append((key, value))
    return found


def _is_known(value: Value) -> bool:
    if value.kind in ("unknown", "ref"):
        return False
    return all(_is_known(item) for item in value.items)


def _matters(value: Value) -> bool:
    """Whether a value is or holds one of torch's objects, or an instance that may."""
    return value.kind in _TORCH_KINDS or any(_matters(item) for item in value.items)


def _tells(value: Value) -> bool:
    """Whether a value is worth passing on: numbers and strings change nothing of what a rule would say."""
    if value.kind in ("list", "tuple", "dict", "iterator", "set"):
        return not value.items or any(_tells(item) for item in value.items)
    return value.kind not in ("unknown", "ref", "number", "string", "none")


def _classes_in(value: Value) -> list[str]:
    """The project classes that a value, or something in it, is one of."""
    found = [value.name] if ":" in value.name else []
    for item in value.items:
        found += _classes_in(item)
    return found
