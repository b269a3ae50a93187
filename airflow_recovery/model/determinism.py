"""What a user says of a result's rows, should its producer have to run again (docs/protocol.md#evaluation)."""

from __future__ import annotations

from enum import Enum
from typing import Literal


class Determinism(str, Enum):
    """Declared on a producer; all edges to its consumers inherit it. A vertex that says nothing has its job's.

    It decides two things: which finished consumers run again after the producer has, and whether several readers inside
    one region may each compute a pipelined vertex anew. It is no part of a fingerprint: a change of it runs nothing.
    """

    ALWAYS = "always"
    """Nothing is claimed of the rows. Consumers of what is made again run again. Inside a region, what several vertices
    read is written once to scratch."""

    VERIFY = "verify"
    """The rows should be the same, and that is checked: the result is written with a digest (of a user's own
    application it is taken afterwards), and consumers whose digests are equal keep their results. Inside a region
    nothing checks it, so scratch is used as with `ALWAYS`."""

    ASSUME = "assume"
    """Any finish will do, also one with other rows: consumers keep their results, unchecked. Inside a region each
    reader computes it anew, which is cheapest."""

    @property
    def is_verified(self) -> bool:
        """Results carry a digest of their rows."""
        return self is Determinism.VERIFY

    @property
    def is_recomputable(self) -> bool:
        """Several readers may each be given a computation of their own."""
        return self is Determinism.ASSUME


DeterminismLike = Determinism | Literal["always", "verify", "assume"]
"""How a user may write it."""
