"""Who gives a command, for what is written into the journal."""

from __future__ import annotations

import getpass


def user_name() -> str:
    """The user's name, or that there is none, as in a container with a uid of its own."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "a user without a name"
