#!/usr/bin/env bash
# Unpacks one package of npm, as it was reviewed, into a folder:
#   scripts/npm_package.sh NAME VERSION SHA512 FOLDER     SHA512 in base64, as `npm view NAME dist.integrity` has it
# Nothing of the package is run, and nothing that it depends on is fetched.
set -euo pipefail

die() { printf 'npm_package: error: %s\n' "$*" >&2; exit 1; }

[ $# = 4 ] || die "expected NAME VERSION SHA512 FOLDER, found $# arguments"
command -v npm >/dev/null || die "found no npm on the PATH; $1 is fetched with it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
file=$(cd "$work" && npm pack --silent "$1@$2") || die "npm could not fetch $1@$2"
found=$(openssl dgst -sha512 -binary "$work/$file" | base64 -w0)
[ "$found" = "$3" ] || die "$1@$2: expected sha512 $3, found $found: this is not the package that was reviewed"
mkdir -p "$4"
tar -xzf "$work/$file" -C "$4" --strip-components=1
