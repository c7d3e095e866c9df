"""What rules can write into a file. Each function returns the edits of the smallest text that changes.

Comments, spacing, quotes and trailing commas survive; whatever the text does not allow raises `Unfixable`. libcst, which
builds the new code, is imported when the first edit is built.
"""

from torchlint.fixing.expressions import (
    drop_argument,
    drop_method_call,
    move_argument_into,
    replace_expression,
    set_argument,
)
from torchlint.fixing.loops import accumulate_then_convert, list_then_cat
from torchlint.fixing.splice import Unfixable
from torchlint.fixing.statements import decorate, insert_after, insert_before, wrap_in_with
from torchlint.source import Edit

__all__ = [
    "Edit",
    "Unfixable",
    "accumulate_then_convert",
    "decorate",
    "drop_argument",
    "drop_method_call",
    "insert_after",
    "insert_before",
    "list_then_cat",
    "move_argument_into",
    "replace_expression",
    "set_argument",
    "wrap_in_with",
]
