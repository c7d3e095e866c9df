"""Runs a user's own script before and after the fixes, and compares them end to end."""
