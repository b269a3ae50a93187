"""The watchdog while nothing is wrong: a script of the bare interpreter that waits at the end of a pipe.

Run by its path with ``-I -S``, without site packages and this package: one starts beside every region, and almost
always ends without having done anything. Where the writer died it becomes `airflow_recovery.driver.watchdog`.
"""

import os
import sys

if __name__ == "__main__":
    order = sys.stdin.buffer.readline()
    if order and sys.stdin.buffer.readline().strip() != b"done":
        # Handed on through a pipe as it came: it may hold a token. It fits into one, so that this does not block.
        reading, writing = os.pipe()
        os.write(writing, order)
        os.close(writing)
        os.dup2(reading, 0)
        os.execv(sys.executable, [sys.executable, "-m", "airflow_recovery.driver.watchdog"])
