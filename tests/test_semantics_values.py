"""Values: what flow shows an expression to be."""

from __future__ import annotations

import pytest
from semantics_support import kind, module, value

from torchlint.encoded import encode

PRELUDE = """\
import itertools
from dataclasses import dataclass
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader
from tqdm import tqdm
"""


def kind_of(body: str, code: str, number: int = -1) -> str:
    return kind(module(PRELUDE + body), code, number)


def is_host(body: str, code: str, number: int = -1) -> bool:
    """Whether an expression is a Tensor that flow shows to be in CPU memory."""
    found = value(module(PRELUDE + body), code, number)
    assert found.kind == "tensor"
    return found.host


# What makes a tensor


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(3)",
        "torch.tensor([1, 2])",
        "torch.randn(2, 3, device='cuda')",
        "torch.from_numpy(array)",
        "torch.FloatTensor([1.0])",
        "torch.zeros_like(anything)",
        "torch.cat([a, b])",
        "torch.matmul(a, b)",
        "F.relu(anything)",
        "F.cross_entropy(output, target)",
        "nn.Linear(3, 4)(anything)",
        "nn.CrossEntropyLoss()(output, target)",
        "nn.Parameter(anything)",
        "torch.zeros(3).float().view(-1)",
        "torch.zeros(3)[0]",
        "torch.zeros(3)[:, None]",
        "torch.zeros(3) * 2",
        "1 - torch.zeros(3)",
        "-torch.zeros(3)",
        "torch.zeros(3) > 0",
        "torch.zeros(3).max()",
        "torch.zeros(3).T",
        "torch.zeros(3).data",
    ],
)
def test_torchs_factories_operations_modules_and_methods_give_tensors(made: str) -> None:
    assert kind_of(f"y = {made}\nz = y\n", "y") == "tensor"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("torch.zeros(3).item()", "number"),
        ("float(torch.zeros(3))", "number"),
        ("len(torch.zeros(3))", "number"),
        ("torch.zeros(3).numel()", "number"),
        ("torch.zeros(3).size(0)", "number"),
        ("torch.zeros(3).shape[0]", "number"),
        ("torch.zeros(3).cpu().numpy()", "ndarray"),
        ("np.zeros(3)", "ndarray"),
        ("np.array([1]) * 2", "ndarray"),
        ("nn.Linear(3, 4)", "module"),
        ("nn.Sequential(nn.Linear(3, 4)).cuda()", "module"),
        ("optim.SGD(parameters, lr=0.1)", "optimizer"),
        ("torch.optim.Adam(parameters)", "optimizer"),
        ("DataLoader(dataset)", "loader"),
        ("3 + 4", "number"),
        ("'text'", "string"),
        ("[torch.zeros(3)]", "list"),
        ("(1, 2)", "tuple"),
        ("unknown(torch.zeros(3))", "unknown"),
        ("unknown.method()", "unknown"),
        ("torch.zeros(3).tolist()", "list"),
    ],
)
def test_other_values_have_their_own_kind(made: str, expected: str) -> None:
    assert kind_of(f"y = {made}\nz = y\n", "y") == expected


# Flow


def test_kind_counts_from_the_assignment_on() -> None:
    body = "y = np.zeros(3)\na = y\ny = torch.zeros(3)\nb = y\ny = y.item()\nc = y\n"
    found = module(PRELUDE + body)
    assert [kind(found, "y", number) for number in (1, 3, -1)] == ["ndarray", "tensor", "number"]


def test_branches_that_agree_keep_the_kind() -> None:
    body = "if flag:\n    y = torch.zeros(3)\nelse:\n    y = torch.ones(3)\nz = y\n"
    assert kind_of(body, "y") == "tensor"


def test_branches_that_disagree_leave_the_value_unknown() -> None:
    body = "if flag:\n    y = torch.zeros(3)\nelse:\n    y = np.zeros(3)\nz = y\n"
    assert kind_of(body, "y") == "unknown"


def test_branch_that_returns_does_not_count_after_it() -> None:
    body = """
def f(flag):
    y = torch.zeros(3)
    if flag:
        y = y.numpy()
        return y
    z = y
"""
    assert kind_of(body, "y") == "tensor"


