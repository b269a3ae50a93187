"""Folders that tests of more than one room name."""

from __future__ import annotations

from pathlib import Path

CODE = Path(__file__).parent / "code"
"""Jobs' packages and drop-in applications: on the Python path of the tests, and of whom a test gives it."""
