"""What layer graphs need to know across functions and files: who builds layers, and who relies on a bias.

A `Maker` is a function or class that builds one layer (`conv3x3`, a subclass of `nn.Conv2d`). Code that reads or sets
`.bias` of the modules it walks over would break on a layer that has none.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from torchlint.semantics.layers_graph import BATCH_NORMS, BIAS_POSITION, GROUP_NORM, INSTANCE_NORMS
from torchlint.semantics.layers_guards import asks_for_bias
from torchlint.semantics.names import LOOPS, Class, Function, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torchlint.semantics.module import Module
    from torchlint.semantics.project import Project

ANY_KIND = "*"
LAYER_WORDS = ("Conv", "Linear", "conv", "linear")
_WALKS = frozenset({"modules", "named_modules", "children", "named_children"})
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Maker(msgspec.Struct, frozen=True, array_like=True):
    """A function or class that builds one layer of the torch class `kind`.

    bias: whether that layer has one when the call says nothing; None where that is not known. parameter and position:
    the argument of the maker that decides it, an empty name for none. cancels_mean: it builds such a norm.
    """

    kind: str
    bias: bool | None = None
    parameter: str = ""
    position: int = -1
    cancels_mean: bool = False


class LayerSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What other files may need to know of one file's layers.

    makers by function or class id; forwarders: functions that hand their `**kwargs` to a layer; escapes: classes used
    as values; bias_code: the kinds of modules whose bias code that runs here relies on; pending: the same by function,
    for functions that nothing in the file runs.
    """

    makers: dict[str, Maker] = {}
    forwarders: tuple[str, ...] = ()
    escapes: tuple[str, ...] = ()
    bias_code: tuple[str, ...] = ()
    pending: dict[str, tuple[str, ...]] = {}


class LinkedLayers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the project says about one file's layers.

    makers that the file may call; closed: its forwarders that no call site in the project gives a bias or unknown
    keywords; bias_code: kinds whose bias some code applied to its modules relies on; shared: its functions that other
    files use.
    """

    makers: dict[str, Maker] = {}
    closed: frozenset[str] = frozenset()
    bias_code: tuple[str, ...] = ()
    shared: frozenset[str] = frozenset()


def may_hold_layers(text: str) -> bool:
    """Whether a file's text can build any layer that has a bias, itself or by a helper such as `conv3x3`."""
    return any(word in text for word in LAYER_WORDS)


def summarize_layers(module: Module) -> LayerSummary:
    """The storable facts of one file."""
    text = module.source.text
    codes = bias_codes(module) if ".bias" in text else []
    bias_code = {kind for code in codes if code.applied for kind in code.kinds}
    pending: dict[str, set[str]] = defaultdict(set)
    for code in codes:
        if not code.applied:
            pending[module.id_of(code.function)].update(code.kinds)
    makers: dict[str, Maker] = {}
    forwarders: list[str] = []
    if may_hold_layers(text) or "Norm" in text:
        makers = {entity_id: maker for entity_id, maker in _makers(module) if maker.kind}
        forwarders = sorted({module.id_of(f) for f in _forwarders(module)})
    return LayerSummary(
        makers=dict(sorted(makers.items())),
        forwarders=tuple(forwarders),
        escapes=tuple(sorted(_classes_as_values(module))) if "Conv" in text or "Linear" in text else (),
        bias_code=tuple(sorted(bias_code)),
        pending={name: tuple(sorted(kinds)) for name, kinds in sorted(pending.items())},
    )


# Makers


