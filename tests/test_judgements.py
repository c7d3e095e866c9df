"""Situations of real code that a rule once judged wrongly, each as small as it can be."""

from __future__ import annotations

import pytest
from semantics_support import module, project

from torchlint.rule import all_rules

TRAIN = """\
import torch
from torch import nn


def train(model: nn.Module, loader, optimizer, device):
    for x in loader:
        loss = model(x.to(device)).mean()
        loss.backward()
        optimizer.step()
        {}
"""


def found(files: dict[str, str], code: str) -> list[tuple[str, int]]:
    """(path, line) of what one rule finds in a project."""
    (rule,) = [rule for rule in all_rules() if rule.code == code]
    return [(path, f.node.lineno) for path, m in sorted(project(files).items()) for f in rule().check(m)]


def test_list_that_grows_through_another_name_for_append() -> None:
    text = (
        "import torch\ndef evaluate(model: torch.nn.Module, loader):\n    outs = []\n    push = outs.append\n"
        "    for x in loader:\n        push(model(x.cuda()).cpu())\n    return outs\n"
    )
    assert found({"a.py": text}, "TL101") == [("a.py", 6)]


def test_loader_inside_a_metric_logger_is_iterated() -> None:
    text = (
        "import torch\nfrom torch.utils.data import DataLoader\ndef count(logger, data, device):\n"
        "    for x, y in logger.log_every(DataLoader(data), 10):\n        print((x.to(device) > 0).sum().item())\n"
    )
    assert found({"a.py": text}, "TL101") == [("a.py", 5)]


def test_return_annotation_says_what_a_helper_gives() -> None:
    text = TRAIN.format("print(norm(model).item())") + "\n\ndef norm(m) -> torch.Tensor:\n    return m.weird()\n"
    assert found({"a.py": text}, "TL101") == [("a.py", 10)]


def test_early_return_under_a_test_of_another_file_guards_what_follows() -> None:
    helper = "import torch\nclass Log:\n    def should_log(self, step):\n        return step == 1 or step % 100 == 0\n"
    text = TRAIN.format("report(loss, 1)") + (
        "\n\nfrom helper import Log\nLOG = Log()\n\n\ndef report(loss, step):\n    if not LOG.should_log(step):\n"
        "        return\n    print(loss.item())\n"
    )
    assert found({"a.py": text, "helper.py": helper}, "TL101") == []
    assert found({"a.py": text.replace("not LOG", "LOG"), "helper.py": helper}, "TL101") == [("a.py", 20)]


def test_move_after_a_tensor_is_found_but_not_rewritten() -> None:
    (rule,) = [rule for rule in all_rules() if rule.code == "TL201"]
    (finding,) = rule().check(module("import torch\ndef f(p):\n    return torch.zeros(3).to(p.grad)\n"))
    assert finding.fix is None


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef f(z):\n    return torch.zeros(3, out=z).cuda()\n",
        "import torch\ndef f(m, d):\n    m.x = torch.randn(3)\n    m.export()\n    return m.x.to(d)\n",
        "import torch\ndef f(*a, **k):\n    return torch.zeros(3).to(*a, **k)\n",
    ],
)
def test_moves_that_belong_to_no_creation(text: str) -> None:
    assert found({"a.py": text}, "TL201") == []


def test_element_filled_between_creation_and_move() -> None:
    text = "import torch\ndef f(d):\n    u = torch.zeros(3)\n    u[0] = 1\n    u = u.to(d)\n    return u\n"
    assert found({"a.py": text}, "TL201") == [("a.py", 5)]


def test_hook_that_a_framework_calls_is_no_region() -> None:
    text = (
        "import torch\nclass Strategy:\n    def __init__(self):\n        self.net = torch.nn.Linear(2, 2)\n"
        "    def {}(self, batch):\n        return self.net(batch)\n"
    )
    assert found({"a.py": text.format("validation_step")}, "TL401") == []
    assert found({"a.py": text.format("validate")}, "TL401") == [("a.py", 5)]


def test_value_that_doubles_itself_is_not_collected_in_a_list() -> None:
    text = "import torch\ndef f(x, n):\n    while x.shape[0] < n:\n        x = torch.cat((x, x))\n    return x\n"
    assert found({"a.py": text}, "TL203") == []


def test_counter_of_an_outer_loop_guards_nothing_inside() -> None:
    text = (
        "import torch\ndef f(model: torch.nn.Module, loader, device):\n"
        "    for fold in range(3):\n        for x in loader:\n"
        "            y = model(x.to(device))\n            if fold == 0:\n                print(y.sum().item())\n"
    )
    assert found({"a.py": text}, "TL101") == [("a.py", 7)]


def test_optimizer_named_so_is_one_and_a_scheduler_is_none() -> None:
    text = (
        "import torch\ndef f(loss: torch.Tensor, {0}, n):\n    device = 'cuda'\n"
        "    for _ in range(n):\n        {0}.step()\n"
        "        print(loss.item())\n"
    )
    assert found({"a.py": text.format("optimizer")}, "TL101") == [("a.py", 6)]
    assert found({"a.py": text.format("scheduler")}, "TL101") == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "TL203",
            "import torch\ndef f(env, b, n):\n    x = torch.empty(0)\n    for _ in range(n):\n        env.fill(b)\n"
            "        x = torch.cat((x, b))\n    return x\n",
        ),
        ("TL401", "import torch\nasync def evaluate(m: torch.nn.Module, xs):\n    return [m(x) for x in xs]\n"),
        ("TL401", "import torch\ndef evaluate(m: torch.nn.Module, xs):\n    return (m(x) for x in xs)\n"),
    ],
)
def test_fix_that_would_change_results_or_come_too_late_is_not_offered(code: str, text: str) -> None:
    (rule,) = [rule for rule in all_rules() if rule.code == code]
    (finding,) = rule().check(module(text))
    assert finding.fix is None


@pytest.mark.parametrize(
    ("parameters", "is_repaired"),
    [("optimizer", False), ("optimizer: torch.optim.Optimizer", True), ("optimizer: FusedAdam", False)],
)
def test_an_argument_is_added_only_for_an_optimizer_of_torch(parameters: str, is_repaired: bool) -> None:
    """apex's fused optimizers define `zero_grad(self)`: a call with `set_to_none=True` raises TypeError there."""
    text = (
        "import torch\nfrom apex.optimizers import FusedAdam\n"
        f"def train(model, loader, {parameters}):\n    for x in loader:\n        optimizer.zero_grad()\n"
        "        model(x).sum().backward()\n        optimizer.step()\n"
    )
    found = module(text)
    found.target_torch = (1, 13)
    (rule,) = [rule for rule in all_rules() if rule.code == "TL405"]
    fixes = [finding.fix for finding in rule().check(found)]
    assert [fix is not None for fix in fixes] == ([is_repaired] if fixes else [])
    assert fixes or "FusedAdam" in parameters


def test_two_models_side_by_side_of_which_one_trains() -> None:
    text = (
        "import torch\nfrom torch import nn\ndef compare(flag):\n    a, b = nn.Linear(3, 3), nn.Linear(3, 3)\n"
        "    if flag:\n        a.train()\n    b.eval()\n    x = torch.zeros(2, 3)\n    print(a(x), {})\n"
    )
    assert found({"a.py": text.format("0")}, "TL401") == []
    assert [line for _, line in found({"a.py": text.format("b(x)")}, "TL401")] != []
