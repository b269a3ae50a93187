"""A Hive metastore as a child process on 127.0.0.1: the server in Spark's own jars, with its tables in Derby."""

from __future__ import annotations

import socket
from typing import Any

from airflow_recovery.testing.patience import wait_until
from airflow_recovery.testing.server_process import ServerProcess
from airflow_recovery.testing.spark_cluster import spark_home

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",  # Spark has no jar for that
}


class HiveMetastore(ServerProcess):
    """Its classes are Hive's, as Spark has them."""

    name = "hive-metastore"

    def _command(self) -> list[str]:
        settings = _SETTINGS | {"hive.metastore.warehouse.dir": (self.folder / "warehouse").absolute().as_uri()}
        rows = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
        (self.folder / "hive-site.xml").write_text(f"<configuration>{''.join(rows)}</configuration>")
        path = f"{self.folder}:{spark_home() / 'jars'}/*"
        main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        return ["java", "-Xmx256m", "-cp", path, main, "-p", str(self.port)]

    def _answers(self) -> bool:
        process = self._process
        assert process is not None
        try:
            wait_until(self._is_open, "an answer of the metastore", is_over=lambda: process.poll() is not None)
        except AssertionError:
            return False
        return True

    def _is_open(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def uri(self) -> str:
        """The address for its clients."""
        return f"thrift://127.0.0.1:{self.port}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """One call of a method of the metastore's."""
        from hive_metastore.ThriftHiveMetastore import Client  # type: ignore[import-untyped]
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
        from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
        from thrift.transport.TTransport import TBufferedTransport  # type: ignore[import-untyped]

        transport = TBufferedTransport(TSocket("127.0.0.1", self.port))
        transport.open()
        try:
            return getattr(Client(TBinaryProtocol(transport)), method)(*arguments)
        finally:
            transport.close()
