"""``make demo``: a real pipeline on real data fails, loses an intermediate result, and recovers region by region."""
