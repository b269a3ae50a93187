"""The number of rows that a Parquet file says it has."""

from __future__ import annotations

import io

from airflow_recovery.errors import ConfigurationError


def rows_in(body: bytes, path: str) -> int:
    """The rows by the footer of ``body``. Raises `ConfigurationError` without pyarrow, `ValueError` for no Parquet."""
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigurationError(
            "Expected pyarrow for --deep, found none: pip install airflow-recovery[spark]."
        ) from error
    try:
        return int(parquet.ParquetFile(io.BytesIO(body)).metadata.num_rows)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from error
