"""What the soak's DAGs compute."""
