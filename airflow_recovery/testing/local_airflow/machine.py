"""A machine that runs a worker, as far as one Linux can show several of them: by namespaces.

Each has its own name, its own process ids, and its own disk: at the paths of Airflow's home and of the DAG folder it
finds files that no other machine has. So a path or a process id that one machine tells another means something else
there, or nothing, as it does in a cluster. The network is the common one, but for the way to the API server, which can
be cut (`airflow_recovery.testing.local_airflow.link`). Logs alone are written to one folder, where the API server reads
them.

What it does not show: other versions of programs, another kernel, other addresses.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_recovery.testing.local_airflow.error import LocalAirflowError

ENTER = """
set -euo pipefail
name=$1 disk=$2 home=$3 dags=$4 scratch_bytes=$5
shift 5
echo "$name" >/proc/sys/kernel/hostname
mount --bind "$disk/hosts" /etc/hosts
mount --bind "$home/logs" "$disk/home/logs"
if [ -n "$scratch_bytes" ]; then mount -t tmpfs -o "size=$scratch_bytes" tmpfs "$disk/home/tmp"; fi
if [ -n "$dags" ]; then mount --bind "$disk/dags" "$dags"; fi
mount --rbind "$disk/home" "$home"
cd "$home"
"$@" || exit $?
"""
"""Run as the first process of the machine, which is to stay: it waits for those whose parents have died."""


class Machine:
    """``name`` is its host name. Its disk is below ``folder``, which is below ``home``: no other machine sees it.

    ``scratch_bytes``: its temporary folder has so much room, and not the disk's; it is empty at each start.
    ``env`` is added to the environment of what runs on it.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        home: Path,
        dags_folder: Path,
        env: Mapping[str, str] | None = None,
        scratch_bytes: int | None = None,
    ) -> None:
        self.name = name
        self.env = dict(env or {})
        self._disk = folder / name
        self._home = home
        self._dags_folder = dags_folder
        self._scratch_bytes = scratch_bytes

    @property
    def dags(self) -> Path:
        """Its copy of the DAG folder, as it is seen from outside."""
        if self._home in self._dags_folder.parents:
            return self._disk / "home" / self._dags_folder.relative_to(self._home)
        return self._disk / "dags"

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs ``command`` on it. With the process that this starts the whole machine ends."""
        unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        if os.geteuid() != 0:
            unshare.append("--map-root-user")
        dags = "" if self._home in self._dags_folder.parents else str(self._dags_folder)
        size = "" if self._scratch_bytes is None else str(self._scratch_bytes)
        return [
            *unshare,
            "bash",
            "-c",
            ENTER,
            "bash",
            self.name,
            str(self._disk),
            str(self._home),
            dags,
            size,
            *command,
        ]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """``env`` of Airflow's components, as it is on this machine. Nobody here is told where the database is."""
        hidden = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "XDG_CACHE_HOME")
        scratch = str(self._home / "tmp")
        return {
            **{key: value for key, value in env.items() if key not in hidden},
            "HOME": str(self._home),
            "TMPDIR": scratch,
            "SPARK_LOCAL_DIRS": scratch,
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            **self.env,
        }

    def prepare(self) -> None:
        """Give its disk what a deployment puts there: the DAGs, plugins and local settings as they are now.

        Raises `LocalAirflowError` where this system has no such machines.
        """
        if sys.platform != "linux" or shutil.which("unshare") is None:
            raise LocalAirflowError(
                "expected Linux with unshare (util-linux), which makes machines of workers, found none"
            )
        own_home = self._disk / "home"
        for name in ("logs", "tmp"):
            (own_home / name).mkdir(parents=True, exist_ok=True)
        hosts = Path("/etc/hosts")
        known = hosts.read_text() if hosts.exists() else ""
        (self._disk / "hosts").write_text(f"{known}\n127.0.0.1 {self.name}\n")
        copies = [(self._home / name, own_home / name) for name in ("config", "plugins")]
        for source, target in (*copies, (self._dags_folder, self.dags)):
            shutil.rmtree(target, ignore_errors=True)
            if source.is_dir():
                shutil.copytree(source, target)
