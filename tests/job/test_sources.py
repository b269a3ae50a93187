from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery import FileSplit, FileSplits, files


@pytest.mark.parametrize("pattern", ["", "  ", None, ["s3://lake/*"]])
def test_a_pattern_is_a_text(pattern: object) -> None:
    with fails_with("argument-unfit", where="files()", argument="pattern"):
        files(pattern)  # type: ignore[arg-type]


def test_splits_are_a_sequence_of_files_with_their_spark_paths() -> None:
    listed = (FileSplit("s3://lake/a.csv", 3, "e1"), FileSplit("s3://lake/b.csv", 4, "e2"))
    splits = FileSplits(listed, ("s3a://lake/a.csv", "s3a://lake/b.csv"))
    assert splits.paths == ["s3a://lake/a.csv", "s3a://lake/b.csv"]
    assert list(splits) == list(listed)
    assert (len(splits), splits[0], splits[1:]) == (2, listed[0], listed[1:])


def test_a_path_is_for_one_file() -> None:
    with pytest.raises(ValueError, match="one path a file"):
        FileSplits((FileSplit("s3://lake/a.csv", 3, "e1"),), ())
