"""The SDK's session and clients, as light as they can be: every process makes them, and a short one feels 50 ms.

botocore alone, without boto3 around it: its clients are the same, and boto3's import brings a transfer manager and
resources that nobody here uses.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_recovery.store.s3_errors import is_cured_by_new_credentials
from airflow_recovery.store.s3_listing import read_answers_fast

if TYPE_CHECKING:
    import boto3.session
    import botocore.session
    from mypy_boto3_s3 import S3Client

    AnySession = boto3.session.Session | botocore.session.Session

T = TypeVar("T")

_TOKEN = re.compile(r"(x-amz-security-token['\"]?:\s*(?:b?['\"])?)[^'\"\s,}]+", re.IGNORECASE)


class _WithoutTokens(logging.Filter):
    """Masks the session token of a role in the debug log of botocore: Airflow's masker does not know it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record. It is always logged."""
        text = record.getMessage()
        masked = _TOKEN.sub(r"\1***", text)
        if masked != text:
            record.msg, record.args = masked, None
        return True


for _name in ("botocore.auth", "botocore.endpoint"):
    logging.getLogger(_name).addFilter(_WithoutTokens())

_SERVICE = "s3"
SERVICES = (_SERVICE, "sts", "sso", "sso-oidc", "signin")
"""S3, and those that botocore asks for the credentials of a role, a web identity, or somebody who has logged in."""


class S3Clients:
    """The clients of one endpoint with one set of credentials, for all stores there. For many threads.

    Credentials come from ``session`` (boto3's or botocore's), else from botocore's own chain (environment, profile,
    role). Both renew those of a role before they end. Credentials that the server refuses as expired are fetched anew
    once for each request that is refused: by ``renew``, or by the chain. Makes nothing before it is asked for.
    """

    def __init__(
        self,
        session: AnySession | None,
        *,
        renew: Callable[[], AnySession] | None = None,
        endpoint_url: str | None,
        region_name: str | None,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 30.0,
        max_connections: int = 64,
    ) -> None:
        self._session = session
        self._renew = renew or (new_session if session is None else None)
        self._endpoint_url = endpoint_url
        self._region_name = region_name
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._by_attempts: dict[int, S3Client] = {}

    def sending(self, attempts: int) -> S3Client:
        """The client that sends a request at most ``attempts`` times."""
        with self._lock:  # clients are thread-safe, the session that makes them is not
            return self._client(attempts)

    def ask(self, attempts: int, request: Callable[[S3Client], T]) -> T:
        """What ``request`` returns. Where the credentials were refused as expired, once more with new ones.

        That is safe for every request: one that is refused for its credentials has had no effect.
        """
        client = self.sending(attempts)
        try:
            return request(client)
        except Exception as error:
            if self._renew is None or not is_cured_by_new_credentials(error):
                raise
        return request(self._renewed(attempts, client, self._renew))

    def _renewed(self, attempts: int, expired: S3Client, renew: Callable[[], AnySession]) -> S3Client:
        """A client with new credentials: of many threads whose requests were refused, the first fetches them."""
        with self._lock:
            if self._by_attempts.get(attempts) is expired:
                self._session = renew()
                self._by_attempts.clear()
            return self._client(attempts)

    def _client(self, attempts: int) -> S3Client:
        if attempts not in self._by_attempts:
            self._by_attempts[attempts] = self._new_client(attempts)
        return self._by_attempts[attempts]

    def _new_client(self, attempts: int) -> S3Client:
        from botocore.config import Config

        is_custom = bool(
            self._endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        )
        # Servers other than AWS rarely have virtual hosts, and not all know the newer checksum headers.
        needed_only: Any = {"request_checksum_calculation": "when_required"} if is_custom else {}
        config = Config(
            connect_timeout=self._connect_timeout_s,
            read_timeout=self._read_timeout_s,
            max_pool_connections=self._max_connections,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": "path" if is_custom else "auto"},
            **needed_only,
        )
        if self._session is None:
            self._session = new_session()
        config = config.merge(Config(**_named(self._session)))
        # boto3's own client() only adds its user agent to botocore's.
        create: Any = getattr(self._session, "create_client", None) or getattr(self._session, "client")  # noqa: B009
        client: S3Client = create(
            _SERVICE, endpoint_url=self._endpoint_url, region_name=self._region_name, config=config
        )
        read_answers_fast(client)
        return client


def new_session(
    access_key: str | None = None, secret_key: str | None = None, token: str | None = None
) -> botocore.session.Session:
    """A session for clients of S3 alone, with these credentials, else with botocore's own chain."""
    import botocore.session

    session = botocore.session.Session()
    if access_key and secret_key:
        session.set_credentials(access_key, secret_key, token)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


def read_service() -> None:
    """Import the SDK and read its description of S3, for all sessions of this process and of those that it forks."""
    S3Clients(new_session("none", "none"), endpoint_url=None, region_name="us-east-1").sending(1)


def _named(session: AnySession) -> dict[str, Any]:
    """The name under which clients of ``session`` send: the SDK would put it together anew for each request.

    That is a tenth of the time of one. Nothing where somebody has given the application an id, which stands in it.
    """
    own: Any = session
    if not hasattr(own, "user_agent") or own.get_config_variable("user_agent_appid"):  # boto3's own has neither
        return {}
    return {"user_agent": own.user_agent()}


@cache
def _loader(data_path: str | None) -> Any:
    """What has read the SDK's description of S3: one for all sessions of the process, a client of each costs 15 ms."""
    from botocore.loaders import create_loader

    loader: Any = create_loader(data_path)
    # To be sure that S3 is a service, it would read the folders of all 400, once for each kind of file.
    loader.list_available_services = lambda type_name: list(SERVICES)
    return loader
