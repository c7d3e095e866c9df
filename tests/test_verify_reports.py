"""Measured rows in every format: complete, and harmless whatever the workloads and their machine have to say."""

from __future__ import annotations

import io
import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from torchlint.runtime_verify.progress import VerifyProgress
from torchlint.runtime_verify.records import (
    Deviation,
    Environment,
    Failure,
    FailureKind,
    Measurement,
    Point,
    Policy,
    Row,
    Series,
    Sighting,
    Sweep,
    Table,
    Timing,
    Unit,
    Values,
    Verdict,
)
from torchlint.runtime_verify.reports import FORMATS, render, wording
from torchlint.runtime_verify.reports.escaping import in_markdown, inline
from torchlint.runtime_verify.reports.json import parse_json

HOSTILE = [
    "[red]text[/red] [link=https://example.org]x[/link] :boom:",
    "<script>alert('1')</script><img src=x onerror=alert(1)>\"'&amp;",
    "a | b `c` **d** ![e](https://example.org/f.png) [g](javascript:h) <i>j</i> ~~k~~ @someone #1 $l$",
    "::error file=a,line=1::message",
    "x ::set-output name=a::b ##[error]c ##vso[task.complete]d",
    "\x1b[31mred\x1b]0;title\x07 \u202eevil\u2066",
    "# heading",
    "- item",
    "1. item",
    "    code",
    "</pre></details></main>-->]]>",
    "```\nfence\n::warning::after a newline\n```",
]


def environment(text: str = "a CPU") -> Environment:
    return Environment(
        device="cpu",
        device_name=text,
        torch="2.13.0",
        python="3.11.7",
        torchlint="0.1.0",
        cpu=text,
        cores=2,
        threads=1,
        platform=text,
        gpus=1,
        cuda="13.0",
        driver=text,
        commit="0123abc",
    )


def timing(ratio: float = 1.25) -> Timing:
    before, after = (0.0125 * ratio,) * 30, (0.0125,) * 30
    return Timing(before, after, ratio, ratio * 0.95, ratio * 1.05, before[0], after[0])


def row(text: str = "plain words", verdict: Verdict = Verdict.FASTER, code: str = "TL101") -> Row:
    return Row(
        code=code,
        name="sync-in-loop",
        verdict=verdict,
        reason=text,
        measured="2026-01-02T03:04:05Z",
        workload=text,
        claim=text,
        safety="unsafe",
        values=Values(Policy.TOLERANCE, 42, 0.5, 1e-5, 1e-6, (Deviation(text, text, 0.5),), text),
        timing=timing(),
        measurements=(
            Measurement("host_syncs", text, Unit.COUNT, 31, 1, text, claimed=True),
            Measurement("peak_memory", "peak memory", Unit.BYTES, 3 * 2**20, 2**20, "operators"),
        ),
        failure=Failure(FailureKind.CRASHED, text, "after", text),
        notes=(text,),
        diff=f"--- a\n+++ b\n@@ -1 +1 @@\n-{text}\n+{text}\n",
    )


def sweep(text: str = "a sweep") -> Sweep:
    points = tuple(Point(size, 0.001 * size, 0.0009 * size, 0.0012 * size) for size in (1, 2, 3))
    return Sweep("cat", "TL203", text, text, (Series(text, points), Series("other", points[:2])), "now", text, (text,))


def table(text: str = "plain words") -> Table:
    sightings = (
        Sighting("bias-before-norm", "TL501", text, 12, text, text, 3),
        Sighting("grads-set-to-zero", "TL405", "net.py", 3, "", "zeros", 2),
        Sighting("create-then-copy", "TL201", "net.py", 7, text, "", 0, "needs a GPU"),
    )
    return Table(environment(text), "2026-01-02T03:04:05Z", (row(text),), (sweep(text),), sightings, (text,))


