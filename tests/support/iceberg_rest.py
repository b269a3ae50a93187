"""A REST catalog as a child process on 127.0.0.1: the server of Iceberg's own tests, with its tables in a folder."""

from __future__ import annotations

from pathlib import Path

from airflow_recovery.testing.server_process import ServerProcess
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.jars import fetched_jars


class IcebergRest(ServerProcess):
    """Its classes are Iceberg's (`scripts/iceberg-rest-ivy.xml`), and those of Hadoop and Jackson Spark's."""

    name = "iceberg-rest"

    def _command(self) -> list[str]:
        jars = fetched_jars("iceberg-rest", "a REST catalog of Iceberg's", "iceberg-open-api", "--drill")
        path = f"{jars}/*:{spark_home() / 'jars'}/*"
        return ["java", "-Xmx256m", "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]

    def _server_environment(self) -> dict[str, str]:
        return {
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.hadoop.HadoopCatalog",
            "CATALOG_WAREHOUSE": (Path(self.folder) / "warehouse").absolute().as_uri(),
            "CATALOG_REST_PORT": str(self.port),
        }

    @property
    def properties(self) -> dict[str, str]:
        """Pyiceberg's, of a catalog that is this server."""
        return {"type": "rest", "uri": self.endpoint_url}
