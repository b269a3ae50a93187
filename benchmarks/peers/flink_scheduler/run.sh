#!/usr/bin/env bash
# Prints one JSON line a case and step; see README.md for the variables.
set -euo pipefail
cd "$(dirname "$0")"
build=${FLINKBENCH_BUILD:-${TMPDIR:-/tmp}/flinkbench}; version=${FLINK_VERSION:-2.3.0}; bin=${JAVA_HOME:+$JAVA_HOME/bin/}
mkdir -p "$build/classes"; jars=$build/cp-run-$version.txt
[ -s "$jars" ] || mvn -q -B -f pom.xml -Dflink.version="$version" dependency:build-classpath -Dmdep.outputFile="$jars" >&2
path=$build/classes:$(cat "$jars")
"${bin}javac" -nowarn -proc:none -cp "$path" -d "$build/classes" FlinkBench.java >&2
one() {
  [[ "$*" =~ ${ONLY:-.} ]] || return 0
  "${bin}java" -Xmx"${XMX:-6g}" -Xss64m -Dwarm="${WARM:-11}" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -Dorg.slf4j.simpleLogger.log.org.apache.flink.runtime.scheduler.adapter=info -cp "$path" FlinkBench "$@" ||
    printf '{"case":"%s","levels":%s,"parallelism":%s,"step":"%s","error":"exit %s"}\n' "$@" $?
  if [ -n "${PEER:-}" ]; then $PEER "$@"; fi
}
load() { printf '{"flink":"%s","load":"%s"}\n' "$version" "$(uptime | sed 's/.*average: //')"; }
load
for shape in "all_to_all 2 1000" "all_to_all 2 4000" "all_to_all 2 10000" "pointwise 100 1000" "pointwise ${LONG:-100000} 1"; do
  read -r pattern levels p <<< "$shape"
  for kind in blocking pipelined; do for step in graph topology regions source_ok mid_ok mid_one_lost sink_all_lost; do
    one "${pattern}_$kind" "$levels" "$p" $step
  done; done
done; load
