"""Runs torchlint's fixes on a device, and says whether they paid.

This is the only part of torchlint that imports torch and that executes code which it was not written with. `records`,
`results` and `verify_command` do not import torch: a measured row can be shown where torch is not installed.
"""
