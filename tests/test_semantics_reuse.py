"""What of a file's evaluation holds when the project says something else: only what read it is evaluated anew."""

from __future__ import annotations

import ast
import gc
import pickle
from pathlib import Path

import msgspec
import pytest
from semantics_support import module as module_of
from semantics_support import project, value

from torchlint.encoded import Encoded, decode, encode
from torchlint.runner import _without_collections
from torchlint.semantics import Linked, Module, ProjectLayout
from torchlint.semantics.facts import ClassFacts
from torchlint.semantics.names import Scope
from torchlint.semantics.reuse import stale_keys
from torchlint.semantics.values import NUMBER, TENSOR, Value
from torchlint.source import SourceFile

MAIN = """\
import torch
from helpers import Net, make

shared = make()

def plain(n):
    return n + 1

def direct():
    return make()

def through():
    return direct()

def again():
    return direct()

class Holder:
    def __init__(self):
        self.made = make()

    def read(self):
        return self.made

    def read_again(self):
        return self.made

    def count(self):
        self.seen = 0
        return self.seen

class Masked(torch.nn.Module):
    def build(self):
        self.register_buffer("mask", make())

    def read(self):
        return self.mask

def takes(x):
    return x

def outer():
    made = make()

    def inner():
        return made

    return inner()

def attribute():
    model = Net()
    return model.decoder

def called_lambda():
    get = lambda: make()
    return get()

def by_name(thing):
    return thing.draw()

def reads_global():
    return shared
"""
NET = ClassFacts("helpers:Net", ("torch.nn.Module",), ("__init__",), (), {})
REFS = {"helpers:make": Value("function", name="helpers:make"), "helpers:Net": Value("class", name="helpers:Net")}
BEFORE = Linked(refs=REFS, classes={"helpers:Net": NET})


def evaluated(text: str, linked: Linked) -> Module:
    """A module of which everything has been evaluated with what the project says."""
    source = SourceFile.from_text(Path("main.py"), text)
    found = Module(source, source.parse(), ProjectLayout(Path("nowhere"), ["main.py", "helpers.py"]), "main.py")
    found.attach(linked)
    found.flow.ensure_all()
    return found


def stale_functions(changes: dict[str, object]) -> set[str] | None:
    module = evaluated(MAIN, BEFORE)
    stale = stale_keys(module, BEFORE, msgspec.structs.replace(BEFORE, **changes))
    if stale is None:
        return None
    scopes = [key for key in stale if isinstance(key, Scope)]
    return {scope.function.qualname if scope.function is not None else "<module>" for scope in scopes}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"hot": frozenset({"main:plain"})}, set(), id="what flow does not read"),
        pytest.param(
            {"returns": {"helpers:make": TENSOR}},
            {"<module>", "direct", "through", "again", "Holder.__init__", "Holder.read", "Holder.read_again"}
            | {"Masked.build", "Masked.read"}
            | {"outer", "outer.<locals>.inner", "called_lambda", "reads_global"},
            id="a result, through callers, attributes, closures, lambdas and globals",
        ),
        pytest.param({"parameters": {"main:takes": {"x": TENSOR}}}, {"takes"}, id="a parameter"),
        pytest.param(
            {"classes": {"helpers:Net": msgspec.structs.replace(NET, attributes={"decoder": TENSOR})}},
            {"attribute"},
            id="an attribute that is read",
        ),
        pytest.param(
            {"classes": {"helpers:Net": msgspec.structs.replace(NET, attributes={"encoder": TENSOR})}},
            set(),
            id="an attribute that nobody reads",
        ),
        pytest.param({"refs": REFS | {"?.draw()": TENSOR}}, {"by_name"}, id="a method of unique name"),
        pytest.param({"refs": REFS | {"helpers:make": NUMBER}}, None, id="what an import means"),
        pytest.param(
            {"classes": {"helpers:Net": msgspec.structs.replace(NET, bases=())}}, None, id="the bases of a class"
        ),
        pytest.param({"classes": {}}, None, id="a class that is out of view"),
    ],
)
def test_only_what_read_a_fact_is_stale_when_it_changes(changes: dict[str, object], expected: set[str] | None) -> None:
    assert stale_functions(changes) == expected


