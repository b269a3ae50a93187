"""Which settings of Spark belong to a fingerprint: all, but for those that are known not to change rows.

`DO_NOT_CHANGE_ROWS` has a reason for each. A setting that is not in that table counts: a setting of a later Spark, of a
connector or of your own may change the rows. The table was made from the settings of Spark 4.2 (`SQLConf` has 751), and
from the properties of Hadoop 3.4 and Hive 2.3, which are settings that begin with ``spark.hadoop.``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_recovery.job import configuration_files
from airflow_recovery.job.configuration_files import site_files, site_settings
from airflow_recovery.locations import schemes


def _of_stores() -> tuple[str, ...]:
    """What the settings of each known object store begin with."""
    return tuple(sorted({name for scheme in schemes().values() for name in scheme.spark_settings}))


DO_NOT_CHANGE_ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "How much memory, how many cores and which processes an application gets",
        (
            "spark.driver.cores",
            "spark.driver.maxResultSize",
            "spark.driver.memory",
            "spark.driver.memoryOverhead",
            "spark.driver.memoryOverheadFactor",
            "spark.dynamicAllocation.",
            "spark.executor.cores",
            "spark.executor.heartbeatInterval",
            "spark.executor.instances",
            "spark.executor.memory",
            "spark.executor.memoryOverhead",
            "spark.executor.memoryOverheadFactor",
            "spark.cores.max",
            "spark.memory.",
            "spark.task.cpus",
            "spark.task.maxFailures",
        ),
    ),
    (
        "Where and when tasks are scheduled, and how often they are tried",
        (
            "spark.excludeOnFailure.",
            "spark.locality.",
            "spark.scheduler.",
            "spark.speculation",
            "spark.speculation.",
            "spark.stage.",
        ),
    ),
    (
        "How bytes travel between the processes of an application, and lie on their disks",
        (
            "spark.broadcast.",
            "spark.checkpoint.compress",
            "spark.cleaner.",
            "spark.decommission.",
            "spark.io.",
            "spark.kryo.",
            "spark.kryoserializer.",
            "spark.local.dir",
            "spark.network.",
            "spark.rdd.compress",
            "spark.reducer.",
            "spark.rpc.",
            "spark.serializer",
            "spark.serializer.",
            "spark.shuffle.",
            "spark.storage.",
            "spark.unsafe.",
        ),
    ),
    (
        "Logs, pages and measurements of an application",
        (
            "spark.eventLog.",
            "spark.extraListeners",
            "spark.history.",
            "spark.log.",
            "spark.logConf",
            "spark.metrics.",
            "spark.ui.",
            "spark.sql.debug.maxToStringFields",
            "spark.sql.event.",
            "spark.sql.maxMetadataStringLength",
            "spark.sql.maxPlanStringLength",
            "spark.sql.planChangeLog.",
            "spark.sql.queryExecutionListeners",
            "spark.sql.redaction.",
            "spark.sql.streaming.metricsEnabled",
            "spark.sql.ui.",
        ),
    ),
    (
        "Who may see and stop an application, and how its processes know each other",
        (
            "spark.acls.",
            "spark.admin.",
            "spark.authenticate",
            "spark.authenticate.",
            "spark.kerberos.",
            "spark.modify.acls",
            "spark.modify.acls.groups",
            "spark.redaction.",
            "spark.ssl.",
            "spark.ui.view.acls",
        ),
    ),
    (
        "Where an application runs, and what it is called there",
        (
            "spark.app.name",
            "spark.driver.bindAddress",
            "spark.driver.host",
            "spark.driver.port",
            "spark.master",
            "spark.port.maxRetries",
            "spark.submit.deployMode",
            "spark.kubernetes.allocation.",
            "spark.kubernetes.authenticate.",
            "spark.kubernetes.container.image.pullPolicy",
            "spark.kubernetes.container.image.pullSecrets",
            "spark.kubernetes.context",
            "spark.kubernetes.driver.annotation.",
            "spark.kubernetes.driver.label.",
            "spark.kubernetes.driver.limit.cores",
            "spark.kubernetes.driver.pod.name",
            "spark.kubernetes.driver.request.cores",
            "spark.kubernetes.executor.annotation.",
            "spark.kubernetes.executor.label.",
            "spark.kubernetes.executor.limit.cores",
            "spark.kubernetes.executor.podNamePrefix",
            "spark.kubernetes.executor.request.cores",
            "spark.kubernetes.namespace",
            "spark.kubernetes.node.selector.",
            "spark.kubernetes.driver.node.selector.",
            "spark.kubernetes.executor.node.selector.",
            "spark.kubernetes.submission.",
            "spark.kubernetes.trust.certificates",
            "spark.yarn.am.cores",
            "spark.yarn.am.memory",
            "spark.yarn.am.memoryOverhead",
            "spark.yarn.maxAppAttempts",
            "spark.yarn.priority",
            "spark.yarn.queue",
            "spark.yarn.stagingDir",
            "spark.yarn.submit.",
            "spark.yarn.tags",
        ),
    ),
    (
        "How a store is reached: endpoints, credentials, connections, pauses. The places are in the fingerprint",
        _of_stores(),
    ),
    (
        "Which of several plans with equal rows Spark takes",
        (
            "spark.default.parallelism",
            "spark.sql.adaptive.",
            "spark.sql.autoBroadcastJoinThreshold",
            "spark.sql.broadcastExchange.",
            "spark.sql.broadcastTimeout",
            "spark.sql.bucketing.coalesceBucketsInJoin.",
            "spark.sql.cartesianProductExec.",
            "spark.sql.cbo.",
            "spark.sql.codegen.",
            "spark.sql.constraintPropagation.",
            "spark.sql.defaultSizeInBytes",
            "spark.sql.exchange.reuse",
            "spark.sql.execution.broadcastHashJoin.",
            "spark.sql.execution.reuseSubquery",
            "spark.sql.files.maxPartitionBytes",
            "spark.sql.files.maxPartitionNum",
            "spark.sql.files.minPartitionNum",
            "spark.sql.files.openCostInBytes",
            "spark.sql.join.preferSortMergeJoin",
            "spark.sql.leafNodeDefaultParallelism",
            "spark.sql.limit.",
            "spark.sql.maxBroadcastTableSize",
            "spark.sql.maxSinglePartitionBytes",
            "spark.sql.objectHashAggregate.",
            "spark.sql.optimizer.dynamicPartitionPruning.",
            "spark.sql.optimizer.expression.nestedPruning.",
            "spark.sql.optimizer.inSetConversionThreshold",
            "spark.sql.optimizer.inSetSwitchThreshold",
            "spark.sql.optimizer.maxIterations",
            "spark.sql.optimizer.nestedSchemaPruning.",
            "spark.sql.optimizer.runtime.",
            "spark.sql.optimizer.runtimeFilter.",
            "spark.sql.optimizer.serializer.nestedSchemaPruning.",
            "spark.sql.optimizer.windowGroupLimitThreshold",
            "spark.sql.shuffle.partitions",
            "spark.sql.shuffledHashJoinFactor",
            "spark.sql.sources.bucketing.",
            "spark.sql.sources.parallelPartitionDiscovery.",
            "spark.sql.sources.v2.bucketing.",
            "spark.sql.statistics.",
            "spark.sql.subexpressionElimination.",
        ),
    ),
    (
        "How much of a query's data is in memory at a time",
        (
            "spark.sql.columnVector.",
            "spark.sql.defaultCacheStorageLevel",
            "spark.sql.inMemoryColumnarStorage.",
            "spark.sql.maxConcurrentOutputFileWriters",
            "spark.sql.orc.columnarReaderBatchSize",
            "spark.sql.orc.columnarWriterBatchSize",
            "spark.sql.parquet.columnarReaderBatchSize",
            "spark.sql.sessionWindow.",
            "spark.sql.sort.enableRadixSort",
            "spark.sql.sortMergeJoinExec.",
            "spark.sql.windowExec.",
        ),
    ),
    (
        "How rows are laid out in files: how many files, how compressed, how much of a file is skipped",
        (
            "spark.sql.avro.compression.codec",
            "spark.sql.avro.deflate.level",
            "spark.sql.avro.filterPushdown.enabled",
            "spark.sql.avro.xz.level",
            "spark.sql.avro.zstandard.",
            "spark.sql.files.maxRecordsPerFile",
            "spark.sql.orc.compression.codec",
            "spark.sql.orc.filterPushdown",
            "spark.sql.parquet.compression.codec",
            "spark.sql.parquet.filterPushdown",
            "spark.sql.parquet.filterPushdown.",
            "spark.sql.parquet.pushdown.",
            "spark.hadoop.dfs.blocksize",
            "spark.hadoop.dfs.replication",
            "spark.hadoop.dfs.replication.max",
            "spark.hadoop.fs.permissions.umask-mode",
            "spark.hadoop.mapreduce.output.fileoutputformat.compress",
            "spark.hadoop.mapreduce.output.fileoutputformat.compress.",
        ),
    ),
    (
        "How clients of Hadoop and Hive connect, wait and keep data in memory, and where they put temporary files",
        (
            "spark.hadoop.dfs.client.",
            "spark.hadoop.dfs.domain.socket.path",
            "spark.hadoop.fs.client.",
            "spark.hadoop.fs.df.interval",
            "spark.hadoop.fs.du.interval",
            "spark.hadoop.fs.trash.",
            "spark.hadoop.ha.",
            "spark.hadoop.hadoop.tmp.dir",
            "spark.hadoop.hadoop.zk.",
            "spark.hadoop.hive.exec.local.scratchdir",
            "spark.hadoop.hive.exec.scratchdir",
            "spark.hadoop.hive.exec.stagingdir",
            "spark.hadoop.hive.metastore.client.",
            "spark.hadoop.hive.metastore.connect.",
            "spark.hadoop.hive.metastore.failure.",
            "spark.hadoop.hive.scratch.dir.permission",
            "spark.hadoop.hive.zookeeper.",
            "spark.hadoop.io.file.buffer.size",
            "spark.hadoop.ipc.",
            "spark.hadoop.net.topology.",
        ),
    ),
    (
        "Servers of Hadoop, and engines other than Spark",
        (
            "spark.hadoop.dfs.balancer.",
            "spark.hadoop.dfs.datanode.",
            "spark.hadoop.dfs.ha.automatic-failover.",
            "spark.hadoop.dfs.ha.fencing.",
            "spark.hadoop.dfs.image.",
            "spark.hadoop.dfs.journalnode.",
            "spark.hadoop.dfs.namenode.checkpoint.",
            "spark.hadoop.dfs.namenode.edits.",
            "spark.hadoop.dfs.namenode.handler.",
            "spark.hadoop.dfs.namenode.name.",
            "spark.hadoop.dfs.namenode.safemode.",
            "spark.hadoop.dfs.namenode.service.",
            "spark.hadoop.dfs.namenode.shared.",
            "spark.hadoop.hive.auto.convert.",
            "spark.hadoop.hive.cbo.",
            "spark.hadoop.hive.cli.",
            "spark.hadoop.hive.compactor.",
            "spark.hadoop.hive.exec.parallel",
            "spark.hadoop.hive.exec.parallel.",
            "spark.hadoop.hive.exec.reducers.",
            "spark.hadoop.hive.execution.engine",
            "spark.hadoop.hive.llap.",
            "spark.hadoop.hive.log.",
            "spark.hadoop.hive.server2.",
            "spark.hadoop.hive.stats.",
            "spark.hadoop.hive.tez.",
            "spark.hadoop.hive.vectorized.",
            "spark.hadoop.mapreduce.am.",
            "spark.hadoop.mapreduce.application.",
            "spark.hadoop.mapreduce.cluster.",
            "spark.hadoop.mapreduce.framework.name",
            "spark.hadoop.mapreduce.job.",
            "spark.hadoop.mapreduce.jobhistory.",
            "spark.hadoop.mapreduce.map.",
            "spark.hadoop.mapreduce.reduce.",
            "spark.hadoop.mapreduce.shuffle.",
            "spark.hadoop.mapreduce.task.",
            "spark.hadoop.tez.",
            "spark.hadoop.yarn.acl.",
            "spark.hadoop.yarn.app.mapreduce.",
            "spark.hadoop.yarn.client.",
            "spark.hadoop.yarn.http.",
            "spark.hadoop.yarn.log-aggregation-enable",
            "spark.hadoop.yarn.log-aggregation.",
            "spark.hadoop.yarn.log.",
            "spark.hadoop.yarn.nodemanager.",
            "spark.hadoop.yarn.resourcemanager.",
            "spark.hadoop.yarn.scheduler.",
            "spark.hadoop.yarn.timeline-service.",
            "spark.hadoop.yarn.web-proxy.",
            "spark.hadoop.yarn.webapp.",
        ),
    ),
    (
        "Rights and credentials of Hadoop and Hive, and encrypted connections",
        (
            "spark.hadoop.dfs.block.access.",
            "spark.hadoop.dfs.data.transfer.",
            "spark.hadoop.dfs.encrypt.",
            "spark.hadoop.dfs.http.",
            "spark.hadoop.dfs.https.",
            "spark.hadoop.dfs.permissions",
            "spark.hadoop.dfs.permissions.",
            "spark.hadoop.dfs.web.",
            "spark.hadoop.hadoop.http.",
            "spark.hadoop.hadoop.kerberos.",
            "spark.hadoop.hadoop.kms.",
            "spark.hadoop.hadoop.proxyuser.",
            "spark.hadoop.hadoop.rpc.",
            "spark.hadoop.hadoop.security.",
            "spark.hadoop.hadoop.ssl.",
            "spark.hadoop.hadoop.user.",
            "spark.hadoop.hive.metastore.execute.setugi",
            "spark.hadoop.hive.metastore.sasl.",
            "spark.hadoop.hive.metastore.token.",
            "spark.hadoop.hive.security.",
            "spark.hadoop.hive.users.in.admin.role",
            "spark.hadoop.javax.jdo.option.ConnectionUserName",
            "spark.hadoop.javax.net.ssl.",
        ),
    ),
)
"""Reason, and the settings that it is about: whole names, and beginnings of names that end with a dot."""

IMAGES = (
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.executor.container.image",
)
"""Settings that name container images. Each is a component of its own."""

_NAMES = frozenset(name for _, names in DO_NOT_CHANGE_ROWS for name in names if not name.endswith("."))
_BEGINNINGS = tuple(name for _, names in DO_NOT_CHANGE_ROWS for name in names if name.endswith("."))

# A setting in an argument list of spark-submit, which ways such as EMR Serverless take as one text.
_SETTING = r"(?P<name{0}>spark\.[^\s=]+)="
_CONF_IN_TEXT = re.compile(
    r"(?:(?<=\s)|^)(?:--conf|-c)(?:\s+|=)(?:"
    rf"'{_SETTING.format(1)}[^']*'|\"{_SETTING.format(2)}[^\"]*\"|{_SETTING.format(3)}[^\s'\"]*"
    r")(?:\s+|$)"
)
SETTINGS_FIELDS = ("conf", "_conf", "spark_conf", "_spark_conf")
PROPERTIES_FIELDS = ("properties_file", "_properties_file")
_CONF_OPTIONS = ("--conf", "-c")
_SPARK_PROVIDER = "airflow.providers.apache.spark."
CREDENTIALS = re.compile(
    r"spark\.hadoop\..*(?:password|secret|credential|keytab|principal|token|access\.?key|account\.key|api\.?key)",
    re.IGNORECASE,
)
"""Names of properties that hold credentials. Such a property does not count, for credentials rotate."""


def changes_rows(setting: str) -> bool:
    """Return whether a setting counts, by its name."""
    does_not = (*_BEGINNINGS, *_of_stores())
    return setting not in _NAMES and not setting.startswith(does_not) and not CREDENTIALS.match(setting)


def row_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that count, sorted by name, with their values as texts."""
    return {name: str(settings[name]) for name in sorted(settings) if changes_rows(name)}


