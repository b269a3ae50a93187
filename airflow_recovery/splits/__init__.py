"""A mode: regions whose source is read in batches of splits, each of which is committed by itself (``commit="split"``).

A *split* is one piece of what a source reads, such as a file (FLIP-27). An attempt that fails loses only the batches
that it had not committed yet; the next one adopts the others. Read in this order: `mode` (what is written into the
journal), `committed_batches` (what a later attempt may adopt), `loop` (the driver), `log` (who has which split, where
the subtasks pull them). What users see of it is in docs/splits.md.
"""
