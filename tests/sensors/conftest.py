import sys
from pathlib import Path

# `published.py`, a run's journal in a folder, is shared with the tests of the hooks.
sys.path.insert(0, str(Path(__file__).parent.parent / "hooks"))