def settings_of(operator: object) -> dict[str, str]:
    """Return the settings of an operator that count: those declared, over Spark's and Hadoop's on this machine."""
    return row_settings(all_settings(operator))


def all_settings(operator: object) -> dict[str, Any]:
    """Return the settings of an operator: those declared, over Spark's and Hadoop's on this machine."""
    return {**defaults_of(operator), **declared_settings(operator)}


def defaults_of(operator: object) -> dict[str, str]:
    """Return what the provider's spark-submit reads on this machine.

    These are the properties of Hadoop and Hive, and Spark's defaults, which a properties file replaces.
    """
    path = _defaults_file(operator)
    return {**site_settings(_site_files(operator))[0], **(_settings_at(path) if path is not None else {})}


def settings_files(operator: object) -> list[Path]:
    """Return the files of this machine from which settings of an operator are read, if they exist."""
    defaults = _defaults_file(operator)
    return [*_properties_files(operator), *([defaults] if defaults is not None else []), *_site_files(operator)]


def unread_settings(operator: object) -> list[Path]:
    """Return the files of Hadoop's and Hive's properties that spark-submit reads and this process can't."""
    return site_settings(_site_files(operator))[1]


def other_configuration(operator: object) -> list[Path]:
    """Return the further files of configuration that count by their content (`configuration_files.other_files`)."""
    return configuration_files.other_files(configuration_folders(operator)) if _is_submitted(operator) else []


