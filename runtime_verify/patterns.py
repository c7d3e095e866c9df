"""Habits that the events of a run show: what `torch.profiler._pattern_matcher` looked for until torch 2.14 removed it.

Each pattern is a function from a `Recording` to the places where it was seen. They were written from what the retired
ones mean, and ask for more where those were satisfied with names and neighbours: the tensor that is copied must be the
one that the factory made, the norm must receive what the convolution gave. Three of them speak of what only a GPU does;
without one they say nothing, and `unobservable` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from .recording import Call, Kind, Node, Recording, Site

NEEDS_GPU = "needs a GPU"

LOOP_LENGTH = 10
"""So many rows of one tensor, one after the other on one line, are a loop. (The retired matcher's number.)"""

ALIGNMENT = 8
"""Elements of two bytes in the 16 bytes to which tensor cores want dimensions aligned.

Source: NVIDIA, "Matrix Multiplication Background User's Guide", section "Requirements To Use Tensor Cores".
"""

TF32_CAPABILITY = (8, 0)
"""The first compute capability with TF32. Source: PyTorch documentation, "CUDA semantics · TensorFloat-32 (TF32)"."""

_FACTORIES = frozenset(
    """arange empty empty_like eye full full_like linspace logspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm tensor zeros zeros_like""".split()
)
_MATRIX_PRODUCTS = frozenset(("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"))
_CONVOLUTIONS = frozenset(f"aten::conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3))
_NORMS = frozenset(("batch_norm", "instance_norm"))


class Match(msgspec.Struct, frozen=True):
    """A place where a pattern was seen `count` times. `made` is where the module, optimizer or loader was built."""

    pattern: str
    place: Site
    made: Site | None
    seen: str
    count: int = 1


class Pattern(msgspec.Struct, frozen=True):
    """One habit. `retired` is the class that it is the twin of, `code` the rule that finds it without running."""

    name: str
    retired: str
    code: str
    needs_gpu: bool
    find: Callable[[Recording], Iterator[Match]]


def find(recording: Recording) -> tuple[Match, ...]:
    """What every pattern saw that this recording can show, one match for each place."""
    seen = [
        match
        for pattern in PATTERNS
        if recording.accelerator or not pattern.needs_gpu
        for match in pattern.find(recording)
    ]
    return tuple(_together(seen))


def unobservable(recording: Recording) -> tuple[Pattern, ...]:
    """The patterns that this recording cannot show, since there was no GPU."""
    return tuple(pattern for pattern in PATTERNS if pattern.needs_gpu and not recording.accelerator)


def _together(matches: Iterable[Match]) -> Iterator[Match]:
    """Matches of one pattern at one place as one."""
    places: dict[tuple[str, Site, Site | None], Match] = {}
    for match in matches:
        key = (match.pattern, match.place, match.made)
        known = places.get(key)
        places[key] = match if known is None else msgspec.structs.replace(known, count=known.count + match.count)
    return iter(places.values())


def create_then_copy(recording: Recording) -> Iterator[Match]:
    """A tensor that a factory filled on the host, copied to the device before anything else was done with it."""
    factories: dict[int, Call] = {}
    for call, node in recording.calls(Kind.FUNCTION):
        if not node.children:
            continue  # asked for its shape, or the like
        made_by = [factories.pop(source) for source in call.sources if source in factories]
        if call.name in _FACTORIES and call.result is not None and call.result.device == "cpu":
            factories[call.number] = call
        if made_by and call.site is not None and _leaves_host(call) and _has(node, "aten::copy_"):
            yield Match(
                "create-then-copy",
                call.site,
                made_by[0].site,
                f"`{made_by[0].name}` filled a tensor on the host, `{call.name}` then copied it to the device",
            )


def _leaves_host(call: Call) -> bool:
    """Whether the call took a tensor of the host and gave one of the device."""
    if call.argument is None or call.result is None:
        return False
    return call.argument.device == "cpu" and call.result.device != "cpu"


def loop_indexing(recording: Recording) -> Iterator[Match]:
    """Rows of one tensor, read or written one by one."""
    for siblings in _sibling_lists(recording):
        rows: dict[tuple[Site, int], set[int]] = {}
        for node in siblings:
            if node.call is not None and node.call.kind is not Kind.FUNCTION:
                # a loop with a module or a step in its body is a loop over steps, which nothing could replace
                yield from _loops(rows)
                rows = {}
            elif node.call is not None and node.call.index is not None and _indexed_by_user(node):
                assert node.call.site is not None
                rows.setdefault((node.call.site, node.call.subject), set()).add(node.call.index)
        yield from _loops(rows)


def _sibling_lists(recording: Recording) -> Iterator[Sequence[Node]]:
    """What happened one after the other at each level, but not in datasets, which are indexed by design."""
    waiting: list[Sequence[Node]] = [recording.roots]
    while waiting:
        siblings = waiting.pop()
        yield siblings
        waiting.extend(node.children for node in siblings if node.call is None or node.call.kind is not Kind.BATCH)


def _indexed_by_user(node: Node) -> bool:
    return node.call is not None and node.call.site is not None and not node.call.through and _has(node, "aten::select")


def _loops(rows: dict[tuple[Site, int], set[int]]) -> Iterator[Match]:
    for (site, _), indices in rows.items():
        if len(indices) >= LOOP_LENGTH:
            yield Match("loop-indexing", site, None, f"{len(indices)} rows of one tensor were indexed one by one")


def tf32_not_allowed(recording: Recording) -> Iterator[Match]:
    """A product of float32 matrices in full precision, on a GPU that has TF32."""
    if recording.capability < TF32_CAPABILITY:
        return
    for call, site, product in _products(recording, ("float32",)):
        if call.settings.get("fp32_precision") == "ieee":
            seen = f"`{call.name}` multiplied float32 matrices ({_shapes(product)}) in full precision"
            yield Match("tf32-not-allowed", site, None, seen)


def unaligned_dimension(recording: Recording) -> Iterator[Match]:
    """A product of matrices of two-byte elements with a dimension that is no multiple of eight."""
    made = _births_of_modules(recording)
    for call, site, product in _products(recording, ("float16", "bfloat16")):
        odd = sorted({size for shape in _matrices(product) for size in shape[-2:] if size % ALIGNMENT})
        if odd and call.result is not None:
            seen = (
                f"`{call.name}` multiplied {call.result.dtype} matrices ({_shapes(product)}): "
                f"{', '.join(map(str, odd))} is no multiple of {ALIGNMENT}"
            )
            yield Match("unaligned-dimension", site, made.get(call.number), seen)


def _products(recording: Recording, dtypes: Sequence[str]) -> Iterator[tuple[Call, Site, Node]]:
    """Calls of torch functions with a result of these dtypes on a device, and the products of matrices below them."""
    for call, node in recording.calls(Kind.FUNCTION):
        if call.site is None or call.result is None or call.result.device == "cpu" or call.result.dtype not in dtypes:
            continue
        for event in node.walk():
            if event.name in _MATRIX_PRODUCTS:
                yield call, call.site, event


def _matrices(product: Node) -> list[tuple[int, ...]]:
    return [shape for shape in product.shapes if len(shape) > 1]


def _shapes(product: Node) -> str:
    return " @ ".join(str(list(shape)) for shape in _matrices(product))


def single_tensor_optimizer(recording: Recording) -> Iterator[Match]:
    """A step that went through the parameters one by one, because it was told to."""
    for call, node in recording.calls(Kind.STEP):
        parameters = int(call.settings.get("parameters", "0"))
        if call.site is None or parameters < 2 or not _told_to_go_one_by_one(recording, call):
            continue
        if any(event.name.startswith(("aten::_foreach", "aten::_fused")) for event in node.walk()):
            continue
        operators = sum(1 for event in node.children if event.call is None)
        seen = f"`{call.name}.step` ran {operators} operators for {parameters} parameters, one parameter at a time"
        yield Match("single-tensor-optimizer", call.site, call.made, seen)


def _told_to_go_one_by_one(recording: Recording, call: Call) -> bool:
    """On the CPU torch chooses this itself where `foreach` is not given; with parameters on a GPU it never does."""
    if call.settings.get("fused") == "True" or "foreach" not in call.settings:
        return False
    return call.settings["foreach"] == "False" or bool(recording.accelerator)


def synchronous_loader(recording: Recording) -> Iterator[Match]:
    """A DataLoader that made its batches in the process which trains."""
    waits: dict[tuple[Site, Site | None], list[float]] = {}
    for call, node in recording.calls(Kind.BATCH):
        if call.site is not None and call.settings["num_workers"] == "0" and call.settings["delivered"] == "yes":
            waits.setdefault((call.site, call.made), []).append(node.seconds)
    for (site, made), seconds in waits.items():
        seen = f"the training process itself made each batch, and waited {sum(seconds) * 1e3:.3g} ms for all of them"
        yield Match("synchronous-loader", site, made, seen, len(seconds))


def grads_set_to_zero(recording: Recording) -> Iterator[Match]:
    """`zero_grad` that filled the gradients with zeros instead of letting go of them."""
    for call, node in recording.calls(Kind.FUNCTION):
        if call.site is None or "zero_grad" not in call.through:
            continue
        if _has(node, "aten::zero_") or _has(node, "aten::_foreach_zero_"):
            yield Match("grads-set-to-zero", call.site, None, "`zero_grad` filled gradients with zeros")


def bias_before_norm(recording: Recording) -> Iterator[Match]:
    """A convolution or linear layer that added a bias, and gave its result to a norm over the batch."""
    made = _births_of_modules(recording)
    biased: dict[int, tuple[Site, str]] = {}
    for call, node in recording.calls(Kind.FUNCTION):
        layer = _biased_layer(node)
        if layer and call.site is not None:
            biased[call.number] = (call.site, layer)
        if call.name not in _NORMS or not call.sources or call.sources[0] not in biased:
            continue
        site, name = biased[call.sources[0]]
        seen = f"`{name}` added a bias, and `{call.name}` took the mean away again"
        yield Match("bias-before-norm", site, made.get(call.sources[0]), seen)


def _biased_layer(node: Node) -> str:
    """ "conv2d" where the events show one that was given a bias, the third argument of all of them; else ""."""
    for event in node.walk():
        if (event.name in _CONVOLUTIONS or event.name == "aten::linear") and len(event.shapes) > 2:
            return event.name.removeprefix("aten::") if event.shapes[2] else ""
    return ""


def _births_of_modules(recording: Recording) -> dict[int, Site | None]:
    """Where the innermost module around each call was built, by the number of the call."""
    made: dict[int, Site | None] = {}
    waiting: list[tuple[Node, Site | None]] = [(root, None) for root in recording.roots]
    while waiting:
        node, around = waiting.pop()
        if node.call is not None and node.call.kind is Kind.MODULE:
            around = node.call.made
        elif node.call is not None:
            made[node.call.number] = around
        waiting.extend((child, around) for child in node.children)
    return made


def _has(node: Node, name: str) -> bool:
    return any(event.name == name for event in node.walk())


PATTERNS = (
    Pattern("create-then-copy", "ExtraCUDACopyPattern", "TL201", True, create_then_copy),
    Pattern("loop-indexing", "ForLoopIndexingPattern", "TL509", False, loop_indexing),
    Pattern("tf32-not-allowed", "FP32MatMulPattern", "TL701", True, tf32_not_allowed),
    Pattern("single-tensor-optimizer", "OptimizerSingleTensorPattern", "TL602", False, single_tensor_optimizer),
    Pattern("synchronous-loader", "SynchronizedDataLoaderPattern", "TL301", False, synchronous_loader),
    Pattern("grads-set-to-zero", "GradNotSetToNonePattern", "TL405", False, grads_set_to_zero),
    Pattern("bias-before-norm", "Conv2dBiasFollowedByBatchNorm2dPattern", "TL501", False, bias_before_norm),
    Pattern("unaligned-dimension", "MatMulDimInFP16Pattern", "TL502", True, unaligned_dimension),
)
