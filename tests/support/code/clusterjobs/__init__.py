"""Jobs that run on a cluster manager, and what they wait for."""