def configuration_folders(operator: object) -> list[Path]:
    """Return the folders from which Spark and Hadoop read their configuration on this machine."""
    env = _environment(operator)
    return configuration_files.configuration_folders(_sparks_configuration(env), env)


def _is_submitted(operator: object) -> bool:
    return any(parent.__module__.startswith(_SPARK_PROVIDER) for parent in type(operator).__mro__)


def _defaults_file(operator: object) -> Path | None:
    if not _is_submitted(operator) or any(getattr(operator, name, None) for name in PROPERTIES_FIELDS):
        return None
    return _sparks_configuration(_environment(operator)) / "spark-defaults.conf"


def _site_files(operator: object) -> list[Path]:
    env = _environment(operator)
    return site_files(_sparks_configuration(env), env) if _is_submitted(operator) else []


def _environment(operator: object) -> dict[str, str]:
    given = getattr(operator, "env_vars", None)
    return {**os.environ, **(given if isinstance(given, Mapping) else {})}


def _sparks_configuration(env: Mapping[str, str]) -> Path:
    """Its folder, by the environment, else in the home of the spark-submit that PATH finds."""
    program = shutil.which("spark-submit", path=env.get("PATH"))
    home = env.get("SPARK_HOME") or (sparks_home(Path(program)) if program else "/")
    return Path(env.get("SPARK_CONF_DIR") or Path(home, "conf"))


