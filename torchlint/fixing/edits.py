"""What rules can write into a file. Each function returns the edits of the smallest text that changes.

Comments, spacing, quotes and trailing commas survive; whatever the text does not allow raises `Unfixable`. libcst,
which builds the new code, is imported when the first edit is built.
"""

from torchlint.fixing.accumulation import accumulate_then_convert
from torchlint.fixing.expressions import (
    drop_argument,
    drop_method_call,
    move_argument_into,
    replace_expression,
    set_argument,
)
from torchlint.fixing.growth import list_then_cat
from torchlint.fixing.splice import Unfixable
from torchlint.fixing.statements import (
    decorate,
    drop_statement,
    insert_after,
    insert_before,
    move_into_statement,
    wrap_in_with,
)
from torchlint.source import Edit

__all__ = [
    "Edit",
    "Unfixable",
    "accumulate_then_convert",
    "decorate",
    "drop_argument",
    "drop_method_call",
    "drop_statement",
    "insert_after",
    "insert_before",
    "list_then_cat",
    "move_argument_into",
    "move_into_statement",
    "replace_expression",
    "set_argument",
    "wrap_in_with",
]
