"""Layer graphs: what counts as "straight, and only, into a norm", and which literal widths are reported."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from torchlint.fixing.edits import Edit
from torchlint.rules.model.tl501_bias_before_norm import BiasBeforeNorm
from torchlint.rules.model.tl502_unaligned_dim import UnalignedDim
from torchlint.semantics import Module, ProjectLayout, link
from torchlint.source import SourceFile

HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def project(files: dict[str, str]) -> dict[str, Module]:
    """The modules of a project given as text by path, linked."""
    layout = ProjectLayout(Path("/project"), files)
    modules = {}
    for path, text in files.items():
        source = SourceFile.from_text(Path("/project", path), text)
        modules[path] = Module(source, source.parse(), layout, path)
    linked = link(layout, {path: module.summary() for path, module in modules.items()})
    for path, module in modules.items():
        module.attach(linked[path])
    return modules


def lines_of(rule: type[BiasBeforeNorm] | type[UnalignedDim], module: Module) -> list[str]:
    """The source lines that the rule reports, stripped."""
    return [module.source.line(finding.node.lineno).strip() for finding in rule().check(module)]


def biased(code: str) -> list[str]:
    return lines_of(BiasBeforeNorm, project({"net.py": HEADER + textwrap.dedent(code)})["net.py"])


def widths(code: str) -> list[str]:
    return lines_of(UnalignedDim, project({"net.py": HEADER + textwrap.dedent(code)})["net.py"])


def net(layers: str, forward: str) -> str:
    """A module class with these lines in `__init__` and `forward`."""
    return "\n".join(
        [
            "class Net(nn.Module):",
            "    def __init__(self, c, flag=False, norm_layer=nn.BatchNorm2d, **kwargs):",
            "        super().__init__()",
            textwrap.indent(textwrap.dedent(layers).strip("\n"), " " * 8),
            "    def forward(self, x):",
            textwrap.indent(textwrap.dedent(forward).strip("\n"), " " * 8),
        ]
    )


CONV = "nn.Conv2d(c, c, 3)"
PAIR = f"self.conv = {CONV}\nself.bn = nn.BatchNorm2d(c)"


@pytest.mark.parametrize(
    "built",
    [
        f"nn.Sequential({CONV}, nn.BatchNorm2d(c))",
        f"nn.Sequential(*[{CONV}, nn.BatchNorm2d(c)])",
        f"nn.Sequential(*([{CONV}] + [nn.BatchNorm2d(c), nn.ReLU()]))",
        f"nn.Sequential(nn.Sequential({CONV}), nn.BatchNorm2d(c))",
        f"nn.Sequential({CONV}, nn.Identity(), nn.BatchNorm2d(c))",
        f"nn.Sequential(*[m for _ in range(3) for m in [nn.Sequential({CONV}, nn.BatchNorm2d(c))]])",
        f"nn.Sequential(*[nn.Sequential({CONV}, nn.BatchNorm2d(c), nn.ReLU()) for _ in range(3)])",
        f"nn.Sequential({CONV}, nn.GroupNorm(num_channels=c, num_groups=c))",
        f"nn.Sequential({CONV}, nn.GroupNorm(2 * c, 2 * c))",
        f"nn.Sequential({CONV}, nn.InstanceNorm2d(c, track_running_stats=True))",
    ],
)
def test_consecutive_in_a_sequential(built: str) -> None:
    assert len(biased(f"def build(c):\n    return {built}\n")) == 1


@pytest.mark.parametrize(
    "built",
    [
        f"nn.Sequential({CONV}, nn.ReLU(), nn.BatchNorm2d(c))",
        f"nn.Sequential({CONV}, nn.GroupNorm(8, c))",
        f"nn.Sequential({CONV}, nn.GroupNorm(make(c), make(c)))",
        f"nn.Sequential({CONV}, nn.LayerNorm(c))",
        f"nn.Sequential({CONV}, nn.BatchNorm2d(c) if flag else nn.Identity())",
        f"nn.Sequential({CONV}, *([nn.BatchNorm2d(c)] if flag else []))",
        f"nn.Sequential({CONV}, norm(c))",
        "nn.Sequential(nn.Conv2d(c, c, 3, 1, 0, 1, 1, False), nn.BatchNorm2d(c))",
        "nn.Sequential(nn.Conv2d(c, c, 3, bias=flag), nn.BatchNorm2d(c))",
        "nn.Sequential(nn.Conv2d(*c), nn.BatchNorm2d(c))",
        "nn.ModuleList([nn.Conv2d(c, c, 3), nn.BatchNorm2d(c)])",
        "[nn.Conv2d(c, c, 3), nn.BatchNorm2d(c)]",
    ],
)
def test_not_straight_or_not_surely_into_a_norm(built: str) -> None:
    assert biased(f"def build(c, flag, norm=nn.BatchNorm2d):\n    return {built}\n") == []


@pytest.mark.parametrize(
    "forward",
    [
        "return self.bn(self.conv(x))",
        "x = self.conv(x)\nreturn F.relu(self.bn(x))",
        "y = self.conv(x)\nz = y\nprint(y.shape)\nreturn self.bn(z)",
        "if self.training:\n    return self.bn(self.conv(x))\nx = self.conv(x)\nx = self.bn(x)\nreturn x",
        "for _ in range(3):\n    x = torch.relu(self.bn(self.conv(x)))\nreturn x",
        "with torch.no_grad():\n    y = self.conv(x)\nreturn self.bn(y)",
        "return self.bn((y := self.conv(x)))",
    ],
)
def test_consecutive_in_forward(forward: str) -> None:
    assert biased(net(PAIR, forward)) == [f"self.conv = {CONV}"]


@pytest.mark.parametrize(
    "forward",
    [
        "return self.bn(F.relu(self.conv(x)))",
        "return self.bn(self.conv(x) + x)",
        "y = self.conv(x)\nreturn self.bn(y) + y",
        "y = self.conv(x)\nif self.training:\n    y = self.bn(y)\nreturn y",
        "y = self.conv(x)\nself.seen = y\nreturn self.bn(y)",
        "y = self.bn(self.conv(x))\nreturn self.conv(y)",
        "return self.bn(self.conv(x).flatten(2))",
        "return self.bn(torch.utils.checkpoint.checkpoint(self.conv, x))",
        "y = self.conv(x)\nreturn [self.bn(y), lambda: y]",
        "x = getattr(self, self.name)(x)\nreturn self.bn(self.conv(x))",
        "y = self.conv(x)\ndef inner():\n    return y.sum()\nreturn self.bn(y)",
        "return self.conv(x)",
    ],
)
def test_output_that_meets_anything_else(forward: str) -> None:
    assert biased(net(PAIR, forward)) == []


@pytest.mark.parametrize(
    "layers",
    [
        f"self.conv = {CONV}\nself.bn = nn.BatchNorm2d(c) if flag else None",
        f"self.conv = {CONV}\nself.bn = None\nif flag:\n    self.bn = nn.BatchNorm2d(c)",
        f"self.conv = {CONV}\nself.bn = norm_layer(c)",
        "self.conv = nn.Conv2d(c, c, 3, **kwargs)\nself.bn = nn.BatchNorm2d(c)",
        f"{PAIR}\nself.conv.bias.data.zero_()",
        f"{PAIR}\nself.conv.register_forward_hook(print)",
        f"{PAIR}\nself.elsewhere = wrap(self.conv)",
        "self.conv = nn.Linear(c, c)\nself.bn = nn.InstanceNorm1d(c)",
    ],
)
def test_layers_that_need_their_bias_or_may_have_no_norm(layers: str) -> None:
    assert biased(net(layers, "return self.bn(self.conv(x))")) == []


def test_bias_read_behind_a_none_guard_is_not_needed() -> None:
    guarded = f"{PAIR}\nif self.conv.bias is not None:\n    self.conv.bias.data.zero_()"
    assert biased(net(guarded, "return self.bn(self.conv(x))")) == [f"self.conv = {CONV}"]


@pytest.mark.parametrize(
    ("pairing", "found"),
    [
        ("for i in range(3):\n    x = self.bns[i](self.convs[i](x))\nreturn x", 1),
        ("for conv, bn in zip(self.convs, self.bns):\n    x = bn(conv(x))\nreturn x", 1),
        ("for i, conv in enumerate(self.convs):\n    bn = self.bns[i]\n    x = F.relu(bn(conv(x)))\nreturn x", 1),
        ("return self.bns[0](self.convs[0](x))", 1),
        ("for i in range(3):\n    x = self.bns[i](F.relu(self.convs[i](x)))\nreturn x", 0),
        ("for i, conv in enumerate(self.convs):\n    x = conv(x)\n    if i:\n        x = self.bns[i](x)\nreturn x", 0),
    ],
)
def test_module_lists_paired_by_index(pairing: str, found: int) -> None:
    layers = f"""
        self.convs = nn.ModuleList([{CONV} for _ in range(3)])
        self.bns = nn.ModuleList()
        for _ in range(3):
            self.bns.append(nn.BatchNorm2d(c))
    """
    assert len(biased(net(layers, pairing))) == found


def test_module_lists_paired_by_constant() -> None:
    layers = f"self.convs = nn.ModuleList([{CONV}, nn.Conv2d(c, 1, 1)])\nself.bns = nn.ModuleList([nn.BatchNorm2d(c)])"
    assert len(biased(net(layers, "return self.convs[1](F.relu(self.bns[0](self.convs[0](x))))"))) == 1


def test_sequential_subclass_runs_what_it_added_in_order() -> None:
    code = """
        class Block(nn.Sequential):
            def __init__(self, c, last):
                super().__init__()
                self.add_module("conv1", nn.Conv2d(c, c, 1))
                self.add_module("bn1", nn.BatchNorm2d(c))
                self.conv2 = nn.Conv2d(c, c, 2)
                if last:
                    self.bn2 = nn.BatchNorm2d(c)
    """
    assert biased(code) == ['self.add_module("conv1", nn.Conv2d(c, c, 1))']


def test_list_grown_under_a_condition() -> None:
    code = """
        def build(c, flag):
            layers = []
            for _ in range(3):
                layers.append(nn.Conv2d(c, c, 1))
                if flag:
                    layers.append(nn.BatchNorm2d(c))
                layers += [nn.ReLU(), nn.Conv2d(c, c, 2), nn.BatchNorm2d(c)]
            return nn.Sequential(*layers)
    """
    assert biased(code) == ["layers += [nn.ReLU(), nn.Conv2d(c, c, 2), nn.BatchNorm2d(c)]"]


def test_unpacked_keywords_of_a_literal_dict_hold_no_bias() -> None:
    layers = 'dd = {"device": None, "dtype": None}\nself.conv = nn.Conv2d(c, c, 3, **dd)\nself.bn = nn.BatchNorm2d(c)'
    module = project({"net.py": HEADER + net(layers, "return self.bn(self.conv(x))")})["net.py"]
    (finding,) = BiasBeforeNorm().check(module)
    assert finding.fix is None, "a call with ** is left alone"


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("Net(3)\nNet(3, padding=1)", 1),
        ("Net(3)\nNet(3, bias=False)", 0),
        ("Net(3)\nNet(3, **options)", 0),
        ("Net(3)\nregister(Net)", 0),
        ("", 0),
    ],
)
def test_forwarded_keywords_are_resolved_through_the_call_sites_of_all_files(calls: str, found: int) -> None:
    layers = "self.conv = nn.Conv2d(c, c, 3, **kwargs)\nself.bn = nn.BatchNorm2d(c)"
    modules = project(
        {
            "net.py": HEADER + net(layers, "return self.bn(self.conv(x))"),
            "main.py": f"from net import Net\n{calls}\n",
        }
    )
    assert len(lines_of(BiasBeforeNorm, modules["net.py"])) == found


HELPERS = """
def conv3x3(i, o, bias=True):
    return nn.Conv2d(i, o, 3, bias=bias)


