"""``make demo-approximate``: a chain of three streaming stages, two of which are killed while it runs."""
