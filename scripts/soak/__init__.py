"""Hours of a real Airflow, Spark and S3 that are disturbed every half minute, and checked at each pause."""
