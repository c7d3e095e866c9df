"""The parts of the language server by themselves: places in texts, loops that move, the process in the background."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lsprotocol import types

from torchlint.server.background import Background
from torchlint.server.live import Request
from torchlint.server.positions import Text
from torchlint.server.session import moved_loops
from torchlint.server.settings import ServerSettings, read_settings
from torchlint.source import Edit, spliced

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = st.text(st.sampled_from("ab\n\r\u2028\x0cé😋#"), max_size=40)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, TEXTS, ENCODINGS)
@example("a\r\n", "a\rb\n", "utf-16")
@example("\r\n", "\n", "utf-16")
@example("a\r\n", "ab\r\n", "utf-8")
def test_edits_make_one_text_of_another(old: str, new: str, encoding: str) -> None:
    text = Text(old, encoding)
    edits = [
        Edit(text.offset(edit.range.start), text.offset(edit.range.end), edit.new_text) for edit in text.edits_to(new)
    ]
    assert spliced(old, edits) == new


@given(TEXTS, ENCODINGS, st.data())
def test_every_character_has_a_place_and_every_place_a_character(
    content: str, encoding: str, data: st.DataObject
) -> None:
    text = Text(content, encoding)
    offset = data.draw(st.integers(0, len(content)))
    place = text.position(offset)
    # A place within `\r\n` or between the two is the end of its line.
    line_end = text.starts[place.line] + len(text.line(place.line))
    assert text.offset(place) == min(offset, line_end)
    line = text.line(place.line)[: offset - text.starts[place.line]]
    width = {"utf-8": 8, "utf-16": 16, "utf-32": 32}[encoding] // 8
    assert place.character * width == len(line.encode(f"{encoding}-le" if width > 1 else encoding))


@pytest.mark.parametrize("place", [types.Position(99, 0), types.Position(1, 99)])
def test_places_outside_mean_the_nearest_inside(place: types.Position) -> None:
    assert Text("ab\ncd😋").offset(place) == 6


def test_loops_are_found_again_where_lines_move() -> None:
    before = (("m:f", "for a in x:"), ("m:f", "for b in a:"), ("m:g", "while True:"))
    inserted = (("m:new", "for q in r:"), *before)
    assert moved_loops(frozenset({0, 2}), before, inserted) == {1, 3}
    renamed = (before[0], ("m:f", "for c in a:"), before[2])
    assert moved_loops(frozenset({1, 2}), before, renamed) == {1, 2}
    assert moved_loops(frozenset({0, 2}), before, before[1:]) == {1}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (None, ServerSettings()),
        ({"settings": {"torchlint": {"debounce": 7}}}, ServerSettings(debounce=7)),
        ({"torchlint": {"diagnosticMode": "workspace"}}, ServerSettings("workspace")),
    ],
)
def test_clients_wrap_settings_differently(options: object, settings: ServerSettings) -> None:
    assert read_settings(options) == (settings, "")


def test_one_wrong_setting_costs_only_itself() -> None:
    settings, problem = read_settings({"debounce": "soon", "diagnosticMode": "workspace"})
    assert settings == ServerSettings("workspace")
    assert "debounce" in problem


def test_the_process_that_reads_the_project_may_die(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    path = tmp_path / "net.py"
    path.write_text("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n", encoding="utf-8")
    request = Request(str(tmp_path), {str(path): path.read_bytes()}, False, False, None, True)

    async def session() -> None:
        background = Background()
        try:
            first = await background.ask(request, lambda done, total: None)
            assert first is not None
            assert first.files == ("net.py",)
            assert str(path) in first.linked
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
            assert await background.ask(request, lambda done, total: None) is None
            again = await background.ask(request, lambda done, total: None)
            assert again == first
        finally:
            background.close()

    asyncio.run(asyncio.wait_for(session(), 60))