# what every format says


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_what_was_measured(form: str) -> None:
    text = render(table(), form, width=400)
    for fact in ("TL101", "sync-in-loop", "faster", "0123abc", "13.0", "plain words", "2026-01-02T03:04:05Z", "net.py"):
        assert fact in text
    assert text.endswith("\n")
    if form != "json":
        for fact in ("1.25x (1.19 to 1.31)", "31 to 1", "1 of 42 differ", "crashed, after the fix", "needs a GPU"):
            assert fact in text
        assert "1 place seen by both, 1 disagreement, 1 that one side could not see" in text


def test_an_unknown_format_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="table, json, markdown, html"):
        render(table(), "yaml")


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_in_which_nothing_was_measured_renders(form: str) -> None:
    assert "a CPU" in render(Table(environment(), "now"), form)
    bare = Row("TL301", "loader-without-workers", Verdict.NOT_MEASURED_HERE, "needs a GPU", "now")
    assert "not measured here" in render(Table(environment(), "now", (bare,)), form)


def test_every_verdict_has_a_meaning_and_all_are_in_the_page() -> None:
    assert set(wording.MEANINGS) == set(Verdict)
    page = render(table(), "html")
    for verdict in Verdict:
        assert f"<dt>{verdict.value}</dt>" in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (40, Unit.COUNT, "40"),
        (12345, Unit.COUNT, "12,345"),
        (2.5, Unit.COUNT, "2.5"),
        (1023, Unit.BYTES, "1023 B"),
        (1.5 * 2**20, Unit.BYTES, "1.5 MiB"),
        (0.01234, Unit.SECONDS, "12.3 ms"),
        (123.4, Unit.SECONDS, "123 s"),
        (4.5e-6, Unit.SECONDS, "4.5 \u00b5s"),
        (3e-9, Unit.SECONDS, "3 ns"),
        (0, Unit.SECONDS, "0 s"),
    ],
)
def test_numbers_have_their_unit(value: float, unit: Unit, text: str) -> None:
    assert wording.amount(value, unit) == text


def test_amounts_that_round_to_the_same_keep_all_their_digits() -> None:
    fell = Measurement("bytes_allocated", "allocated", Unit.BYTES, 25_300_000, 25_290_000, "operators", claimed=True)
    assert wording.mechanism(fell) == "allocated 25,300,000 B to 25,290,000 B"
    same = Measurement("bytes_allocated", "allocated", Unit.BYTES, 2**20, 2**20, "operators")
    assert wording.mechanism(same) == "allocated 1 MiB to 1 MiB"


def test_the_sum_of_the_verdicts_counts_each() -> None:
    rows = [row(), row(verdict=Verdict.SLOWER), row(verdict=Verdict.FASTER)]
    assert wording.summary(rows) == "3 rows: 2 faster, 1 slower"


# JSON


@pytest.mark.parametrize("text", HOSTILE)
def test_json_gives_back_the_records(text: str) -> None:
    assert parse_json(render(table(text), "json")) == table(text)


@given(st.text(), st.floats(allow_nan=False))
@settings(max_examples=60, deadline=None)
def test_json_gives_back_any_text_and_number(text: str, number: float) -> None:
    values = Values(Policy.BITWISE, 1, number, deviations=(Deviation(text, text, number),))
    measured = Table(environment(), "now", (Row("TL101", "n", Verdict.DIFFERS, text, "now", values=values),))
    assert parse_json(render(measured, "json")) == measured


def test_json_keeps_what_is_no_number_and_what_is_no_text() -> None:
    values = Values(Policy.BITWISE, 1, math.nan)
    text = render(
        Table(environment(), "now", (Row("TL1", "n", Verdict.DIFFERS, "\udcff", "now", values=values),)), "json"
    )
    (again,) = parse_json(text).rows
    assert again.values is not None
    assert math.isnan(again.values.largest)
    assert again.reason == "\\udcff"


# the terminal


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_gets_text_and_no_commands(text: str, color: bool) -> None:
    shown = render(table(text), "table", color=color, width=100)
    styles = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert ("\x1b" in shown) == color
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u2066]", styles)
    assert not re.search(r"^\s*(::|##\[|##vso\[)", styles, re.MULTILINE)
    if "[red]" in text:
        assert "[red]text[/red]" in styles
        assert ":boom:" in styles


