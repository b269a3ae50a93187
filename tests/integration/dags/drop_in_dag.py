"""Two existing applications with recovery: a managed output, and one at the user's own URI; then a publish."""

from __future__ import annotations

import os

from airflow.sdk import DAG
from existing import two_applications

LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

with DAG("existing", schedule=None):
    two_applications(LAKE, report="report.py", outputs={"report": f"{LAKE}/report"}, conn_id="submit")
