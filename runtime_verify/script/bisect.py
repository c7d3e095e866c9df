"""Which fix brought how much: versions of the project with some of its fixes, each measured against the original."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .fixes import Fix, Fixed, Selection, by_code, fix_once
from .run import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .fixes import Fixer
    from .project_copy import Snapshot


class Part(msgspec.Struct, frozen=True):
    """A version of the project with some of the fixes."""

    version: Version
    fixes: tuple[Fix, ...]


def parts_by_code(found: Snapshot, all_fixes: Fixed, selection: Selection, fixer: Fixer) -> list[Part]:
    """A version for each code. Where there is one code, its version would be that with all fixes: none is made."""
    codes = by_code(all_fixes.fixes)
    if len(codes) < 2:
        return []
    fixed = [(code, fixer(found, msgspec.structs.replace(selection, codes=(code,)))) for code in codes]
    return [Part(Version(_named(code, one.fixes), one.sources), one.fixes) for code, one in fixed if one.sources]


def parts_by_fix(found: Snapshot, fixes: Sequence[Fix]) -> list[Part]:
    """A version for each single fix; none where there is one fix. A fix that cannot be made alone has no version."""
    if len(fixes) < 2:
        return []
    fixed = [fix_once(found, fix) for fix in fixes]
    return [
        Part(Version(f"{one.fixes[0].code} at {one.fixes[0].place}", one.sources), one.fixes)
        for one in fixed
        if one.sources
    ]


def _named(code: str, fixes: Sequence[Fix]) -> str:
    return f"{code} ({len(fixes)} {'fix' if len(fixes) == 1 else 'fixes'})"
