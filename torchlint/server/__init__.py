"""The language server: diagnostics, quick fixes, hovers, in any editor that speaks the protocol.

`documents` holds what the editor shows, `session` judges it, `background` and `live` keep the facts of the other files
in a process of their own, `actions` and `pages` answer questions, `app` connects all that to pygls.
"""