def maker_of_function(module: Module, function: Function) -> Maker | None:
    """The layer that a function builds, where all it does is to return that layer's call."""
    body = [s for s in function.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if (
        function.is_generator
        or len(body) != 1
        or not isinstance(body[0], ast.Return)
        or not isinstance(body[0].value, ast.Call)
    ):
        return None
    call = body[0].value
    kind = module.qualified(call.func) or ""
    if is_norm(kind):
        return Maker(kind, cancels_mean=cancels_mean(kind, call))
    if kind not in BIAS_POSITION:
        return None
    return _maker(kind, call, function, bound=function.owner is not None and not function.is_static)


def maker_of_class(module: Module, cls: Class) -> Maker | None:
    """The layer that a subclass of a convolution, Linear or norm is."""
    if not any(word in last_name(base) for base in cls.node.bases for word in ("Conv", "Linear", "Norm")):
        return None
    bases = module.bases_of(module.id_of(cls))
    kind = next((base for base in bases if base in BIAS_POSITION or is_norm(base)), "")
    if not kind or any(module.find_method(base, "forward") for base in bases[1:] if ":" in base):
        return None
    init, forward = cls.methods.get("__init__"), cls.methods.get("forward")
    if any(module.find_method(base, "__init__") for base in bases[1:] if ":" in base):
        return None
    if is_norm(kind):
        plain = forward is None or _normalizes_input(forward)
        return Maker(kind, cancels_mean=plain and (kind in BATCH_NORMS or kind in INSTANCE_NORMS))
    if forward is not None and not _returns_convolution(forward):
        return None
    if init is None:
        return Maker(kind, True, "bias", BIAS_POSITION[kind])
    calls = [c for c in module.calls_named("__init__") if module.function_of(c) is init]
    if len(calls) != 1 or not (isinstance(calls[0].func, ast.Attribute) and is_super(calls[0].func.value)):
        return None
    maker = _maker(kind, calls[0], init, bound=True)
    return maker if maker.parameter else Maker(kind)


def _maker(kind: str, call: ast.Call, function: Function, *, bound: bool) -> Maker:
    """How `function` decides the bias of the layer that `call`, its one call, builds."""
    given = argument(call, "bias", BIAS_POSITION[kind])
    arguments = function.node.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if bound else 0 :]
    if isinstance(given, ast.Name) and given.id in [a.arg for a in function.parameters]:
        position = positional.index(given.id) if given.id in positional else -1
        return Maker(kind, constant(default_of(function, given.id)), given.id, position)
    if given is not None:
        return Maker(kind, constant(given))
    if has_star(call):
        own = arguments.kwarg.arg if arguments.kwarg else ""
        doubles = [k.value for k in call.keywords if k.arg is None]
        if not has_star_args(call) and len(doubles) == 1 and isinstance(doubles[0], ast.Name) and doubles[0].id == own:
            return Maker(kind, True, "bias")
        return Maker(kind)
    return Maker(kind, True)


def is_norm(kind: str) -> bool:
    """Whether a torch class is one of the norms that can take away a channel's mean."""
    return kind in BATCH_NORMS or kind in INSTANCE_NORMS or kind == GROUP_NORM


def cancels_mean(kind: str, call: ast.Call) -> bool:
    """Whether the norm that `call` builds takes away a constant of each channel: GroupNorm with one a group."""
    if kind != GROUP_NORM:
        return is_norm(kind)
    groups, channels = argument(call, "num_groups", 0), argument(call, "num_channels", 1)
    if groups is None or channels is None:
        return False
    pure = not any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await)) for n in ast.walk(groups))
    return pure and ast.dump(groups) == ast.dump(channels)


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """The expression given for a parameter, None where the call does not spell it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if 0 <= position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def has_star_args(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args)


def has_star(call: ast.Call) -> bool:
    """Whether a call unpacks `*args` or `**kwargs`."""
    return has_star_args(call) or any(k.arg is None for k in call.keywords)


def constant(node: ast.expr | None) -> bool | None:
    """A literal True or False, None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter, None where it has none."""
    a = function.node.args
    positional = [*a.posonlyargs, *a.args]
    defaults = dict(zip([p.arg for p in reversed(positional)], reversed(a.defaults), strict=False))
    found = {**defaults, **{p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}}
    return found.get(name)


def _makers(module: Module) -> Iterator[tuple[str, Maker]]:
    for function in module.functions:
        maker = maker_of_function(module, function)
        if maker is not None:
            yield module.id_of(function), maker
    for cls in module.classes:
        maker = maker_of_class(module, cls)
        if maker is not None:
            yield module.id_of(cls), maker


def is_super(node: ast.expr) -> bool:
    """Whether an expression is a call of `super`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _first_input(function: Function) -> str:
    arguments = function.node.args.args
    return arguments[1].arg if len(arguments) > 1 else ""


def _called(function: Function) -> Iterator[ast.Call]:
    return (n for n in ast.walk(function.node) if isinstance(n, ast.Call))


def _normalizes_input(forward: Function) -> bool:
    """Whether a norm's own forward gives its untouched input to the norm: weight standardization and the like do."""
    name = _first_input(forward)
    if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in _before_norm(forward)):
        return False
    return any(
        last_name(c.func) in ("batch_norm", "instance_norm", "forward")
        and bool(c.args)
        and isinstance(c.args[0], ast.Name)
        and c.args[0].id == name
        for c in _called(forward)
    )


def _before_norm(forward: Function) -> Iterator[ast.AST]:
    """The nodes of the statements before the one that normalizes."""
    for statement in forward.node.body:
        nodes = list(ast.walk(statement))
        if any(
            isinstance(n, ast.Call) and last_name(n.func) in ("batch_norm", "instance_norm", "forward") for n in nodes
        ):
            return
        yield from nodes