def test_without_color_there_is_no_escape_and_no_drawing() -> None:
    assert render(table(), "table").isascii()


# Markdown


def markdown_elements(text: str) -> tuple[set[str], list[str]]:
    """The kinds of elements that Markdown makes of a text, and the texts of the table cells in it."""
    tokens = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"]).parse(text)
    kinds, cells = set(), []
    for before, token in zip([None, *tokens], tokens, strict=False):
        kinds.add(token.type)
        kinds.update(child.type for child in token.children or ())
        if before is not None and before.type == "td_open":
            cells.append("".join(child.content for child in token.children or ()))
    return kinds, cells


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_texts_as_they_are(text: str) -> None:
    rendered = render(table(text), "markdown")
    kinds, cells = markdown_elements(rendered)
    assert not kinds & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
        "em_open",
        "s_open",
        "code_inline",
        "code_block",
    }
    assert "hr" not in kinds
    assert inline(text).replace("\\::", "::").replace("\\##", "##").strip() in cells
    assert not re.search(r"^\s*(::|##\[|##vso\[)", rendered, re.MULTILINE)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_one_cell_of_markdown(text: str) -> None:
    kinds, cells = markdown_elements(f"| a | b |\n| --- | --- |\n| {in_markdown(text)} | end |\n")
    assert len(cells) == 2
    assert cells[1] == "end"
    assert kinds <= {
        *(f"{part}_{side}" for part in ("table", "thead", "tbody", "tr", "th", "td") for side in ("open", "close")),
        *("inline", "text", "text_special"),
    }


def test_a_diff_that_holds_fences_stays_in_its_own() -> None:
    tokens = MarkdownIt("commonmark").parse(render(table("````\n# not a heading\n````"), "markdown"))
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    assert not any(heading.startswith("not a heading") for heading in headings)


# HTML


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_shows_texts_as_they_are(text: str) -> None:
    pytest.importorskip("matplotlib")
    rendered = render(table(text), "html")
    page, plain = Page(rendered), Page(render(table(), "html"))
    assert page.open == []
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert inline(text).replace("\\::", "::").replace("\\##", "##") in page.text
    assert not re.search(r"^\s*(::|##\[|##vso\[)", rendered, re.MULTILINE)


def test_a_page_needs_nothing_else_and_runs_nothing() -> None:
    page = Page(render(table(), "html"))
    assert not {"script", "link", "iframe", "object", "embed", "form"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:image/svg+xml;base64,") or name not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    style = page.text
    assert "@import" not in style
    assert "url(" not in style


def test_a_page_has_its_plots_in_light_and_dark() -> None:
    page = Page(render(table(), "html"))
    pictures = [attributes for tag, attributes in page.elements if tag in ("img", "source")]
    assert len(pictures) == 4
    assert sum("dark" in (attributes.get("media") or "") for attributes in pictures) == 2
    assert all(attributes.get("alt") for tag, attributes in page.elements if tag == "img")


# progress


def test_progress_is_a_line_for_each_step_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with VerifyProgress(2, stream=stream) as progress:
        progress.begin("TL101 sync-in-loop")
        progress.begin("::error::[red]\x1b[1m")
    assert stream.getvalue() == "[1/2] TL101 sync-in-loop\n[2/2] \\::error::[red]\\x1b[1m\n"


def test_progress_that_nobody_wants_writes_nothing() -> None:
    stream = io.StringIO()
    with VerifyProgress(1, wanted=False, stream=stream) as progress:
        progress.begin("TL101")
    assert stream.getvalue() == ""


def test_progress_is_a_bar_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with VerifyProgress(3, stream=stream) as progress:
        progress.begin("TL203 [red]cat[/red]")
        progress.begin("TL301")
    text = stream.getvalue()
    assert "\x1b[" in text
    assert "3/3" in text