def test_conditional_expression_of_two_tensors_is_a_tensor() -> None:
    assert kind_of("y = torch.zeros(3) if flag else torch.ones(3)\nz = y\n", "y") == "tensor"


def test_none_before_the_first_assignment_does_not_hide_the_tensor() -> None:
    body = "y = None\nfor i in range(3):\n    y = torch.zeros(3)\nz = y\n"
    assert kind_of(body, "y") == "tensor"


def test_change_at_the_end_of_a_loop_body_reaches_its_start() -> None:
    body = "y = torch.zeros(3)\nfor i in range(3):\n    z = y\n    y = unknown(y)\n"
    assert kind_of(body, "y", 1) == "unknown"


def test_isinstance_test_makes_a_tensor_of_what_it_guards() -> None:
    body = """
def f(x):
    if isinstance(x, torch.Tensor):
        y = x
    else:
        z = x
"""
    found = module(PRELUDE + body)
    assert kind(found, "x", -2) == "tensor"
    assert kind(found, "x", -1) == "unknown"


def test_torch_is_tensor_is_such_a_test_too() -> None:
    body = """
def f(x):
    if torch.is_tensor(x):
        y = x
"""
    assert kind_of(body, "x") == "tensor"


def test_early_return_on_the_opposite_test_guards_the_rest() -> None:
    body = """
def f(x):
    if not isinstance(x, torch.Tensor):
        return x
    y = x
"""
    assert kind_of(body, "x") == "tensor"


def test_in_place_operator_keeps_a_tensor_a_tensor() -> None:
    assert kind_of("y = torch.zeros(3)\ny += 1\nz = y\n", "y") == "tensor"


def test_walrus_binds() -> None:
    assert kind_of("if (y := torch.zeros(3)).any():\n    z = y\n", "y") == "tensor"


# Unpacking


def test_tuple_unpacking_gives_each_name_its_own_kind() -> None:
    found = module(PRELUDE + "a, (b, c) = torch.zeros(3), (np.zeros(3), 5)\nd = a, b, c\n")
    assert [kind(found, name) for name in "abc"] == ["tensor", "ndarray", "number"]


def test_starred_target_takes_the_rest() -> None:
    found = module(PRELUDE + "a, *b = torch.zeros(3), 1, 2\nc = a, b\n")
    assert kind(found, "a") == "tensor"
    assert kind(found, "b") == "list"


def test_result_with_several_tensors_unpacks_into_tensors() -> None:
    found = module(PRELUDE + "values, indices = torch.zeros(3, 4).max(dim=1)\na = values, indices\n")
    assert [kind(found, name) for name in ("values", "indices")] == ["tensor", "tensor"]


def test_list_of_tensors_gives_tensors() -> None:
    body = "ys = []\nys.append(torch.zeros(3))\nfor y in ys:\n    z = y\nw = ys[0]\n"
    assert kind_of(body, "y") == "tensor"
    assert kind_of(body, "ys[0]") == "tensor"


def test_dict_gives_what_was_put_under_the_key() -> None:
    found = module(PRELUDE + "d = {'x': torch.zeros(3), 'n': 3}\na = d['x'], d['n']\n")
    assert kind(found, "d['x']") == "tensor"
    assert kind(found, "d['n']") == "number"


def test_comprehension_over_tensors_is_a_list_of_tensors() -> None:
    assert kind_of("ys = [x.abs() for x in [torch.zeros(3)]]\nz = ys[0]\n", "ys[0]") == "tensor"


# Loops over a DataLoader

WRAPPERS = {
    "loader": "batch",
    "enumerate(loader)": "i, batch",
    "enumerate(loader, 1)": "i, batch",
    "tqdm(loader)": "batch",
    "tqdm(loader, desc='epoch')": "batch",
    "tqdm(enumerate(loader), total=10)": "i, batch",
    "enumerate(tqdm(loader))": "i, batch",
    "itertools.islice(loader, 10)": "batch",
    "zip(range(10), loader)": "i, batch",
    "zip(loader, loader)": "batch, other",
    "iter(loader)": "batch",
    "DataLoader(dataset)": "batch",
}


