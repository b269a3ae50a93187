"""Where a Spark Connect server listens, and whether one that knows our token answers there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    """``host`` and ``port`` of a server, and the token that it asks for."""

    host: str
    port: int
    token: str = field(repr=False)

    @property
    def target(self) -> str:
        """``host:port``: the part that may be shown."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """For `open_session`. Holds the token.

        Spark's client demands TLS, which the server does not speak, where it is told a ``token``. An unknown parameter
        it sends along with every call, and this one is what the server looks at.
        """
        return f"sc://{self.target}/;authorization=Bearer%20{self.token}"

    def connect(self) -> grpc.Channel | None:
        """An open channel to a server that accepts the token; `None` where there is none.

        While it is open, the server's keeper sees somebody connected. A server with another token is somebody else's,
        to which the port was given since.
        """
        return self._ask([("authorization", f"Bearer {self.token}")])

    def is_gone(self) -> bool:
        """Whether no server answers there that accepts the token."""
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

        channel = grpc.insecure_channel(self.target)
        try:
            channel.unary_unary(_SERVICE)(b"", timeout=ANSWER_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.INTERNAL:
                channel.close()
                return None
        return channel
