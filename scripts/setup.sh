#!/usr/bin/env bash
# Makes .venv with everything that the demo and the tests need. A second run does nothing and needs no network.
#   scripts/setup.sh          Python packages and Java: enough for `make demo`
#   scripts/setup.sh --s3a    and Spark's jars for S3 (12 MB), and versitygw, a real S3 server, where `go` is on the PATH:
#                             for `make demo S3A=1`
#   scripts/setup.sh --test   and PostgreSQL, Chromium, which tests the Recovery tab, and an archive of Spark's classes,
#                             with which the tests' JVMs start sooner: for `make test`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv STAMP=.venv/.setup-stamp LOG=.venv/setup.log VERSITYGW_VERSION=v1.8.0
readonly S3A_JARS=.venv/s3a-jars S3A_IVY=scripts/s3a-ivy.xml

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

is_debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $* with apt-get"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
        >/tmp/airflow-recovery-apt.log 2>&1 || die "apt-get install $* failed; see /tmp/airflow-recovery-apt.log"
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || die "PYTHON=$PYTHON does not run or is not Python 3.10 to 3.13; set PYTHON to one that is"
        printf '%s' "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        # A version manager's shim can be on the PATH and still not run: only running it tells.
        if command -v "$candidate" >/dev/null && fits "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    die "found no Python 3.10 to 3.13; install one, or set PYTHON to its path"
}

java_major() {
    local java=java
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    { "$java" -version 2>&1 || true; } | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

ensure_java() {
    local major
    major=$(java_major)
    [ "${major:-0}" -ge 17 ] && return
    if [ -n "${JAVA_HOME:-}" ]; then
        die "Spark needs Java 17 or newer, JAVA_HOME=$JAVA_HOME has ${major:-none}; correct it or unset it"
    fi
    is_debian_root || die "Spark needs Java 17 or newer, found ${major:-none}; install a JRE and put java on the PATH"
    apt_install openjdk-17-jre-headless
    major=$(java_major)
    [ "${major:-0}" -ge 17 ] || die "java on the PATH is still ${major:-none} after the installation; set JAVA_HOME to Java 17"
}

ensure_venv() {
    local python wanted
    # What is installed is a function of these two files.
    wanted=$(cat pyproject.toml constraints.txt | cksum)
    if [ -f $STAMP ] && [ "$(cat $STAMP)" = "$wanted" ] && $VENV/bin/python -c '' 2>/dev/null; then
        return
    fi
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        is_debian_root || die "$python has no venv module; install your system's python3-venv package"
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    fi
    say "installing into $VENV with $("$python" --version) (a few minutes the first time; details in $LOG)"
    "$python" -m venv --clear $VENV || die "$python -m venv $VENV failed"
    # What the package needs, and not the package: that is installed as a wheel, apart (scripts/wheel.py).
    if ! $VENV/bin/python -m pip install --disable-pip-version-check -c constraints.txt '.[spark,dev]' >$LOG 2>&1 \
        || ! $VENV/bin/python -m pip uninstall --yes airflow-recovery >>$LOG 2>&1; then
        tail -n 5 $LOG >&2
        die "pip install failed; see $LOG"
    fi
    rm -rf build/lib build/bdist.* airflow_recovery.egg-info
    printf '%s' "$wanted" >$STAMP
}

ensure_wheel() {
    $VENV/bin/python -m scripts.wheel >$LOG 2>&1 || { tail -n 5 $LOG >&2; die "the wheel could not be built; see $LOG"; }
}

ensure_versitygw() {
    [ -x $VENV/bin/versitygw ] && return
    command -v versitygw >/dev/null && return
    if ! command -v go >/dev/null; then
        say "go is not on the PATH: versitygw, the second S3 server, is left out"
        return
    fi
    say "building versitygw $VERSITYGW_VERSION with go (about a minute)"
    GOBIN="$PWD/$VENV/bin" go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION" >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "go install of versitygw failed; see $LOG"; }
}

ensure_s3a_jars() {
    local wanted java=java
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    wanted=$(cksum <$S3A_IVY)
    [ -f $S3A_JARS/stamp ] && [ "$(cat $S3A_JARS/stamp)" = "$wanted" ] && return
    say "fetching Spark's jars for S3 (12 MB) into $S3A_JARS"
    rm -rf $S3A_JARS
    "$java" -jar $VENV/lib/python*/site-packages/pyspark/jars/ivy-*.jar -ivy $S3A_IVY -types jar \
        -retrieve "$S3A_JARS/[artifact]-[revision].[ext]" >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "Ivy could not fetch the jars of $S3A_IVY; see $LOG"; }
    printf '%s' "$wanted" >$S3A_JARS/stamp
}

ensure_postgresql() {
    local find='from airflow_recovery.testing.local_airflow.postgres import find_programs; find_programs()'
    $VENV/bin/python -c "$find" 2>/dev/null && return
    is_debian_root || die "the tests need a PostgreSQL server's programs, found none; install it or put them on the PATH"
    apt_install postgresql
    $VENV/bin/python -c "$find" || die "the programs of PostgreSQL are still not found after the installation"
}

ensure_chromium() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    is_debian_root || die "the tests need chromium and chromedriver on the PATH; install them"
    apt_install chromium chromium-driver fonts-dejavu-core
}

ensure_class_archive() {
    [ -d $VENV/spark-classes ] || say "archiving Spark's classes (half a minute)"
    PATH="$PWD/$VENV/bin:$PATH" $VENV/bin/python -m scripts.wheel airflow_recovery.task.class_archive \
        --folder $VENV/spark-classes >$LOG 2>&1 \
        || say "no archive was made, and the tests' JVMs start slower; see $LOG"
}

case "${1:-}" in
    '' | --s3a | --test) ;;
    *) die "unknown argument $1; expected nothing, --s3a or --test" ;;
esac
ensure_venv
ensure_wheel
ensure_java
if [ -n "${1:-}" ]; then
    ensure_s3a_jars
    ensure_versitygw
fi
if [ "${1:-}" = --test ]; then
    ensure_postgresql
    ensure_chromium
    ensure_class_archive
fi
say "ready ($($VENV/bin/python --version), Java $(java_major))"