@pytest.mark.parametrize("iterated", WRAPPERS)
def test_batch_of_a_wrapped_loader_is_a_tensor(iterated: str) -> None:
    body = f"loader = DataLoader(dataset)\nfor {WRAPPERS[iterated]} in {iterated}:\n    z = batch\n"
    assert kind_of(body, "batch") == "tensor"


@pytest.mark.parametrize("iterated", ["loader", "enumerate(loader)", "tqdm(enumerate(loader))"])
def test_batch_unpacks_into_tensors(iterated: str) -> None:
    target = "i, (images, labels)" if "enumerate" in iterated else "images, labels"
    found = module(PRELUDE + f"loader = DataLoader(dataset)\nfor {target} in {iterated}:\n    z = images, labels\n")
    assert [kind(found, name) for name in ("images", "labels")] == ["tensor", "tensor"]


def test_batch_that_is_a_dict_holds_tensors() -> None:
    body = "for batch in DataLoader(dataset):\n    z = batch['image']\n"
    assert kind_of(body, "batch['image']") == "tensor"


def test_batch_drawn_by_next_is_a_tensor() -> None:
    assert kind_of("batch = next(iter(DataLoader(dataset)))\nz = batch\n", "batch") == "tensor"


def test_progress_bar_bound_to_a_name_still_wraps_the_loader() -> None:
    body = "bar = tqdm(DataLoader(dataset))\nfor batch in bar:\n    z = batch\n"
    assert kind_of(body, "batch") == "tensor"


def test_progress_bar_bound_by_with_still_wraps_the_loader() -> None:
    body = "with tqdm(DataLoader(dataset)) as bar:\n    for batch in bar:\n        z = batch\n"
    assert kind_of(body, "batch") == "tensor"


def test_item_of_an_unknown_iterable_is_unknown() -> None:
    assert kind_of("for batch in batches:\n    z = batch\n", "batch") == "unknown"


# Attributes of self

NET = """
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


class Net(Base):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.steps = 0
        self.mixed = torch.zeros(3)

    def reset(self):
        self.mixed = np.zeros(3)
        self.noise = torch.randn(3)

    def step(self, x):
        return self.conv, self.mean, self.scale, self.steps, self.mixed, self.noise, self.conv(x), self.reset
"""


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("self.conv", "module"),
        ("self.mean", "tensor"),
        ("self.scale", "tensor"),
        ("self.steps", "number"),
        ("self.mixed", "unknown"),
        ("self.noise", "tensor"),
        ("self.conv(x)", "tensor"),
    ],
)
def test_attribute_of_self_is_what_methods_and_bases_assign(attribute: str, expected: str) -> None:
    assert kind_of(NET, attribute) == expected


def test_attribute_assigned_in_the_same_method_counts_first() -> None:
    body = """
class Net(nn.Module):
    def __init__(self):
        self.state = None
    def f(self):
        self.state = torch.zeros(3)
        y = self.state
"""
    assert kind_of(body, "self.state") == "tensor"


def test_attribute_of_an_instance_is_what_its_class_assigns() -> None:
    assert kind_of(NET + "def main():\n    net = Net()\n    y = net.mean\n", "net.mean") == "tensor"
    assert kind_of(NET + "net = Net()\ny = net.scale\n", "net.scale") == "tensor"


def test_instance_of_a_module_class_is_a_module_whose_call_gives_a_tensor() -> None:
    body = NET + "net = Net()\ny = net(x)\nz = y, net\n"
    assert kind_of(body, "net") == "module"
    assert kind_of(body, "y") == "tensor"


def test_call_of_a_module_gives_what_its_forward_returns() -> None:
    body = """
class Net(nn.Module):
    def forward(self, x):
        return F.relu(x), 3
y, n = Net()(x)
z = y, n
"""
    assert kind_of(body, "y") == "tensor"
    assert kind_of(body, "n") == "number"


def test_property_gives_what_it_returns() -> None:
    body = """
class Net(nn.Module):
    @property
    def zeros(self):
        return torch.zeros(3)
y = Net().zeros
z = y
"""
    assert kind_of(body, "y") == "tensor"


# Functions


