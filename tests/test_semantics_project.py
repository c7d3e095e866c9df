"""Projects: facts that cross files, through imports, re-exports, calls, returns, parameters and classes."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from time import perf_counter

import pytest
from semantics_support import is_hot, kind, node, project, value

from torchlint.semantics import FileSummary, Module, ProjectLayout, link
from torchlint.source import SourceFile

TRAIN = """
    import torch
    from torch import nn, optim
    from torch.utils.data import DataLoader
    model = nn.Linear(3, 3).cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
"""


# Names across files


@pytest.mark.parametrize(
    ("files", "imports", "used"),
    [
        ({"net.py": "CLASS"}, "from net import Net", "Net"),
        ({"net.py": "CLASS"}, "import net", "net.Net"),
        ({"net.py": "CLASS"}, "import net as n", "n.Net"),
        ({"net.py": "CLASS"}, "from net import Net as Model", "Model"),
        ({"net.py": "CLASS"}, "from net import *", "Net"),
        ({"pkg/__init__.py": "", "pkg/net.py": "CLASS"}, "from pkg.net import Net", "Net"),
        ({"pkg/__init__.py": "", "pkg/net.py": "CLASS"}, "from pkg import net", "net.Net"),
        ({"pkg/__init__.py": "", "pkg/net.py": "CLASS"}, "import pkg.net", "pkg.net.Net"),
        ({"pkg/net.py": "CLASS"}, "from pkg.net import Net", "Net"),
        ({"pkg/__init__.py": "from .net import Net", "pkg/net.py": "CLASS"}, "from pkg import Net", "Net"),
        ({"pkg/__init__.py": "from pkg.net import Net", "pkg/net.py": "CLASS"}, "import pkg", "pkg.Net"),
        ({"pkg/__init__.py": "from .net import *", "pkg/net.py": "CLASS"}, "from pkg import Net", "Net"),
        ({"pkg/__init__.py": "from .net import Net as Model", "pkg/net.py": "CLASS"}, "from pkg import Model", "Model"),
        (
            {
                "pkg/__init__.py": "from .sub import *",
                "pkg/sub/__init__.py": "from .net import *",
                "pkg/sub/net.py": "CLASS",
            },
            "from pkg import *",
            "Net",
        ),
        ({"src/pkg/__init__.py": "", "src/pkg/net.py": "CLASS"}, "from pkg.net import Net", "Net"),
    ],
)
def test_class_of_another_file_is_found_through_every_import(files: dict[str, str], imports: str, used: str) -> None:
    definition = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    files = {path: text.replace("CLASS", definition) for path, text in files.items()}
    found = project({**files, "main.py": f"import torch\n{imports}\nmodel = {used}()\nm = model\n"})
    defined = next(path for path, text in files.items() if text == definition)
    model = value(found["main.py"], "model")
    assert model.kind == "module"
    assert model.name == defined.removesuffix(".py").replace("/", ".") + ":Net"


@pytest.mark.parametrize(
    ("path", "imports"),
    [
        ("pkg/main.py", "from .net import Net"),
        ("pkg/main.py", "from . import net\nNet = net.Net"),
        ("pkg/sub/main.py", "from ..net import Net"),
        ("pkg/sub/main.py", "from .. import net\nNet = net.Net"),
    ],
)
def test_relative_import_is_resolved_from_the_importing_file(path: str, imports: str) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/sub/__init__.py": "",
        "pkg/net.py": "import torch\nclass Net(torch.nn.Module): ...\n",
        path: f"import torch\n{imports}\nmodel = Net()\nm = model\n",
    }
    assert value(project(files)[path], "model").name == "pkg.net:Net"


def test_script_sees_its_own_folder_first() -> None:
    files = {
        "net.py": "import torch\ndef make():\n    return torch.nn.Linear(3, 3)\n",
        "example/net.py": "import torch\ndef make():\n    return torch.zeros(3)\n",
        "example/main.py": "import torch\nfrom net import make\ny = make()\nz = y\n",
        "main.py": "import torch\nfrom net import make\ny = make()\nz = y\n",
    }
    found = project(files)
    assert kind(found["example/main.py"], "y") == "tensor"
    assert kind(found["main.py"], "y") == "module"


def test_import_cycle_ends() -> None:
    files = {
        "a.py": "import torch\nfrom b import g\ndef f():\n    return torch.zeros(3)\n",
        "b.py": "import torch\nfrom a import f\ndef g():\n    return f()\ny = g()\nz = y\n",
    }
    assert kind(project(files)["b.py"], "y") == "tensor"


def test_reexports_that_lead_in_a_circle_end() -> None:
    files = {
        "a.py": "import torch\nfrom b import *\n",
        "b.py": "import torch\nfrom a import *\n",
        "main.py": "import torch\nfrom a import thing\ny = thing()\nz = y\n",
    }
    assert kind(project(files)["main.py"], "y") in ("unknown", "ref")


def test_torch_names_are_reexported_too() -> None:
    files = {
        "compat.py": "import torch\nfrom torch.nn import functional as F\n",
        "main.py": "from compat import F\nimport torch\ny = F.relu(x)\n",
    }
    found = project(files)["main.py"]
    assert found.qualified(node(found, "F.relu")) == "torch.nn.functional.relu"


# Values across files


def test_result_of_a_function_in_another_file() -> None:
    files = {
        "helpers.py": "import torch\ndef make(n):\n    return torch.zeros(n), torch.nn.Linear(n, n)\n",
        "main.py": "import torch\nfrom helpers import make\na, b = make(3)\nc = a, b\n",
    }
    found = project(files)["main.py"]
    assert kind(found, "a") == "tensor"
    assert kind(found, "b") == "module"


def test_result_that_passes_through_a_third_file() -> None:
    files = {
        "a.py": "import torch\ndef make():\n    return torch.zeros(3)\n",
        "b.py": "import torch\nfrom a import make\ndef again():\n    return make()\n",
        "main.py": "import torch\nfrom b import again\ny = again()\nz = y\n",
    }
    assert kind(project(files)["main.py"], "y") == "tensor"


def test_parameter_is_what_call_sites_in_other_files_pass() -> None:
    files = {
        "metrics.py": "import torch\ndef score(output, model):\n    z = output, model\n",
        "a.py": "import torch\nfrom metrics import score\nscore(torch.zeros(3).cuda(), torch.nn.Linear(3, 3))\n",
        "b.py": "import torch\nimport metrics\nmetrics.score(model=torch.nn.ReLU(), output=torch.ones(3))\n",
    }
    found = project(files)["metrics.py"]
    assert value(found, "output").is_tensor
    assert not value(found, "output").host
    assert kind(found, "model") == "module"


def test_parameter_is_unknown_where_one_other_file_passes_something_else() -> None:
    files = {
        "metrics.py": "import torch\ndef score(output):\n    z = output\n",
        "a.py": "import torch\nfrom metrics import score\nscore(torch.zeros(3))\n",
        "b.py": "import torch\nfrom metrics import score\nscore(load())\n",
    }
    assert kind(project(files)["metrics.py"], "output") == "unknown"


def test_parameter_of_a_function_that_is_handed_over_is_unknown() -> None:
    files = {
        "metrics.py": "import torch\ndef score(output):\n    z = output\n",
        "a.py": "import torch\nfrom metrics import score\nscore(torch.zeros(3))\nregister(score)\n",
    }
    assert kind(project(files)["metrics.py"], "output") == "unknown"


def test_host_tensor_stays_one_across_files() -> None:
    files = {
        "metrics.py": "import torch\ndef score(output):\n    z = output\n    return output\n",
        "a.py": "import torch\nfrom metrics import score\ny = score(torch.zeros(3).cuda().cpu())\nz = y\n",
    }
    found = project(files)
    assert value(found["metrics.py"], "output").host
    assert value(found["a.py"], "y").host


def test_attribute_of_a_base_class_in_another_file() -> None:
    files = {
        "base.py": """
            import torch
            class Base(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = torch.nn.Parameter(torch.ones(3))
                def helper(self, x):
                    return torch.relu(x)
        """,
        "net.py": """
            import torch
            from base import Base
            class Net(Base):
                def f(self, x):
                    y = self.helper(x)
                    z = self.scale, y
        """,
    }
    found = project(files)["net.py"]
    assert kind(found, "self.scale") == "tensor"
    assert kind(found, "y") == "tensor"
    assert found.is_module_class(found.classes[0])


def test_loader_made_by_a_function_of_another_file_gives_tensors() -> None:
    files = {
        "data.py": "from torch.utils.data import DataLoader\n"
        "def loaders(a, b):\n    return DataLoader(a), DataLoader(b)\n",
        "main.py": "import torch\nfrom data import loaders\n"
        "train, test = loaders(1, 2)\nfor batch in train:\n    z = batch\n",
    }
    assert kind(project(files)["main.py"], "batch") == "tensor"


def test_dataclass_of_another_file_keeps_its_fields() -> None:
    files = {
        "types_.py": "import torch\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Batch:\n    images: torch.Tensor\n",
        "main.py": "import torch\nfrom types_ import Batch\ndef f(batch: Batch):\n    z = batch.images\n",
    }
    assert kind(project(files)["main.py"], "batch.images") == "tensor"


def test_init_without_torch_words_still_reexports() -> None:
    files = {
        "pkg/__init__.py": "from .metrics import score\n",
        "pkg/metrics.py": "import torch\ndef score():\n    return torch.zeros(3)\n",
        "main.py": "import torch\nfrom pkg import score\ny = score()\nz = y\n",
    }
    assert kind(project(files)["main.py"], "y") == "tensor"


# Heat across files


def hot(files: dict[str, str], path: str) -> bool:
    """Whether the first `read()` of a file is hot."""
    return is_hot(project(files)[path], "read()")


LOOP = (
    TRAIN
    + """
    {imports}
    for batch in DataLoader(dataset):
        loss = model(batch).sum()
        loss.backward()
        {call}
"""
)
LOG = "import torch\ndef log(loss):\n    read()\n"


def loop(imports: str, call: str) -> str:
    return LOOP.format(imports=imports, call=call)


def test_helper_called_from_a_step_loop_in_another_file_is_hot() -> None:
    assert hot({"helpers.py": LOG, "main.py": loop("from helpers import log", "log(loss)")}, "helpers.py")


def test_helper_called_through_its_module_is_hot() -> None:
    assert hot({"helpers.py": LOG, "main.py": loop("import helpers as h", "h.log(loss)")}, "helpers.py")


def test_helper_called_through_a_reexport_is_hot() -> None:
    files = {
        "pkg/__init__.py": "from .helpers import *\n",
        "pkg/helpers.py": LOG,
        "main.py": loop("from pkg import log", "log(loss)"),
    }
    assert hot(files, "pkg/helpers.py")


def test_helper_called_through_a_third_file_is_hot() -> None:
    files = {
        "helpers.py": LOG,
        "middle.py": "import torch\nfrom helpers import log\ndef relay(loss):\n    log(loss)\n",
        "main.py": loop("from middle import relay", "relay(loss)"),
    }
    assert hot(files, "helpers.py")


def test_helper_called_under_a_guard_in_another_file_is_cold() -> None:
    main = loop("from helpers import log", "step = 0\n        if step % 10 == 0:\n            log(loss)")
    assert not hot({"helpers.py": LOG, "main.py": main}, "helpers.py")


def test_helper_called_outside_the_step_loop_is_cold() -> None:
    main = loop("from helpers import log", "pass") + "    log(0)\n"
    assert not hot({"helpers.py": LOG, "main.py": main}, "helpers.py")


def test_guard_that_is_a_function_of_another_file_guards() -> None:
    files = {
        "helpers.py": "import torch\ndef due(step):\n    return step % 10 == 0\n",
        "main.py": loop("from helpers import due", "if due(step):\n            read()"),
    }
    assert not hot(files, "main.py")


def test_function_of_another_file_that_steps_makes_a_step_loop() -> None:
    files = {
        "engine.py": "import torch\ndef train_step(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n",
        "main.py": "import torch\nfrom engine import train_step\n"
        "for i in range(9):\n    train_step(f(i), opt)\n    read()\n",
    }
    assert hot(files, "main.py")


def test_function_of_another_file_that_holds_the_step_loop_makes_an_epoch_loop() -> None:
    files = {
        "engine.py": TRAIN
        + "    def train_epoch():\n        for x in DataLoader(d):\n            model(x).sum().backward()\n",
        "main.py": "import torch\nfrom engine import train_epoch\n"
        "for epoch in range(9):\n    train_epoch()\n    read()\n",
    }
    assert not hot(files, "main.py")


def test_module_of_another_file_called_in_a_loop_makes_a_step_loop() -> None:
    files = {
        "net.py": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n",
        "main.py": "import torch\nfrom net import Net\nnet = Net()\nfor x in xs:\n    net(x)\n    read()\n",
    }
    assert hot(files, "main.py")


def test_method_called_from_a_step_loop_in_another_file_is_hot() -> None:
    files = {
        "meter.py": "import torch\nclass Meter:\n    def update(self, x):\n        read()\n",
        "main.py": loop("from meter import Meter\n    meter = Meter()", "meter.update(loss)"),
    }
    assert hot(files, "meter.py")


def test_method_of_unique_name_in_another_file_is_hot() -> None:
    files = {
        "meter.py": "import torch\nclass Meter:\n    def record_scores(self, x):\n        read()\n",
        "main.py": loop("meter = load()", "meter.record_scores(loss)"),
    }
    assert hot(files, "meter.py")


def test_method_name_that_two_classes_share_resolves_to_neither() -> None:
    files = {
        "meter.py": "import torch\nclass Meter:\n    def record_scores(self, x):\n        read()\n",
        "other.py": "import torch\nclass Other:\n    def record_scores(self, x):\n        pass\n",
        "main.py": loop("meter = load()", "meter.record_scores(loss)"),
    }
    assert not hot(files, "meter.py")


ENCODER = """
    import torch
    class Encoder:
        def encode_torch(self, text):
            return torch.tensor(self.ids(text))
        @property
        def table(self):
            return torch.zeros(3)
        def join(self, text):
            return torch.zeros(3)
        def ids(self, text):
            return [ord(c) for c in text]
"""


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("encoder.encode_torch(text)", "tensor"),
        ("load().encode_torch(text)", "tensor"),
        ("encoder.table()", "unknown"),
        ("encoder.join(text)", "unknown"),  # strings have one too
        ("encoder.ids(text)", "unknown"),  # a list of numbers: it changes nothing
    ],
)
def test_method_of_unique_name_on_an_unknown_receiver_gives_its_result(call: str, found: str) -> None:
    main = f"import torch\ndef use(encoder, text):\n    return {call}\n"
    assert kind(project({"encoder.py": ENCODER, "main.py": main})["main.py"], call) == found
    shared = "import torch\nclass Other:\n    def encode_torch(self, text):\n        return torch.zeros(3)\n"
    modules = project({"encoder.py": ENCODER, "other.py": shared, "main.py": main})
    assert kind(modules["main.py"], call) == "unknown"


def test_override_called_through_its_base_is_hot() -> None:
    files = {
        "base.py": """
            import torch
            from torch.utils.data import DataLoader
            class Trainer:
                def fit(self):
                    for batch in DataLoader(self.data):
                        self.train_step(batch)
                def train_step(self, batch):
                    raise NotImplementedError
        """,
        "mine.py": "import torch\nfrom base import Trainer\n"
        "class Mine(Trainer):\n    def train_step(self, batch):\n        read()\n",
    }
    assert hot(files, "mine.py")


def test_inherited_method_called_from_a_step_loop_is_hot() -> None:
    files = {
        "base.py": "import torch\nclass Base:\n    def log_all(self):\n        read()\n",
        "mine.py": "import torch\nfrom base import Base\nclass Mine(Base): ...\n",
        "main.py": loop("from mine import Mine\n    mine = Mine()", "mine.log_all()"),
    }
    assert hot(files, "base.py")


# Gradients across files


def test_all_call_sites_under_no_grad_across_files() -> None:
    files = {
        "evaluation.py": "import torch\ndef evaluate(model, x):\n    return model(x)\n",
        "a.py": "import torch\nfrom evaluation import evaluate\nwith torch.no_grad():\n    evaluate(m, 1)\n",
        "b.py": "import torch\nimport evaluation\n@torch.inference_mode()\ndef f():\n    evaluation.evaluate(m, 1)\n",
    }
    found = project(files)["evaluation.py"]
    assert found.grad_disabled(node(found, "model(x)"))


def test_one_call_site_with_gradients_in_another_file() -> None:
    files = {
        "evaluation.py": "import torch\ndef evaluate(model, x):\n    return model(x)\n",
        "a.py": "import torch\nfrom evaluation import evaluate\nwith torch.no_grad():\n    evaluate(m, 1)\n",
        "b.py": "import torch\nfrom evaluation import evaluate\nevaluate(m, 1)\n",
    }
    found = project(files)["evaluation.py"]
    assert not found.grad_disabled(node(found, "model(x)"))


def test_projects_own_decorator_that_turns_gradients_off() -> None:
    files = {
        "utils.py": """
            import torch
            def frozen(function):
                def wrapper(*args):
                    with torch.no_grad():
                        return function(*args)
                return wrapper
        """,
        "main.py": "import torch\nfrom utils import frozen\n@frozen\ndef evaluate(model, x):\n    return model(x)\n",
    }
    found = project(files)["main.py"]
    assert found.grad_disabled(node(found, "model(x)"))


def test_call_of_an_exposed_function_of_another_file_is_exposed() -> None:
    files = {
        "net.py": TRAIN + "    def predict(x):\n        return model(x)\n",
        "main.py": "import torch\nfrom net import predict\ndef evaluate(x):\n    return predict(x)\n",
    }
    found = project(files)["main.py"]
    assert [call.lineno for call in found.exposed_forwards(found.functions[0])] == [4]


# Layout


def test_device_named_in_one_file_counts_for_the_project() -> None:
    found = project({"a.py": "import torch\nx.cuda()\n", "b.py": "import torch\ny = torch.zeros(3)\n"})
    assert found["b.py"].device_project


def test_folders_with_metadata_of_their_own_are_projects_of_their_own(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("torch\n")
    files = {"first/a.py": "import torch\nx.cuda()\n", "first/b.py": "import torch\n", "second/c.py": "import torch\n"}
    found = project(files, tmp_path)
    assert found["first/b.py"].device_project
    assert not found["second/c.py"].device_project


def test_file_without_anything_of_interest_has_no_module() -> None:
    files = {"main.py": "import torch\n", "strings.py": "def shout(s):\n    return s.upper()\n", "pkg/__init__.py": ""}
    assert set(project(files)) == {"main.py", "pkg/__init__.py"}


def test_facts_do_not_depend_on_the_order_of_files() -> None:
    files = {
        "helpers.py": LOG,
        "middle.py": "import torch\nfrom helpers import log\ndef relay(loss):\n    log(loss)\n",
        "main.py": loop("from middle import relay", "relay(loss)"),
    }
    forward, backward = project(files), project(dict(reversed(files.items())))
    assert {path: found.linked for path, found in forward.items()} == {
        path: found.linked for path, found in backward.items()
    }


def test_file_that_leaves_the_project_takes_its_heat_along() -> None:
    files = {"helpers.py": LOG, "main.py": loop("from helpers import log", "log(loss)")}
    found: dict[str, Module] = project(files)
    layout = ProjectLayout(Path("elsewhere"), ["helpers.py"])
    summaries: dict[str, FileSummary] = {"helpers.py": found["helpers.py"].summary()}
    found["helpers.py"].attach(link(layout, summaries)["helpers.py"])
    assert not is_hot(found["helpers.py"], "read()")


# Rounds and long chains

_TOLD_LATE = {
    "model.py": """
        import torch
        from torch import nn
        class Decoder(nn.Module):
            def forward(self, x): return x
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.decoder = Decoder()
            def forward(self, x): return self.decoder(x)
    """,
    "task.py": """
        from model import Net
        class Task:
            def __init__(self, net: Net, loader):
                self.net, self.loader = net, loader
            def run(self):
                for x in self.loader:
                    y = self.net.decoder(x)
                return y
        def unrelated(a):
            return a + 1
    """,
    "main.py": """
        import torch
        from model import Net
        from task import Task
        from torch.utils.data import DataLoader
        def main(data):
            return Task(Net().cuda(), DataLoader(data, num_workers=4)).run()
    """,
}


def test_what_a_revision_says_is_what_a_whole_summary_would_say() -> None:
    layout = ProjectLayout(Path("no", "such", "folder"), _TOLD_LATE)
    sources = {path: SourceFile.from_text(Path(path), dedent(text)) for path, text in _TOLD_LATE.items()}
    modules = {path: Module(source, source.parse(), layout, path) for path, source in sources.items()}
    summaries = {path: module.declarations() for path, module in modules.items()}
    for path, facts in link(layout, summaries, last=False).items():
        modules[path].attach(facts)
        summaries[path] = modules[path].summary()
    linked = link(layout, summaries, last=False)
    assert linked["task.py"].again == {"task:Task.__init__", "task:Task.run"}
    task = modules["task.py"]
    task.attach(linked["task.py"])
    revised = summaries["task.py"].revised(task.revision())
    whole = task.summary()
    assert revised.functions == whole.functions
    assert revised.classes == whole.classes
    assert revised.functions != summaries["task.py"].functions


def test_an_attribute_of_a_class_of_another_file_makes_the_step_loop() -> None:
    assert len(project(_TOLD_LATE, screened=False)["task.py"].linked.step_loops) == 1


def test_a_long_chain_of_subclasses_is_climbed_once() -> None:
    chain = "".join(f"class C{n}(C{n - 1}):\n    def f{n}(self, x): return x\n" for n in range(1, 1500))
    text = "from torch import nn\nclass C0(nn.Module):\n    def forward(self, x): return x\n" + chain
    start = perf_counter()
    module = project({"chain.py": text})["chain.py"]
    assert module.class_family("chain:C1499") == "module"
    assert perf_counter() - start < 10  # a climb for each class took minutes


def test_a_cycle_of_bases_ends() -> None:
    files = {"a.py": "from b import B\nclass A(B): pass\n", "b.py": "from a import A\nclass B(A): pass\n"}
    modules = project(files, screened=False)
    assert modules["a.py"].class_family("a:A") == ""


def test_a_name_that_some_function_rebinds_is_not_its_import() -> None:
    module = project(
        {"main.py": "import torch\ndef f():\n    global torch\n    torch = None\ndef g():\n    return torch.zeros(1)\n"}
    )["main.py"]
    assert module.value(node(module, "torch.zeros(1)")).kind == "unknown"
