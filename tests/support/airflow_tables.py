"""Airflow's tables in a database of their own, for what reads and writes them in the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Airflow's tables, empty."""
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from sqlalchemy import create_engine

    import_all_models()
    engine = create_engine(f"sqlite:///{tmp_path_factory.mktemp('database')}/airflow.db")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()
