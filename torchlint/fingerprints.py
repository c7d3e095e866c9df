"""What tells a finding from others while the lines around it move: its code, its file, and what its line says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchlint.diagnostics import Diagnostic


def content_of(finding: Diagnostic) -> str:
    """The line on which a finding stands, each run of white space as one blank; "" where there is no text."""
    index = finding.location.row - finding.excerpt.row
    lines = finding.excerpt.lines
    return " ".join(lines[index].split()) if 0 <= index < len(lines) else ""


class Fingerprints:
    """Gives each finding of a run a digest of its own. Equal lines of a file are told apart by their order."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def of(self, path: str, finding: Diagnostic) -> str:
        """The digest, in 32 hexadecimal digits, of the next finding of the file at a relative posix path."""
        import hashlib

        key = (finding.code, path, content_of(finding))
        self._seen[key] += 1
        text = "\0".join((*key, str(self._seen[key])))
        return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
