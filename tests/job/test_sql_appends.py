"""The statements of SQL that append, and those that only look so: a table, each line through `how_it_appends`."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery.job import sql_appends
from airflow_recovery.job.appends import how_it_appends
from airflow_recovery.job.sql_appends import how_sql_appends

APPEND = (
    "INSERT INTO t SELECT 1",
    "INSERT INTO TABLE t VALUES (1)",
    "-- x\nINSERT INTO t SELECT 1",
    "/* a */ /* b */ insert into t select 1",
    "/* outer /* nested */ still */ INSERT INTO t SELECT 1",
    "INSERT /*+ COALESCE(1) */ INTO t SELECT 1",
    "INSERT -- c\n INTO t SELECT 1",
    "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
    "WITH a AS (SELECT ')' ) INSERT INTO t SELECT * FROM a",
    "FROM s INSERT INTO t SELECT * INSERT INTO u SELECT *",
    "FROM s INSERT OVERWRITE TABLE t SELECT * INSERT INTO u SELECT *",
    "set x=1; INSERT INTO t SELECT 1",
    "SELECT 1; INSERT INTO t SELECT 1;",
    "SELECT ';'; INSERT INTO t SELECT 1",
    "SELECT '--'; INSERT INTO t SELECT 1",
    "SELECT '/*'; INSERT INTO t SELECT 1",
    'SELECT "--"; INSERT INTO t SELECT 1',
    "SELECT `--` FROM x; INSERT INTO t SELECT 1",
    "BEGIN INSERT INTO t SELECT 1; END",
    "BEGIN IF x THEN INSERT INTO t SELECT 1; END IF; END",
    "LOAD DATA INPATH '/x' INTO TABLE t",
    "LOAD DATA LOCAL INPATH '/overwrite' INTO TABLE t",
    "/* overwrite */ LOAD DATA INPATH '/x' INTO TABLE t",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET t.n = n + s.n",
    "MERGE INTO db.t AS x USING s ON x.k=s.k WHEN MATCHED THEN UPDATE SET n = x.n || s.n",
    "MERGE INTO t USING s ON FALSE WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO t USING s ON 1 = 0 WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)",
    "MERGE WITH SCHEMA EVOLUTION INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
    "-- c\nMERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = t.n -- add\n + s.n",
    "WITH s AS (SELECT 1) MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = if(t.n is null, s.n, t.n + s.n)",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n=CASE WHEN t.n IS NULL THEN s.n ELSE t.n + s.n END",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET `n` = `t`.`n` + s.`n`",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET l = array_append(t.l, s.x)",
    "UPDATE t SET n = n + 1",
    "UPDATE t SET n = n * 2 WHERE k = 1",
    "UPDATE t SET n = - n",
    "UPDATE t AS x SET x.n = x.n - 1",
    "UPDATE t SET a = 1, n = coalesce(n, 0) + 1",
    "UPDATE t SET n = CASE WHEN k = 1 THEN n + 1 ELSE n END",
    "select 1; UPDATE t SET n = n + 1",
    "UPDATE t SET s = s || 'where'",
    "UPDATE t SET s = concat(s, ' set where ', 'x')",
    "UPDATE t SET f = NOT f",
    "UPDATE t SET n = (n) + 1",
    "UPDATE t SET n = ((n + (1)) * (2 + (3 + (4 * 1))))",
    "COPY INTO t FROM 's3://b' FILEFORMAT = CSV COPY_OPTIONS ('force' = 'true')",
    "COPY INTO t FROM @stage FORCE = TRUE",
    "ALTER TABLE t ADD PARTITION (d=1) LOCATION 'x'; INSERT INTO t VALUES (1)",
    "EXECUTE IMMEDIATE 'INSERT INTO t SELECT 1'",
    "EXPLAIN SELECT 1; INSERT INTO t SELECT 1",
    "INSERT INTO t BY NAME SELECT 1",
    "INSERT INTO t PARTITION (d='replace') SELECT 1",
    "INSERT INTO t SELECT replace(x,'a','b') FROM s",
    "INSERT INTO t SELECT 'replace where' FROM s",
    "INSERT INTO t(replace) SELECT 1",
    "insert\ninto\nt\nselect 1",
    "CREATE TABLE IF NOT EXISTS t (a int); INSERT INTO t VALUES (1)",
    "DELETE FROM t WHERE false; INSERT INTO t VALUES (1)",
    "(WITH a AS (SELECT 1) SELECT 1); INSERT INTO t SELECT 1",
    "INSERT INTO t TABLE s",
    "CACHE TABLE x AS SELECT 1; INSERT INTO t TABLE x",
    "insert into t select 1 where d = '?'; update t set n = n + 1 where d = '?'",
    "INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET n = t.n + excluded.n",
)
DO_NOT = (
    "INSERT OVERWRITE t SELECT 1",
    "INSERT OVERWRITE TABLE t PARTITION (d=1) SELECT * FROM s",
    "INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT 1",
    "INSERT INTO t REPLACE WHERE d=1 SELECT 1",
    "INSERT INTO t REPLACE USING (d) SELECT 1",
    "FROM s INSERT OVERWRITE TABLE t SELECT *",
    "SELECT 'insert into t'",
    "SELECT 'a; insert into t select 1'",
    'SELECT "; insert into t select 1"',
    "-- insert into t select 1\nSELECT 1",
    "/* ; insert into t */ SELECT 1",
    "LOAD DATA INPATH '/x' OVERWRITE INTO TABLE t",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO t USING s ON t.k=s.k AND t.n=s.n+1 WHEN MATCHED THEN UPDATE SET n = greatest(t.n, s.n)",
    "MERGE INTO t USING (SELECT k, n + 1 AS n FROM u) s ON t.k=s.k WHEN MATCHED THEN UPDATE SET n = s.n",
    "MERGE INTO t USING s ON t.k=s.k WHEN MATCHED THEN DELETE",
    "UPDATE t SET n = 1",
    "UPDATE t SET n = m + 1",
    "UPDATE t SET n = 'n + 1'",
    "UPDATE t SET n = coalesce(n, 0)",
    "UPDATE t SET n = 1 WHERE n = n + 0",
    "UPDATE t SET name = upper(name)",
    "SELECT n + 1 AS n FROM t",
    "COPY INTO t FROM 's3://b' FILEFORMAT = CSV",
    "SELECT `insert into` FROM t",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE TABLE t AS SELECT 1",
    "DELETE FROM t",
    "TRUNCATE TABLE t; SELECT 1",
    "CREATE VIEW v AS SELECT 'insert into t'",
    "WITH insert AS (SELECT 1) SELECT * FROM insert",
    "EXPLAIN INSERT INTO t SELECT 1",
    "select * from update",
    "SET x = insert into",
    "UPDATE t SET d = current_date() -- n = n + 1",
    "select 1 as `update`, n = n + 1 from t",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "INSERT INTO t VALUES (1) ON CONFLICT (k) DO NOTHING",
    "INSERT INTO t VALUES (1) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
    "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE n = 1",
)


def seen(statement: str, method: str = "sql") -> str | None:
    found: dict[str, Any] = {}
    exec(f"def vertex(spark):\n    spark.{method}({statement!r})", found)
    return how_it_appends(found["vertex"].__code__)


def test_fault_341_every_statement_that_appends_is_seen() -> None:
    assert [statement for statement in APPEND if seen(statement) is None] == []


def test_fault_341_no_statement_that_writes_once_is_taken_for_it() -> None:
    assert {statement: found for statement in DO_NOT if (found := seen(statement))} == {}


def test_fault_341_case_and_lines_decide_nothing() -> None:
    for statement in APPEND:
        if not any(mark in statement for mark in ("--", "'")):
            assert seen(statement.upper().replace(" ", "\n")), statement


def test_a_cursor_of_a_database_is_looked_at_too() -> None:
    assert seen("INSERT INTO ledger VALUES (1)", "execute") == "INSERT INTO"
    assert seen("INSERT INTO ledger VALUES (1)", "print") is None


def test_the_pieces_of_an_f_string_may_cut_a_string_in_two() -> None:
    def vertex(spark: Any, day: str, table: str) -> None:
        spark.sql(f"DELETE FROM seen WHERE day = '{day}'; INSERT INTO ledger SELECT * FROM {table}")

    def merging(spark: Any, day: str, table: str) -> None:
        spark.sql(
            f"MERGE INTO {table} t USING s ON t.k = s.k AND t.day = '{day}' WHEN MATCHED THEN UPDATE SET n = t.n + s.n"
        )

    assert how_it_appends(vertex.__code__) == "INSERT INTO"
    assert how_it_appends(merging.__code__) == "MERGE or UPDATE that adds to what is there"


@pytest.mark.parametrize(
    "text", ["'", '"', "`", "/*", "--", "insert into", "set", "merge into", "update t set", "(", "on"]
)
def test_a_text_that_is_no_statement_raises_nothing(text: str) -> None:
    for shape in (text, f"insert {text}", f"merge {text} into t on", f"update {text} set n = {text}"):
        how_sql_appends([shape])


@pytest.mark.control
def test_fault_341_control_by_its_first_words_alone_an_append_after_another_statement_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statement = "SET spark.x = 1; INSERT INTO ledger SELECT * FROM seen"
    assert seen(statement) == "INSERT INTO"
    monkeypatch.setattr(sql_appends, "_statements", lambda tokens: [tokens])
    assert seen(statement) is None