def _returns_convolution(forward: Function) -> bool:
    """Whether a layer's own forward ends in the plain operation with its own bias, with nothing after it."""
    returns = [n for n in ast.walk(forward.node) if isinstance(n, ast.Return)]
    return bool(returns) and all(_is_operation(r.value) for r in returns)


def _is_operation(node: ast.expr | None) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name in ("forward", "_conv_forward"):
        return True
    mentions_bias = any(isinstance(n, ast.Attribute) and n.attr == "bias" for n in ast.walk(node))
    return (name.startswith("conv") or name == "linear") and mentions_bias


# Keyword arguments that pass through


def _forwarders(module: Module) -> Iterator[Function]:
    """Functions that hand their own `**kwargs` to a layer with a bias."""
    for name in module.index.calls:
        if "Conv" not in name and "Linear" not in name:
            continue
        for call in module.calls_named(name):
            function = module.function_of(call)
            kwarg = function.node.args.kwarg if function is not None else None
            if function is None or kwarg is None:
                continue
            if any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == kwarg.arg for k in call.keywords):
                yield function


def _classes_as_values(module: Module) -> set[str]:
    """Classes handed over as values (`block=Bottleneck`): somebody out of view may call them."""
    found: set[str] = set()
    for node, value in module.flow.values.items():
        if value.kind != "class" or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        parent = module.parents.get(node)
        if isinstance(parent, ast.Call) and (parent.func is node or last_name(parent.func) in ("isinstance", "super")):
            continue
        if not isinstance(parent, (ast.Attribute, ast.ClassDef, ast.arg, ast.AnnAssign)) and isinstance(
            node.ctx, ast.Load
        ):
            found.add(value.name)
    return found


# Code that relies on a bias


class BiasCode(NamedTuple):
    """Code that reads or sets `.bias` without asking for one: on modules of which kinds, and whether it runs."""

    function: Function
    kinds: tuple[str, ...]
    applied: bool


def bias_codes(module: Module) -> list[BiasCode]:
    """The code of a file that relies on the bias of modules that it walks over or is applied to."""
    found = []
    for node in module.index.attributes.get("bias", ()):
        if not isinstance(node.value, ast.Name):
            continue
        function = module.function_of(node)
        if function is None or node.value.id == function.self_name or asks_for_bias(module, node):
            continue
        name = node.value.id
        parameter = name in [p.arg for p in function.parameters]
        if parameter or _walks_modules(module, node, name):
            found.append(BiasCode(function, _kinds_asked(module, node, name), _runs(module, function, parameter)))
    return found


def _walks_modules(module: Module, node: ast.AST, name: str) -> bool:
    """Whether `name` is the variable of a loop over `.modules()` or `.children()` around `node`."""
    parent = module.parents.get(node)
    while parent is not None and not isinstance(parent, (*_DEFS, ast.Module)):
        if isinstance(parent, LOOPS) and not isinstance(parent, ast.While):
            targets = {n.id for n in ast.walk(parent.target) if isinstance(n, ast.Name)}
            walks = any(isinstance(n, ast.Attribute) and n.attr in _WALKS for n in ast.walk(parent.iter))
            if name in targets and walks:
                return True
        parent = module.parents.get(parent)
    return False


def _kinds_asked(module: Module, node: ast.AST, name: str) -> tuple[str, ...]:
    """To which classes tests around `node` narrow the module `name`: "Conv2d", "~Conv" for a part of the name."""
    child, parent = node, module.parents.get(node)
    while parent is not None and not isinstance(parent, (*_DEFS, ast.Module)):
        if isinstance(parent, ast.If) and isinstance(child, ast.stmt) and child in parent.body:
            kinds = sorted(set(_kinds_in(parent.test, name)))
            if kinds:
                return tuple(kinds)
        child, parent = parent, module.parents.get(parent)
    return (ANY_KIND,)


def _kinds_in(test: ast.expr, name: str) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and last_name(node.func) == "isinstance" and len(node.args) == 2:
            if isinstance(node.args[0], ast.Name) and node.args[0].id == name:
                yield from _class_names(node.args[1])
        elif isinstance(node, ast.Call) and last_name(node.func) in ("find", "startswith", "count"):
            yield from (f"~{a.value}" for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
        elif isinstance(node, ast.Compare):
            yield from _kinds_compared(node)


def _kinds_compared(node: ast.Compare) -> Iterator[str]:
    """`type(m) == nn.Conv2d`, `type(m) in (…)`, `name == "Conv2d"`, `"Conv" in name`."""
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        yield f"~{node.left.value}"
    elif isinstance(node.left, ast.Call) and last_name(node.left.func) == "type":
        yield from _class_names(node.comparators[0])
    elif isinstance(node.comparators[0], ast.Constant) and isinstance(node.comparators[0].value, str):
        yield node.comparators[0].value


def _class_names(node: ast.expr) -> Iterator[str]:
    """The classes of an `isinstance` test; any kind where they are not spelled out."""
    for item in node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]:
        name = last_name(item)
        yield name if name[:1].isupper() else ANY_KIND