def test_call_gives_what_the_function_returns() -> None:
    body = """
def make(n):
    if n:
        return torch.zeros(n)
    return torch.ones(1)
y = make(3)
z = y
"""
    assert kind_of(body, "y") == "tensor"


def test_returned_tuple_unpacks() -> None:
    body = """
def make():
    return torch.zeros(3), np.zeros(3)
a, b = make()
c = a, b
"""
    found = module(PRELUDE + body)
    assert [kind(found, name) for name in "ab"] == ["tensor", "ndarray"]


def test_function_with_returns_that_disagree_gives_an_unknown() -> None:
    body = """
def make(n):
    return torch.zeros(n) if n else np.zeros(n)
y = make(3)
z = y
"""
    assert kind_of(body, "y") == "unknown"


def test_function_defined_further_down_counts() -> None:
    body = """
def main():
    y = make()
    z = y
def make():
    return torch.zeros(3)
"""
    assert kind_of(body, "y") == "tensor"


def test_recursive_function_ends() -> None:
    body = """
def f(n):
    return torch.zeros(3) if n == 0 else f(n - 1)
y = f(3)
z = y
"""
    assert kind_of(body, "y") in ("tensor", "unknown")


def test_generator_gives_its_yields_to_the_loop() -> None:
    body = """
def batches():
    yield torch.zeros(3)
for batch in batches():
    z = batch
"""
    assert kind_of(body, "batch") == "tensor"


def test_nested_function_sees_the_names_around_it() -> None:
    body = """
def outer():
    y = torch.zeros(3)
    def inner():
        return y
    z = inner()
    w = z
"""
    assert kind_of(body, "z") == "tensor"


def test_parameter_is_what_every_call_site_passes() -> None:
    body = """
def f(x):
    z = x
f(torch.zeros(3))
f(torch.ones(3))
"""
    assert kind_of(body, "x") == "tensor"


def test_parameter_is_unknown_where_call_sites_disagree() -> None:
    body = """
def f(x):
    z = x
f(torch.zeros(3))
f(np.zeros(3))
"""
    assert kind_of(body, "x") == "unknown"


# Annotations and dataclasses


@pytest.mark.parametrize(
    "annotation",
    ["torch.Tensor", "Tensor", "'torch.Tensor'", "Tensor | None", "None | torch.Tensor", "torch.FloatTensor"],
)
def test_annotated_parameter_is_a_tensor(annotation: str) -> None:
    assert kind_of(f"def f(x: {annotation}):\n    z = x\n", "x") == "tensor"


def test_optional_annotation_is_a_tensor() -> None:
    body = "from typing import Optional\ndef f(x: Optional[torch.Tensor] = None):\n    z = x\n"
    assert kind_of(body, "x") == "tensor"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [("np.ndarray", "ndarray"), ("nn.Module", "module"), ("DataLoader", "loader"), ("float", "number")],
)
def test_other_annotations_count_too(annotation: str, expected: str) -> None:
    assert kind_of(f"def f(x: {annotation}):\n    z = x\n", "x") == expected


def test_annotation_that_may_be_no_tensor_leaves_the_parameter_unknown() -> None:
    assert kind_of("def f(x: torch.Tensor | np.ndarray):\n    z = x\n", "x") == "unknown"


def test_container_annotation_gives_its_elements() -> None:
    body = "def f(xs: list[torch.Tensor], d: dict[str, Tensor]):\n    z = xs[0], d['a']\n"
    assert kind_of(body, "xs[0]") == "tensor"
    assert kind_of(body, "d['a']") == "tensor"


def test_annotated_variable_is_a_tensor() -> None:
    assert kind_of("x: torch.Tensor = load()\nz = x\n", "x") == "tensor"


def test_dataclass_field_is_what_its_annotation_says() -> None:
    body = """
@dataclass
class Batch:
    images: torch.Tensor
    count: int = 0
def f(batch: Batch):
    z = batch.images, batch.count
"""
    assert kind_of(body, "batch.images") == "tensor"
    assert kind_of(body, "batch.count") == "number"


def test_field_of_a_new_dataclass_instance_is_what_its_annotation_says() -> None:
    body = """
@dataclass
class Batch:
    images: torch.Tensor
batch = Batch(load())
z = batch.images
"""
    assert kind_of(body, "batch.images") == "tensor"


