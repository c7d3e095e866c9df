"""Repairs: small libcst edits of one statement or expression, and their verified, atomic application to files."""
