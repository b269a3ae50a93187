"""The mode of a region that commits split by split (``commit="split"``)."""