def test_named_tuple_field_is_what_its_annotation_says() -> None:
    body = """
from typing import NamedTuple
class Batch(NamedTuple):
    images: torch.Tensor
def f(batch: Batch):
    z = batch.images
"""
    assert kind_of(body, "batch.images") == "tensor"


# What use shows


def test_value_that_backward_is_called_on_is_a_tensor() -> None:
    assert kind_of("def f(engine):\n    loss = engine.loss()\n    loss.backward()\n    z = loss\n", "loss") == "tensor"


def test_forwards_parameter_with_a_tensor_only_method_is_a_tensor() -> None:
    body = """
class Net(nn.Module):
    def forward(self, x, n):
        y = x.detach()
        z = x, n
"""
    assert kind_of(body, "x") == "tensor"
    assert kind_of(body, "n") == "unknown"


def test_value_given_to_all_reduce_is_a_tensor() -> None:
    body = "import torch.distributed as dist\ndef f(x):\n    dist.all_reduce(x)\n    z = x\n"
    assert kind_of(body, "x") == "tensor"


# Host tensors


@pytest.mark.parametrize(
    "made",
    [
        "device_tensor.cpu()",
        "device_tensor.to('cpu')",
        "device_tensor.to(torch.device('cpu'))",
        "torch.from_numpy(np.zeros(3))",
        "torch.zeros(3)",
        "torch.tensor([1.0])",
        "torch.FloatTensor([1.0])",
        "torch.zeros(3, device='cpu')",
        "torch.zeros(3).abs() + 1",
        "torch.zeros(3)[0]",
    ],
)
def test_tensor_made_or_moved_to_the_cpu_is_a_host_tensor(made: str) -> None:
    assert is_host(f"device_tensor = torch.zeros(3, device='cuda')\ny = {made}\nz = y\n", "y")


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(3).cuda()",
        "torch.zeros(3).to(device)",
        "torch.zeros(3, device=device)",
        "torch.zeros(3).to('cuda')",
        "host + torch.zeros(3, device=device)",
        "torch.zeros_like(unknown.backward())",
        "nn.Linear(3, 4).cuda()(host)",
        "host.to(other_tensor)",
    ],
)
def test_tensor_that_may_be_on_a_device_is_no_host_tensor(made: str) -> None:
    body = f"def f(device, other_tensor, unknown):\n    host = torch.zeros(3)\n    y = {made}\n    z = y\n"
    assert not is_host(body, "y")


def test_batch_that_is_never_moved_is_a_host_tensor() -> None:
    assert is_host("for images, labels in DataLoader(dataset):\n    z = labels\n", "labels")


def test_batch_that_was_moved_is_no_host_tensor() -> None:
    body = "for images, labels in DataLoader(dataset):\n    labels = labels.cuda()\n    z = labels\n"
    assert not is_host(body, "labels")


def test_tensor_moved_in_one_branch_is_no_host_tensor() -> None:
    body = "y = torch.zeros(3)\nif cuda:\n    y = y.cuda()\nz = y\n"
    assert not is_host(body, "y")


def test_host_tensor_stays_one_as_an_argument() -> None:
    body = """
def f(x, y):
    z = x, y
f(torch.zeros(3, device="cuda").cpu(), y=torch.from_numpy(np.zeros(3)))
"""
    assert is_host(body, "x")
    assert is_host(body, "y")


def test_parameter_is_no_host_tensor_where_one_call_site_passes_another() -> None:
    body = """
def f(x):
    z = x
f(torch.zeros(3))
f(torch.zeros(3).cuda())
"""
    assert not is_host(body, "x")


def test_host_tensor_stays_one_in_a_returned_tuple() -> None:
    body = """
def f(x: torch.Tensor):
    return x.cpu(), x.cuda()
a, b = f(torch.zeros(3))
c = a, b
"""
    assert is_host(body, "a")
    assert not is_host(body, "b")


def test_list_of_host_tensors_gives_host_tensors() -> None:
    body = """
ys = []
for x in DataLoader(dataset):
    ys.append(x.cuda().cpu())
for y in ys:
    z = y
w = torch.cat(ys)
v = w
"""
    assert is_host(body, "y")
    assert is_host(body, "w")


