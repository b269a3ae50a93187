#!/usr/bin/env bash
# Makes .venv with everything that the demo and the tests need. A second run does nothing and needs no network.
#   scripts/setup.sh          Python packages, Java, and an archive of Spark's classes, with which JVMs start sooner: what
#                             `make demo` needs, and nothing of the tests
#   scripts/setup.sh --s3a    and Spark's jars for S3 (12 MB), and versitygw, a real S3 server, where `go` is on the PATH:
#                             for `make demo S3A=1`
#   scripts/setup.sh --dev    and the Python packages of tests, lint, docs and benchmarks: for `make setup`
#   scripts/setup.sh --test   all of that, PostgreSQL, Redis, libfaketime, a YARN (66 MB), Chromium, which tests the
#                             Recovery tab, and servers of Google's and Azure's stores, where `go` and `npm` are on the
#                             PATH: for `make test`
#   scripts/setup.sh --drill  and a Kubernetes API server, built where `go` is on the PATH (minutes), a REST catalog
#                             of Iceberg's, Delta for Spark, PostgreSQL's JDBC driver, Spark's connectors to Google's
#                             and Azure's stores (41 MB), and beside the environment Airflow's provider of Google
#                             (130 MB): for `make drill`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv STAMP=.venv/.setup-stamp LOG=.venv/setup.log VERSITYGW_VERSION=v1.8.0 FAKE_GCS_VERSION=v1.56.1 AZURITE_VERSION=3.35.0 GO_BIN=build/go

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