def test_stale_values_are_found_anew_and_the_others_are_kept() -> None:
    module = evaluated(MAIN, BEFORE)
    before = {function.qualname: module.flow.reads[function.scope] for function in module.functions}
    module.attach(msgspec.structs.replace(BEFORE, parameters={"main:takes": {"x": TENSOR}}))
    after = {function.qualname: module.flow.reads[function.scope] for function in module.functions}
    assert [name for name in before if after[name] is not before[name]] == ["takes"]
    assert value(module, "x").kind == "tensor"
    module.attach(BEFORE)
    assert value(module, "x").kind == "unknown"


def test_scopes_that_wait_for_each_other_are_evaluated_anew_together() -> None:
    """`Net.__init__` calls `build`, which reads what it assigns later: alone, `build` would find more than at first."""
    text = """\
from helpers import make

class Net:
    def __init__(self):
        self.build()
        self.late = 1

    def build(self):
        self.made = make()
        return self.late
"""
    first, then = (Linked(refs=REFS, returns={"helpers:make": found}) for found in (NUMBER, TENSOR))
    module = evaluated(text, first)
    module.attach(then)
    fresh = evaluated(text, then)
    found = {ast.unparse(node): value for node, value in module.flow.values.items()}
    assert found == {ast.unparse(node): value for node, value in fresh.flow.values.items()}


def test_lambda_that_is_called_before_its_scope_is_evaluated() -> None:
    text = """\
import torch

def first(make):
    made = make()
    return made

def second():
    return first(lambda: torch.ones(2))
"""
    parameters = {"main:first": {"make": Value("lambda", name="main#8:17")}}
    module = evaluated(text, Linked(parameters=parameters))
    assert value(module, "made").kind == "tensor"


def test_events_and_calls_of_what_is_stale_are_forgotten() -> None:
    text = "import torch\nfrom helpers import make\n\ndef f(x):\n    return make()(x)\n"
    module = evaluated(text, Linked(refs=REFS, returns={"helpers:make": Value("module", name="torch.nn.Conv2d")}))
    assert list(module.flow.events.values()) == ["forward"]
    module.attach(Linked(refs=REFS, returns={"helpers:make": NUMBER}))
    module.flow.ensure_all()
    assert not module.flow.events
    assert [call.callee for call in module.flow.calls.values()] == ["helpers:make"]


def test_result_of_what_is_stale_is_not_joined_with_the_one_before() -> None:
    text = "from helpers import make\n\ndef f():\n    return make()\n\nfound = f()\n"
    module = evaluated(text, Linked(refs=REFS, returns={"helpers:make": NUMBER}))
    assert value(module, "found").kind == "number"
    module.attach(Linked(refs=REFS, returns={"helpers:make": TENSOR}))
    assert value(module, "found").kind == "tensor"
    assert value(module, "found").sure  # it is not one that may still be a number


def test_an_attribute_that_two_methods_write_is_agreed_on_again() -> None:
    text = """\
from helpers import make

class Holder:
    def first(self):
        self.made = make()

    def second(self):
        self.made = 1

    def read(self):
        return self.made
"""
    module = evaluated(text, Linked(refs=REFS, returns={"helpers:make": TENSOR}))
    assert value(module, "self.made").kind == "tensor"  # that may still be the number it started as
    module.attach(Linked(refs=REFS, returns={"helpers:make": Value("string")}))
    assert value(module, "self.made").kind == "unknown"
    module.attach(Linked(refs=REFS, returns={"helpers:make": NUMBER}))
    assert value(module, "self.made").kind == "number"


@pytest.mark.parametrize("order", [("reset", "read"), ("read", "reset")])
def test_global_that_a_function_rebinds_is_unknown_in_every_function(order: tuple[str, str]) -> None:
    bodies = {
        "reset": "def reset():\n    global state\n    state = None\n\n",
        "read": "def read():\n    seen = state\n    return seen\n\n",
    }
    text = "import torch\n\nstate = torch.ones(2)\nkept = torch.ones(2)\n\n" + "".join(bodies[name] for name in order)
    text += "def only_reads():\n    global kept\n    return kept\n"
    module = module_of(text)
    assert value(module, "seen").kind == "unknown"
    assert value(module, "kept").kind == "tensor"


def test_name_that_a_nested_function_rebinds_is_unknown_in_its_siblings() -> None:
    module = module_of("""\
        import torch

        def outer():
            state = torch.ones(2)
            kept = torch.ones(2)

            def change():
                nonlocal state
                state = 3

            def read():
                first = state
                second = kept
                return first, second

            change()
            return read()
    """)
    assert value(module, "first").kind == "unknown"
    assert value(module, "second").kind == "tensor"


