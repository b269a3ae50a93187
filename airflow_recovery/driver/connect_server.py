"""Connect to a run's own Spark Connect server, and to no other server at its address.

The server proves its identity by the key of its certificate before it gets the token.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_recovery.driver.connect_session import with_certificate

if TYPE_CHECKING:
    import grpc  # type: ignore[import-untyped]

CLIENT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE")
"""With any of these pyspark, and spark-submit, take a process and all that it starts for a client of a server."""
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The environment variable with the token that a server asks of its clients (Spark 4.0 and later)."""
ANSWER_TIMEOUT_S = 30.0
"""A server that does not even say "no" for so long is taken for dead: out of memory, or frozen."""

_SERVICE = "/spark.connect.SparkConnectService/Config"


@dataclass(frozen=True)
class ServerAddress:
    """``host`` and ``port`` of a server, the token that it asks for, and the certificate that it shows (DER).

    One without a certificate can't prove anything, and is not spoken to.
    """

    host: str
    port: int
    token: str = field(repr=False)
    certificate: bytes = field(repr=False)

    @property
    def target(self) -> str:
        """``host:port``: the part that may be shown."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """For `open_session`. Holds the token, and the certificate."""
        return with_certificate(f"sc://{self.target}/;use_ssl=true;token={self.token}", self.certificate)

    def connect(self) -> grpc.Channel | None:
        """An open channel to the server; `None` if it does not answer, or another one does.

        While it is open, the server's keeper sees somebody connected.
        """
        return self._ask([("authorization", f"Bearer {self.token}")])

    def is_gone(self) -> bool:
        """Whether the server does not answer there any more."""
        channel = self.connect()
        if channel is not None:
            channel.close()
        return channel is None

    def lets_strangers_in(self) -> bool:
        """Whether a server there answers who has no token."""
        channel = self._ask([])
        if channel is not None:
            channel.close()
        return channel is not None

    def _ask(self, metadata: list[tuple[str, str]]) -> grpc.Channel | None:
        """By a request that is empty, and so is refused for its content, but only after the token was looked at.

        By hand: the client's own messages would take a second to import.
        """
        import grpc

        if not self.certificate:
            return None
        roots = ssl.DER_cert_to_PEM_cert(self.certificate).encode()
        channel = grpc.secure_channel(self.target, grpc.ssl_channel_credentials(root_certificates=roots))
        try:
            channel.unary_unary(_SERVICE)(b"", timeout=ANSWER_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INTERNAL:
                channel.close()
                return None
        return channel