is_debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $* with apt-get"
    # One at a time: what is installed beside pip, and what pip turns out to need.
    { flock 8 && apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
        8>/tmp/airflow-recovery-apt.lock >/tmp/airflow-recovery-apt.log 2>&1 || die "apt-get install $* failed; see /tmp/airflow-recovery-apt.log"
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

# Every few seconds, while pip runs. Its log has the number of packages only when all of them have been fetched.
show_progress() {
    local began=$SECONDS all have
    while sleep 5 && kill -0 $$ 2>/dev/null; do
        all=$(sed -n 's/^Installing collected packages: //p' $LOG | tr , '\n' | wc -l)
        have=$(find $VENV/lib -maxdepth 3 -name '*.dist-info' | wc -l)
        if [ "$all" -gt 0 ]; then
            say "$((SECONDS - began)) s: $have packages are installed ($all are new)"
        else
            say "$((SECONDS - began)) s: $(grep -c '^Collecting' $LOG) packages are fetched"
        fi
    done
}

pip_install() {
    local progress status=0
    : >$LOG
    show_progress &
    progress=$!
    # What the package needs, and not the package: that is installed as a wheel, apart (scripts/wheel.py). Some packages
    # ship files that are no Python, which compileall minds.
    {
        $VENV/bin/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt "$@" \
            && $VENV/bin/python -m pip uninstall --yes airflow-recovery \
            && { $VENV/bin/python -m compileall -q -j 0 $VENV/lib || true; } \
            && $VENV/bin/python -m scripts.compiled_archives $VENV/lib/python*/site-packages/pyspark/python/lib/*.zip
    } >>$LOG 2>&1 || status=$?
    kill $progress
    return $status
}

# What is installed is a function of two files and of the extras. An environment that lacks only extras is added to.
ensure_packages() {
    local extras=$1 python wanted has
    wanted=$(cat pyproject.toml constraints.txt | cksum)
    has=$(cat $STAMP 2>/dev/null || true)
    $VENV/bin/python -c '' 2>/dev/null || has=
    case $has in "$wanted $extras"*) return ;; esac
    if [ "${has% *}" != "$wanted" ]; then
        python=$(find_python)
        if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            is_debian_root || die "$python has no venv module; install your system's python3-venv package"
            apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        fi
        "$python" -m venv --clear $VENV || die "$python -m venv $VENV failed"
    fi
    say "installing into $VENV with $($VENV/bin/python --version) (a few minutes the first time; details in $LOG)"
    pip_install ".[$extras]" || { tail -n 5 $LOG >&2; die "pip install failed; see $LOG"; }
    rm -rf build/lib build/bdist.* airflow_recovery.egg-info
    printf '%s' "$wanted $extras" >$STAMP
}

ensure_wheel() {
    $VENV/bin/python -m scripts.wheel >$LOG 2>&1 || { tail -n 5 $LOG >&2; die "the wheel could not be built; see $LOG"; }
}

# Into a folder of its own: the virtual environment may be made anew beside it.
build_with_go() {
    local program=$1 module=$2 what=$3 log=$GO_BIN/$1.log
    if [ -x "$GO_BIN/$program" ] || command -v "$program" >/dev/null; then return; fi
    if ! command -v go >/dev/null; then
        say "go is not on the PATH: $program, $what, is left out"
        return
    fi
    say "building $program ${module##*@} with go (about a minute)"
    mkdir -p $GO_BIN
    GOBIN="$PWD/$GO_BIN" go install "$module" >"$log" 2>&1 \
        || { tail -n 5 "$log" >&2; die "go install of $program failed; see $log"; }
}

build_servers() {
    build_with_go versitygw "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION" "the second S3 server"
    [ "$1" = --s3a ] || build_with_go fake-gcs-server "github.com/fsouza/fake-gcs-server@$FAKE_GCS_VERSION" \
        "the server of Google's API"
}

ensure_servers() {
    wait "$1" || exit 1  # it has said why
    local program
    for program in versitygw fake-gcs-server; do
        if [ -x $GO_BIN/$program ]; then cp $GO_BIN/$program $VENV/bin/; fi
    done
}

ensure_azurite() {
    [ -x $VENV/bin/azurite-blob ] && return
    if ! command -v npm >/dev/null; then
        say "npm is not on the PATH: Azurite, the server of Azure's API, is left out"
        return
    fi
    say "installing Azurite $AZURITE_VERSION with npm"
    npm install --prefix $VENV/azurite --no-fund --no-audit "azurite@$AZURITE_VERSION" >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "npm install of azurite failed; see $LOG"; }
    ln -sf ../azurite/node_modules/.bin/azurite-blob $VENV/bin/azurite-blob
}

ensure_kubernetes() {
    local program="$PWD/$VENV/bin/kube-apiserver-with-etcd"
    [ -x "$program" ] && return
    if ! command -v go >/dev/null; then
        say "go is not on the PATH: the Kubernetes API server is left out, and its drill"
        return
    fi
    say "building a Kubernetes API server with go (many minutes)"
    (cd tests/support/kube_apiserver && go build -ldflags '-s -w' -o "$program" .) >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "go build of the Kubernetes API server failed; see $LOG"; }
}

# For PYTHONPATH, so that no other test has it. Its packages need nothing that the environment has not.
ensure_google_provider() {
    local folder=$VENV/google-provider list=scripts/google-provider.txt wanted
    wanted=$(cksum <$list)
    [ -f $folder/stamp ] && [ "$(cat $folder/stamp)" = "$wanted" ] && return
    say "installing Airflow's provider of Google into $folder"
    rm -rf $folder
    $VENV/bin/python -m pip install --disable-pip-version-check --no-compile --no-deps --target $folder -r $list >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "pip install of Airflow's provider of Google failed; see $LOG"; }
    printf '%s' "$wanted" >$folder/stamp
}

# Into .venv/NAME-jars what scripts/NAME-ivy.xml says.
ensure_jars() {
    local what=$2 jars=.venv/$1-jars ivy=scripts/$1-ivy.xml wanted java=java
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    wanted=$(cksum <"$ivy")
    [ -f "$jars/stamp" ] && [ "$(cat "$jars/stamp")" = "$wanted" ] && return
    say "fetching $what into $jars"
    rm -rf "$jars"
    "$java" -jar $VENV/lib/python*/site-packages/pyspark/jars/ivy-*.jar -ivy "$ivy" -types jar \
        -retrieve "$jars/[artifact]-[revision](-[classifier]).[ext]" >$LOG 2>&1 \
        || { tail -n 5 $LOG >&2; die "Ivy could not fetch the jars of $ivy; see $LOG"; }
    printf '%s' "$wanted" >"$jars/stamp"
}

ensure_postgresql() {
    local find='from airflow_recovery.testing.local_airflow.postgres import find_programs; find_programs()'
    $VENV/bin/python -c "$find" 2>/dev/null && return
    is_debian_root || die "the tests need a PostgreSQL server's programs, found none; install it or put them on the PATH"
    apt_install postgresql
    $VENV/bin/python -c "$find" || die "the programs of PostgreSQL are still not found after the installation"
}

ensure_redis() {
    command -v redis-server >/dev/null && return
    is_debian_root || die "the tests need redis-server on the PATH, found none; install it"
    apt_install redis-server
}

ensure_faketime() {
    command -v faketime >/dev/null && return
    is_debian_root || die "the tests need faketime on the PATH, with which a machine's clock is wrong; install it"
    apt_install faketime
}

ensure_chromium() {
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    is_debian_root || die "the tests need chromium and chromedriver on the PATH; install them"
    apt_install chromium chromium-driver fonts-dejavu-core
}

ensure_programs() {
    ensure_java
    case "$1" in --test | --drill)
        ensure_redis
        ensure_faketime
        ensure_chromium
        ;;
    esac
}

ensure_class_archive() {
    [ -d $VENV/spark-classes ] || say "archiving Spark's classes (half a minute)"
    PATH="$PWD/$VENV/bin:$PATH" $VENV/bin/python -m scripts.wheel airflow_recovery.task.class_archive \
        --folder $VENV/spark-classes >$LOG 2>&1 \
        || say "no archive was made, and Spark starts slower; see $LOG"
}

case "${1:-}" in
    '' | --s3a) extras=spark,demo ;;
    --dev | --test | --drill) extras=spark,demo,dev ;;
    *) die "unknown argument $1; expected nothing, --s3a, --dev, --test or --drill" ;;
esac
# Beside pip, which keeps one core busy and waits for the index: all that needs no virtual environment.
ensure_programs "${1:-}" &
programs=$!
case "${1:-}" in --s3a | --test | --drill) build_servers "$1" & servers=$! ;; esac
ensure_packages $extras
ensure_wheel
wait "$programs" || exit 1  # it has said why
ensure_class_archive
case "${1:-}" in --s3a | --test | --drill)
    ensure_jars s3a "Spark's jars for S3 (12 MB)"
    ensure_servers "$servers"
    ;;
esac
case "${1:-}" in --test | --drill)
    ensure_jars yarn "a YARN (66 MB)"
    ensure_postgresql
    ensure_azurite
    ;;
esac
case "${1:-}" in --drill)
    ensure_jars delta "Delta for Spark (13 MB)"
    ensure_jars jdbc "PostgreSQL's JDBC driver (1 MB)"
    ensure_jars iceberg-rest "a REST catalog of Iceberg's (13 MB)"
    ensure_jars clouds "Spark's connectors to Google's and Azure's stores (41 MB)"
    ensure_google_provider
    ensure_kubernetes
    ;;
esac
say "ready ($($VENV/bin/python --version), Java $(java_major))"