def sparks_home(submit: Path) -> Path:
    """Return the home of a distribution's spark-submit, or of the pyspark package for whose Python it was installed.

    `airflow_recovery.task.class_archive`, a program that imports nothing of this package, has the same rule.
    """
    home = submit.resolve().parents[1]
    if not (home / "jars").is_dir() and submit.parent == Path(sys.executable).parent:
        spec = importlib.util.find_spec("pyspark")
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
    return home


def declared_settings(operator: object) -> dict[str, Any]:
    """Return all settings that are declared for an operator: its ``conf``, over its properties file.

    A properties file on another machine is not read.
    """
    found: dict[str, Any] = {}
    for path in _properties_files(operator):
        found |= _settings_at(path)
    for name in SETTINGS_FIELDS:
        conf = getattr(operator, name, None)
        if isinstance(conf, Mapping):
            found |= {str(key): value for key, value in conf.items()}
    return found


def _properties_files(operator: object) -> list[Path]:
    given = [str(getattr(operator, name, None) or "") for name in PROPERTIES_FIELDS]
    return [Path(re.sub("^file:(//)?(?=/)", "", path)) for path in given if path]


def _settings_at(path: Path) -> dict[str, str]:
    return settings_in(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else {}


def without_other_settings(value: Any) -> Any:
    """Return a JSON value without the settings in it that do not count.

    Settings are found as keys of objects, after ``--conf`` in lists, and after ``--conf`` in texts.
    """
    if isinstance(value, Mapping):
        kept = {name: item for name, item in value.items() if not _is_other(name)}
        return {name: without_other_settings(item) for name, item in kept.items()}
    if isinstance(value, (list, tuple)):
        return _without_in_list(list(value))
    if isinstance(value, str) and ("--conf" in value or "-c " in value):
        return _CONF_IN_TEXT.sub(lambda match: "" if _is_other(next(filter(None, match.groups()))) else match[0], value)
    return value


def _without_in_list(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        setting = value if isinstance(value, str) else ""
        if kept and kept[-1] in _CONF_OPTIONS and _is_other(setting.partition("=")[0]):
            kept.pop()
        elif not (setting.startswith("--conf=") and _is_other(setting.split("=")[1])):
            kept.append(without_other_settings(value))
    return kept


def _is_other(name: object) -> bool:
    return isinstance(name, str) and name.startswith("spark.") and not changes_rows(name)


def settings_in(properties: str) -> dict[str, str]:
    """Return the settings in the text of a properties file, as spark-submit reads it.

    It reads names that begin with ``spark.``. Name and value are separated by blanks, ``=`` or ``:``.
    """
    found: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n[ \t]*", "", properties).splitlines():
        match = _PROPERTY.fullmatch(line.strip())
        if match is not None:
            found[match["name"]] = match["value"].strip()
    return found


_PROPERTY = re.compile(r"(?P<name>spark\.[^\s=:]+)\s*(?:[=:]\s*|\s)(?P<value>.*)")