def _runs(module: Module, function: Function, as_parameter: bool) -> bool:
    """Whether the file runs `function`: an initializer that nothing calls or hands to `.apply` breaks nothing."""
    if any(last_name(argument) == function.name for call in module.calls_named("apply") for argument in call.args):
        return True
    if function.name in ("__init__", "reset_parameters") and not as_parameter:
        return True
    if function.parent is not None and function.name not in module.index.calls:
        return False
    return function.name in module.index.calls


def relies_on_bias(kinds: tuple[str, ...], kind: str) -> bool:
    """Whether code for modules of these kinds touches a layer of the torch class `kind`."""
    name = kind.rpartition(".")[2]
    bases = {name, "Module", "_ConvNd", f"_{name}", ANY_KIND}
    return any(k[1:].lower() in name.lower() if k.startswith("~") else k in bases for k in kinds)


# The link step


def link_layers(summaries: Mapping[str, LayerSummary], project: Project) -> dict[str, LinkedLayers]:
    """What each file needs to know of the others' layers. `summaries` are by path, as in the project."""
    makers = {name: maker for summary in summaries.values() for name, maker in summary.makers.items()}
    users = _users(project)
    bias_code = _spread_bias_code(summaries, project, users)
    closed = _closed_forwarders(summaries, project)
    by_module = {summary.module: path for path, summary in project.summaries.items()}
    users_of: dict[str, set[str]] = defaultdict(set)
    for path, names in users.items():
        for name in names & project.functions.keys():
            target = by_module.get(name.partition(":")[0])
            if target is not None and target != path:
                users_of[target].add(name)
    linked = {}
    for path, summary in summaries.items():
        seen = users.get(path, set())
        linked[path] = LinkedLayers(
            makers={name: makers[name] for name in sorted(seen & makers.keys() - summary.makers.keys())},
            closed=frozenset(closed & set(summary.forwarders)),
            bias_code=tuple(sorted(bias_code.get(path, set()) - set(summary.bias_code))),
            shared=frozenset(users_of.get(path, ())),
        )
    return linked


def _users(project: Project) -> dict[str, set[str]]:
    """For each file the project's functions and classes that it refers to."""
    return {
        path: {value.name for reference in summary.references if ":" in (value := project.resolve(reference)).name}
        for path, summary in project.summaries.items()
    }


def _spread_bias_code(
    summaries: Mapping[str, LayerSummary], project: Project, users: Mapping[str, set[str]]
) -> dict[str, set[str]]:
    """Bias code that a file applies also concerns the modules that it builds from other files' classes."""
    spread: dict[str, set[str]] = defaultdict(set)
    sources = {path: set(summary.bias_code) for path, summary in summaries.items() if summary.bias_code}
    for path, summary in summaries.items():
        for name, kinds in summary.pending.items():
            for user, names in users.items():
                if user != path and name in names:
                    sources.setdefault(user, set()).update(kinds)
    if not sources:
        return spread
    by_module = {summary.module: path for path, summary in project.summaries.items()}
    for path, found in sources.items():
        queue, seen = [path], {path}
        while queue:
            current = queue.pop()
            spread[current] |= found
            for name in users.get(current, ()):
                target = by_module.get(name.partition(":")[0])
                if target is not None and target not in seen:
                    seen.add(target)
                    queue.append(target)
    return spread


def _closed_forwarders(summaries: Mapping[str, LayerSummary], project: Project) -> set[str]:
    """Forwarders with call sites in view, none of which gives `bias`, unpacks keywords or is out of sight."""
    wanted = {name for summary in summaries.values() for name in summary.forwarders}
    if not wanted:
        return wanted
    escaped = {project.resolve(name).name or name for summary in summaries.values() for name in summary.escapes}
    escaped |= set(project.escapes)
    called: set[str] = set()
    opened: set[str] = set()
    for calls in project.callees.values():
        for call, callees in calls:
            for name in wanted.intersection(callees):
                called.add(name)
                if any(key in ("bias", "**") for key, _ in call.keywords):
                    opened.add(name)
    return {
        name for name in (wanted & called) - opened if name not in escaped and name.rpartition(".")[0] not in escaped
    }
