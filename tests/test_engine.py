"""One file: what its rules find becomes ordered, unique records with characters for columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_rules import QUIET_CODES, REGISTRY, SlowCall, parsed

from torchlint.diagnostics import Diagnostic, Location
from torchlint.engine import check_module, syntax_diagnostic, to_diagnostics
from torchlint.rule import Fix, Safety
from torchlint.source import SourceError, SourceFile


def diagnostics(text: str, build_edits: bool = False, name: str = "sample.py") -> list[Diagnostic]:
    module = parsed(text, name)
    return to_diagnostics(module.source, check_module(module, QUIET_CODES, REGISTRY).findings, build_edits)


def test_places_count_characters_from_one() -> None:
    (found,) = diagnostics("\tif é:\n\t\t日 = slow(1)  # ä\n".replace("\t", "", 1).replace("\t\t", "\t"))
    assert (found.location, found.end_location) == (Location(2, 6), Location(2, 13))
    assert (found.code, found.name, found.level, found.cell) == ("TL991", "slow-call", "warning", 0)
    assert found.url == "https://torchlint.readthedocs.io/rules/tl991/"


def test_a_definition_is_underlined_at_its_name() -> None:
    (found,) = diagnostics("@decorator\ndef bad(a,\n        b):\n    pass\n")
    assert (found.location, found.end_location) == (Location(2, 1), Location(2, 8))


def test_one_finding_for_each_line_and_code_the_leftmost() -> None:
    found = diagnostics("slow(); slow()\nslow(\n    slow(),\n)\n")
    assert [item.location for item in found] == [Location(1, 1), Location(2, 1), Location(3, 5)]


def test_findings_come_in_source_order_then_by_code() -> None:
    found = diagnostics("x = 1  # torchlint: ignore[TL991]\ndef bad(a=slow()): pass\n")
    assert [(item.code, item.location.column) for item in found] == [("TL001", 8), ("TL992", 1), ("TL991", 11)]


def test_edits_are_built_only_on_demand() -> None:
    text = "x = slow()\n"
    assert diagnostics(text)[0].fix is not None
    assert diagnostics(text)[0].fix.edits is None
    fix = diagnostics(text, build_edits=True)[0].fix
    assert fix is not None
    assert [(edit.content, edit.location, edit.end_location) for edit in fix.edits or ()] == [
        ("fast", Location(1, 5), Location(1, 9))
    ]


def test_a_fix_that_cannot_be_built_is_not_offered() -> None:
    module = parsed("slow()\n")
    finding = check_module(module, ["TL991"], REGISTRY).findings[0]
    refusing = Fix("never", Safety.SAFE, lambda: [][1])
    broken = SlowCall().finding(finding.node, finding.message, refusing)
    for build_edits in (True, False):
        assert to_diagnostics(module.source, [broken], build_edits)[0].fix is None


def test_a_rule_that_raises_costs_one_message_on_one_line() -> None:
    checked = check_module(parsed("slow()\n"), ["TL991", "TL993"], REGISTRY)
    assert [finding.rule.code for finding in checked.findings] == ["TL991"]
    assert checked.errors == ("internal error: TL993 on /project/sample.py: ValueError: two lines",)


def test_suppressions_are_not_called_unused_when_a_rule_failed() -> None:
    checked = check_module(parsed("x = 1  # torchlint: ignore[TL993]\n"), ["TL001", "TL993"], REGISTRY)
    assert checked.findings == ()


def test_a_screened_rule_is_skipped_where_its_words_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowCall, "screen", ("slow(", "sluggish"))
    assert len(diagnostics("slow()\n")) == 1
    monkeypatch.setattr(SlowCall, "screen", ("sluggish",))
    assert diagnostics("slow()\n") == []


def test_an_excerpt_holds_the_lines_around_but_no_blank_edges() -> None:
    (found,) = diagnostics("a = 1\n\n\nslow()\nb = 2\n")
    assert (found.excerpt.row, found.excerpt.lines) == (4, ("slow()", "b = 2"))


def test_notebook_places_count_inside_the_cell() -> None:
    sources = [("code", ["x = 1"]), ("markdown", ["slow()"]), ("code", ["y = 2\n", "slow()"])]
    cells = [{"cell_type": kind, "metadata": {}, "source": source} for kind, source in sources]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    (found,) = diagnostics(text, name="sample.ipynb")
    assert (found.cell, found.location) == (3, Location(2, 1))
    assert (found.excerpt.row, found.excerpt.lines) == (1, ("y = 2", "slow()"))


@pytest.mark.parametrize("text", ["x = (\n", "def f(:\n", "x = '\n", "a b", "if x:\n", "é = (]"])
def test_a_syntax_error_has_a_place_inside_the_text(text: str) -> None:
    source = SourceFile.from_text(Path("x.py"), text)
    with pytest.raises(SourceError) as caught:
        source.parse()
    found = syntax_diagnostic(REGISTRY["TL000"], caught.value, source)
    assert 1 <= found.location.row <= text.count("\n") + 1
    assert 1 <= found.location.column <= len(source.line(found.location.row)) + 1
