"""The Spark settings of all DAGs of the overhead benchmarks: those of ``dags/flights_delays.py``."""

CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}