def test_reused_evaluation_says_what_a_fresh_one_says() -> None:
    files = {
        "nets.py": """\
            import torch
            from torch import nn

            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.layer = nn.Linear(width, 2)
                    self.scale = make_scale()

                def forward(self, x):
                    return self.layer(x) * self.scale

            def make_scale():
                return torch.ones(2)
        """,
        "helpers.py": """\
            from nets import Net

            def build(width):
                return Net(width)

            def measure(net, batch):
                return net(batch).sum()
        """,
        "main.py": """\
            import torch
            from helpers import build, measure

            def main(loader):
                net = build(3)
                for batch in torch.utils.data.DataLoader(loader):
                    loss = measure(net, batch)
                    loss.backward()
                    print(loss.item(), net.scale)
        """,
    }
    for path, module in project(files).items():
        module.flow.ensure_all()
        fresh = Module(module.source, module.tree, module.layout, path)
        fresh.attach(module.linked)
        fresh.flow.ensure_all()
        assert module.flow.values == fresh.flow.values
        assert module.flow.events == fresh.flow.events
        assert module.flow.calls == fresh.flow.calls


def test_what_is_asked_first_does_not_matter() -> None:
    """The initializer waits for the module body, which waits for `forward`, which waits for the initializer."""
    files = {
        "base.py": """\
            import torch
            from torch import nn

            class Base(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.buf = torch.zeros(3, device="cuda")
        """,
        "main.py": """\
            import torch
            from base import Base

            class Net(Base):
                def __init__(self):
                    super().__init__()
                    self.mean = self.buf.mean()
                    self.head = torch.zeros(WIDTH, device="cuda")

                def forward(self, x):
                    return self.head.cpu()

            def main():
                net = Net()
                net(3)

            WIDTH = 4
            main()
        """,
    }
    module = project(files)["main.py"]
    fresh = Module(module.source, module.tree, module.layout, "main.py")
    fresh.attach(module.linked)
    assert value(module, "self.head.cpu()").kind == value(fresh, "self.head.cpu()").kind == "tensor"


def test_function_that_the_call_of_a_lambda_reaches_first_keeps_its_values() -> None:
    module = module_of("""\
        import torch

        def run():
            work = lambda worker: worker.go()
            return work(Worker())

        class Worker:
            def go(self):
                made = torch.zeros(3)
                return made
    """)
    module.flow.ensure_all()
    assert value(module, "made").kind == "tensor"


def alive() -> int:
    """How many nodes and scopes there are in this process."""
    return sum(type(found) in (ast.FunctionDef, ast.Call, Scope) for found in gc.get_objects())


def test_released_module_leaves_nothing_for_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = alive()
        module = evaluated(MAIN, BEFORE)
        module.layers.biases_before_norms()
        assert alive() > before
        module.release()
        del module
        assert alive() == before
    finally:
        gc.enable()


def test_end_of_a_run_starts_no_collection() -> None:
    gc.collect()
    with _without_collections():
        assert not gc.isenabled()
        made = [[] for _ in range(100_000)]
        before = [generation["collections"] for generation in gc.get_stats()]
    made += [[] for _ in range(100)]
    assert gc.isenabled()
    assert [generation["collections"] for generation in gc.get_stats()] == before
    assert gc.get_freeze_count() == 0  # a process that lives on can still collect it


def test_record_is_not_decoded_in_the_process_that_encoded_it() -> None:
    record = Linked(moves=frozenset({"b", "a"}))
    encoded = encode(record)
    assert decode(encoded, Linked) is record
    elsewhere = pickle.loads(pickle.dumps(encoded))
    assert type(elsewhere) is bytes
    assert decode(elsewhere, Linked) == record
    assert isinstance(encoded, Encoded)
    assert decode(bytes(encoded), Linked) is not record


def test_file_of_which_the_project_says_nothing_is_evaluated_in_order_too() -> None:
    source = SourceFile.from_text(Path("main.py"), MAIN)
    module = Module(source, source.parse(), ProjectLayout(Path("nowhere"), ["main.py"]), "main.py")
    module.attach(Linked())
    assert {function.scope for function in module.functions} <= module.flow.reads.keys()


def test_asking_for_names_alone_leaves_nothing_for_the_next_round() -> None:
    source = SourceFile.from_text(Path("main.py"), MAIN)
    module = Module(source, source.parse(), ProjectLayout(Path("nowhere"), ["main.py", "helpers.py"]), "main.py")
    assert "helpers:make" in module.declarations().references
    assert module.references == set()
    assert not module.flow.values
