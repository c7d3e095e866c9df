"""Programs that tests drive: browsers, editors, shells.

Where one is missing, the tests that need it are left out, so that the suite runs with pip alone; with
`TORCHLINT_ALL_TESTS` set, as in `.ci/run`, they fail instead.
"""

from __future__ import annotations

import os
import shutil

import pytest


def program(*names: str) -> str:
    """The path of the first of these programs that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is not None:
        return found
    message = f"{' or '.join(names)} is not installed"
    if os.environ.get("TORCHLINT_ALL_TESTS"):
        pytest.fail(f"{message}, and TORCHLINT_ALL_TESTS asks for all tests")
    pytest.skip(message)