def test_list_with_one_device_tensor_gives_no_host_tensors() -> None:
    body = "ys = [torch.zeros(3), torch.zeros(3).cuda()]\nfor y in ys:\n    z = y\n"
    assert not is_host(body, "y")


# Names of functions

FUNCTIONS = """
    import torch
    def made(x):
        return torch.zeros(3)
    def other(x):
        return torch.ones(3)
    def counted(x):
        return 3
"""


@pytest.mark.parametrize(
    ("bound", "call", "found"),
    [
        ("f = made if c else other", "f(1)", "tensor"),
        ("if c:\n        f = made\n    else:\n        f = other", "f(1)", "tensor"),
        ("f = made if c else lambda x: x + torch.zeros(3)", "f(1)", "tensor"),
        ("f = made if c else counted", "f(1)", "unknown"),
        ("f = made if c else c.other", "f(1)", "unknown"),
        ("f = lambda x, y=2: x * 2", "f(made(1))", "tensor"),
        ("f = lambda x, y=2: x * 2", "f(x=made(1), y=1)", "tensor"),
        ("f = lambda x, y=2: x * 2", "f(3)", "number"),
        ("f = lambda x, y=2: x * 2", "f(*c)", "unknown"),
        ("f = lambda x: f(x)", "f(made(1))", "unknown"),
        ("a = made(1)\n    f = lambda x: a", "f(3)", "tensor"),
    ],
)
def test_a_name_of_a_lambda_or_of_one_of_two_functions_gives_what_they_give(bound: str, call: str, found: str) -> None:
    assert (
        kind(
            module(
                FUNCTIONS
                + f"    def use(c):\n        {bound.replace(chr(10), chr(10) + '    ')}\n        return {call}\n"
            ),
            call,
        )
        == found
    )


def test_what_a_lambda_holds_is_judged_for_all_its_calls() -> None:
    text = "import torch\ndef use(c):\n    f = lambda t: t.mean()\n    return f(torch.zeros(3)), f(c)\n"
    assert kind(module(text), "t.mean()") == "unknown"


def test_lambdas_that_call_lambdas_are_followed_a_few_calls_deep() -> None:
    steps = "".join(f"f{n} = lambda x: f{n - 1}(f{n - 1}(x))\n" for n in range(1, 40))
    main = module(f"import torch\nf0 = lambda x: x * 2\n{steps}f1(torch.zeros(3))\nf39(torch.zeros(3))\n")
    assert [kind(main, f"f{n}(torch.zeros(3))") for n in (1, 39)] == ["tensor", "unknown"]


def test_tuple_with_a_list_unpacked_in_it_holds_what_both_hold() -> None:
    found = module("""\
        import torch

        tensors = [torch.ones(1)]
        more = (*tensors, torch.zeros(2))
        first = more[0]
        names = ("a", "b")
        mixed = (*names, torch.zeros(2))
        third = mixed[2]
        either = (*names, *tensors)
        any_of_them = either[0]
    """)
    assert value(found, "first").kind == "tensor"
    assert value(found, "third").kind == "tensor"
    assert value(found, "any_of_them").kind == "unknown"


@pytest.mark.parametrize(
    "statement",
    [
        "x = (x, x)",
        "x = {'a': x, 'b': x}",
        "x = dict(a=x, b=x)",
        "x = zip(x, x)",
        "x = [(x, x)]",
        "x = [x]",
        "x = [y for y in [x]]",
        "x = enumerate(x)",
        "x.append(x)",
        "x = x.foo",
        "*x, y = [x]",
    ],
)
def test_value_that_grows_with_each_statement_stays_small(statement: str) -> None:
    found = module("import torch\nx = [torch.ones(1)]\n" + f"{statement}\n" * 3_000)
    assert len(encode(found.summary())) < 50_000


def test_long_tuple_of_plain_values_keeps_them_all() -> None:
    found = module(f"import torch\ntable = ({'1, ' * 2_000}torch.ones(1))\nlast = table[2000]\n")
    assert value(found, "last").kind == "tensor"