def fixed(i, o):
    return nn.Conv2d(i, o, 3)


def norm(c):
    return nn.BatchNorm2d(c)


class PlainConv(nn.Conv2d):
    pass


class ScaledConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2
"""


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        ("conv3x3(c, c)", 1),
        ("conv3x3(c, c, True)", 1),
        ("conv3x3(c, c, False)", 0),
        ("PlainConv(c, c, 3)", 1),
        ("PlainConv(c, c, 3, bias=False)", 0),
        ("ScaledConv(c, c, 3)", 0),
        ("fixed(c, c)", 0),
    ],
)
def test_helpers_of_another_file_are_followed(layer: str, found: int) -> None:
    text = f"from helpers import conv3x3, fixed, norm, PlainConv, ScaledConv\n{HEADER}" + net(
        f"self.conv = {layer}\nself.bn = norm(c)", "return self.bn(self.conv(x))"
    )
    modules = project({"helpers.py": HEADER + HELPERS, "net.py": text})
    assert len(lines_of(BiasBeforeNorm, modules["net.py"])) == found
    assert lines_of(BiasBeforeNorm, modules["helpers.py"]) == []


@pytest.mark.parametrize(
    ("forward", "found"), [("self.bn(self.conv(x))", 1), ("self.bn(self.conv(x)) + self.other(x)", 0)]
)
def test_helper_is_flagged_where_it_builds_if_every_use_meets_a_norm(forward: str, found: int) -> None:
    layers = "self.conv = fixed(c, c)\nself.other = fixed(c, c)\nself.bn = nn.BatchNorm2d(c)"
    assert len(biased(HELPERS + net(layers, f"return {forward}"))) == found


INITIALIZER = """
def initialize(m):
    if isinstance(m, (nn.{kind}, nn.BatchNorm2d)):
        nn.init.normal_(m.weight)
        {access}
