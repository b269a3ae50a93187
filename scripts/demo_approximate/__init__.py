"""``make demo-approximate``: a chain of three streaming regions, two of which are killed while it runs."""
