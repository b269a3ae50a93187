"""Requests to the API server of a local Airflow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.settings import Login
from airflow_recovery.testing.patience import HANG_S

if TYPE_CHECKING:
    import requests


class ApiClient:
    """Speaks to the API server at ``url``, as ``admin`` unless told otherwise. Tokens are fetched once."""

    def __init__(self, url: str, admin: Login) -> None:
        self.url = url
        self.admin = admin
        self._http: requests.Session | None = None
        self._tokens: dict[str, str] = {}

    def request(
        self, method: str, path: str, body: object = None, *, user: Login | None = None, anonymous: bool = False
    ) -> requests.Response:
        """One request as ``user`` (default: admin), whatever it answers. ``path`` begins at the server's root.

        Repeated while the database was locked: nothing was done then.
        """
        headers = {} if anonymous else {"Authorization": f"Bearer {self.token(user or self.admin)}"}
        url = f"{self.url}{path}"
        deadline = time.monotonic() + HANG_S
        while True:
            response = self._session().request(method, url, json=body, headers=headers, timeout=HANG_S)
            is_locked = response.status_code == 500 and "Database error" in response.text
            if not is_locked or time.monotonic() > deadline:
                return response

    def api(self, method: str, path: str, body: object = None) -> Any:
        """One request to ``/api/v2<path>`` as admin; its JSON. Raises `LocalAirflowError` on any 4xx or 5xx."""
        response = self.request(method, f"/api/v2{path}", body)
        if not response.ok:
            raise LocalAirflowError(f"{method} {path} answered {response.status_code}: {response.text[:2000]}")
        return response.json() if response.content else None

    def token(self, user: Login) -> str:
        """A token for ``user``, fetched at the first call and then kept."""
        if user.user not in self._tokens:
            response = self._session().post(
                f"{self.url}/auth/token", json={"username": user.user, "password": user.password}, timeout=HANG_S
            )
            if not response.ok:
                raise LocalAirflowError(f"no token for {user.user}: {response.status_code} {response.text[:500]}")
            self._tokens[user.user] = response.json()["access_token"]
        return self._tokens[user.user]

    def health(self) -> dict[str, Any] | None:
        """What the API server says of the components; `None` where it does not answer (yet)."""
        import requests

        try:
            response = self._session().get(f"{self.url}/api/v2/monitor/health", timeout=HANG_S)
        except requests.RequestException:
            return None
        return dict(response.json()) if response.ok else None

    def close(self) -> None:
        """Close the connection. A later request opens another one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _session(self) -> requests.Session:
        if self._http is None:
            import requests

            self._http = requests.Session()
            self._http.trust_env = False  # a proxy has no business on 127.0.0.1
            # A server that is killed, or that fails inside, drops connections that are kept open.
            self._http.headers["Connection"] = "close"
        return self._http