"""


GUARDS = [
    ("if hasattr(m, 'bias') and m.bias is not None:\n    m.bias.data.zero_()", 1),
    ("if getattr(m, 'bias', None) is not None:\n    m.bias.data.zero_()", 1),
    ("if m.bias is None:\n    return\nm.bias.data.zero_()", 1),
    ("if not m.training or m.bias is None:\n    return\nm.bias.data.zero_()", 1),
    ("if hasattr(m, 'bias'):\n    m.bias.data.zero_()", 0),
    ("if m.weight is None:\n    return\nm.bias.data.zero_()", 0),
    ("if m.bias is None and m.training:\n    return\nm.bias.data.zero_()", 0),
    ("if m.bias is None:\n    print(m)\nm.bias.data.zero_()", 0),
    ("try:\n    nn.init.zeros_(m.bias)\nexcept AttributeError:\n    pass", 1),
    ("try:\n    nn.init.ones_(m.weight)\n    m.bias.data.zero_()\nexcept AttributeError:\n    pass", 1),
    ("try:\n    m.bias[0] = 1\nexcept (ValueError, TypeError):\n    print(m)", 1),
    ("try:\n    torch.zero_(m.bias)\nexcept Exception:\n    pass", 1),
    ("with contextlib.suppress(AttributeError):\n    m.bias.data.zero_()", 1),
    ("try:\n    nn.init.zeros_(m.bias)\nexcept TypeError:\n    pass", 0),
    ("try:\n    torch.zero_(m.bias)\nexcept AttributeError:\n    pass", 0),
    ("try:\n    m.bias[0] = 1\nexcept AttributeError:\n    pass", 0),
    ("try:\n    m.bias.data.zero_()\nexcept AttributeError:\n    raise", 0),
    ("try:\n    m.bias.data.zero_()\n    nn.init.ones_(m.weight)\nexcept AttributeError:\n    pass", 0),
    ("try:\n    for _ in m.layers:\n        m.bias.data.zero_()\nexcept AttributeError:\n    pass", 0),
    ("try:\n    pass\nexcept AttributeError:\n    m.bias.data.zero_()", 0),
]


@pytest.mark.parametrize(("access", "found"), GUARDS)
def test_initializers_that_guard_against_a_missing_bias_need_none(access: str, found: int) -> None:
    initialize = INITIALIZER.format(kind="Conv2d", access=textwrap.indent(access, " " * 8).lstrip())
    code = "import contextlib\n" + net(PAIR, "return self.bn(self.conv(x))") + initialize
    assert len(biased(code + "Net(3).apply(initialize)\n")) == found
    inside = access.replace("m.", "self.conv.").replace("(m,", "(self.conv,").replace("return", "raise ValueError")
    assert len(biased("import contextlib\n" + net(f"{PAIR}\n{inside}", "return self.bn(self.conv(x))"))) == found


@pytest.mark.parametrize(
    ("kind", "access", "call", "found"),
    [
        ("Conv2d", "m.bias.data.zero_()", "Net(3).apply(initialize)", 0),
        ("Conv2d", "nn.init.zeros_(m.bias)", "for m in Net(3).modules():\n    initialize(m)", 0),
        ("Linear", "m.bias.data.zero_()", "Net(3).apply(initialize)", 1),
        ("Conv2d", "m.bias.data.zero_()", "", 1),
        ("Conv2d", "if m.bias is not None: m.bias.data.zero_()", "Net(3).apply(initialize)", 1),
        ("Conv2d", "m.bias is not None and nn.init.zeros_(m.bias)", "Net(3).apply(initialize)", 1),
    ],
)
def test_initializers_that_rely_on_a_bias_count_if_something_applies_them(
    kind: str, access: str, call: str, found: int
) -> None:
    code = net(PAIR, "return self.bn(self.conv(x))") + INITIALIZER.format(kind=kind, access=access) + call + "\n"
    assert len(biased(code)) == found
    other = {
        "net.py": HEADER + net(PAIR, "return self.bn(self.conv(x))"),
        "main.py": HEADER + "from net import Net\n" + INITIALIZER.format(kind=kind, access=access) + call + "\n",
    }
    assert len(lines_of(BiasBeforeNorm, project(other)["net.py"])) == found


def test_layer_called_through_another_object_is_used_elsewhere() -> None:
    code = net(PAIR, "return self.bn(self.conv(x))")
    assert biased(code + "\n\ndef features(model, x):\n    return model.conv(x)\n") == []
    assert len(biased(code + "\n\ndef features(model, x):\n    return model(x)\n")) == 1


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("model.conv.bias.fill_(0)", 0),
        ('model.load_state_dict({"conv.bias": x}, strict=False)', 0),
        ("return model.conv.bias if model.conv.bias is not None else x", 1),
        ("return model.bn.bias", 1),
    ],
)
def test_bias_read_through_another_object(line: str, found: int) -> None:
    code = net(PAIR, "return self.bn(self.conv(x))") + f"\n\ndef convert(model, x):\n    {line}\n"
    assert len(biased(code)) == found


def test_inherited_forward_counts_for_the_layers_of_the_subclass() -> None:
    code = """
        class Base(nn.Module):
            def forward(self, x):
                return self.bn(self.conv(x))


        class Derived(Base):
            def __init__(self, c):
                super().__init__()
                self.conv = nn.Conv2d(c, c, 1)
                self.bn = nn.BatchNorm2d(c)
    """
    assert biased(code) == ["self.conv = nn.Conv2d(c, c, 1)"]


def test_deeply_nested_code_is_left_alone() -> None:
    total = " + ".join(["x"] * 500)  # more than the layer run follows, less than any Python refuses
    assert biased(net(PAIR, f"y = {total}\nreturn self.bn(self.conv(y))")) == []


@pytest.mark.parametrize(
    ("call", "fixed"),
    [
        ("nn.Conv2d(3, c, 3)", "nn.Conv2d(3, c, 3, bias=False)"),
        ("nn.Conv2d(3, c, 3, bias=True)", "nn.Conv2d(3, c, 3, bias=False)"),
        ("nn.Linear(3, c, True)", "nn.Linear(3, c, False)"),
    ],
)
def test_fix_turns_the_bias_off_where_the_call_says_it(call: str, fixed: str) -> None:
    module = project({"net.py": HEADER + f"net = nn.Sequential({call}, nn.BatchNorm1d(c))\n"})["net.py"]
    (finding,) = BiasBeforeNorm().check(module)
    assert finding.fix is not None
    text = module.source.text
    for edit in sorted(finding.fix.build(), reverse=True):
        assert isinstance(edit, Edit)
        text = text[: edit.start] + edit.content + text[edit.end :]
    assert text == module.source.text.replace(call, fixed)


# Widths


def sequence(*layers: str) -> str:
    return "def build(n):\n    return nn.Sequential(\n" + "".join(f"        {layer},\n" for layer in layers) + "    )\n"


def test_width_is_reported_where_it_is_made() -> None:
    assert widths(sequence("nn.Linear(300, 500)", "nn.ReLU()", "nn.Linear(500, n)")) == ["nn.Linear(300, 500),"]


@pytest.mark.parametrize(
    "layers",
    [
        ("nn.Linear(8, 64)", "nn.Linear(64, 100)"),
        ("nn.Linear(100, 64)", "nn.Linear(64, n)"),
        ("nn.Conv2d(3, 100, 3, groups=n)", "nn.Conv2d(100, 8, 3)"),
        ("nn.Linear(8, 60)", "nn.Linear(60, n)"),
        ("nn.Linear(8, 100)", "nn.Softmax(-1)", "nn.Linear(100, n)"),
        ("nn.Conv2d(8, 64, 99)", "nn.AdaptiveAvgPool2d(99)", "nn.LayerNorm(99)", "nn.Linear(64, n)"),
    ],
)
def test_sizes_that_are_left_alone(layers: tuple[str, ...]) -> None:
    assert widths(sequence(*layers)) == []


def test_constant_of_the_module_counts_and_a_rebound_one_does_not() -> None:
    code = sequence("nn.Linear(8, WIDTH)", "nn.Linear(WIDTH, n)")
    assert widths("WIDTH = 300\n" + code) == ["nn.Linear(8, WIDTH),"]
    assert widths("WIDTH = 300\nWIDTH = 304\n" + code) == []
    assert widths("NUM_CLASSES = 300\n" + code.replace("WIDTH", "NUM_CLASSES")) == []


def test_vocabulary_shared_with_an_output_projection() -> None:
    layers = "self.embed = nn.Embedding(50257, 64)\nself.head = nn.Linear(64, {out}, bias=False)"
    forward = "return self.head(self.embed(x))"
    assert widths(net(layers.format(out=50257), forward)) == ["self.embed = nn.Embedding(50257, 64)"]
    assert widths(net(layers.format(out="c"), forward)) == []
    tied = layers.format(out="c") + "\nself.head.weight = self.embed.weight"
    assert widths(net(tied, forward)) == ["self.embed = nn.Embedding(50257, 64)"]


def test_message_names_the_next_multiple_and_the_alignments() -> None:
    code = HEADER + sequence("nn.Linear(8, 300)", "nn.Linear(300, n)")
    (finding,) = UnalignedDim().check(project({"net.py": code})["net.py"])
    assert "out_features=300 (next multiple of 8: 304)" in finding.message
    assert "4 for TF32" in finding.message
    assert finding.fix is None
