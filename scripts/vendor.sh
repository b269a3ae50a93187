#!/usr/bin/env bash
# Puts the one library of the Recovery tab (graph layout), and axe, which its tests use, into the tree, from npm:
# `make vendor`. Nobody needs this to install, to use or to test the provider. A second run changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TARGET=airflow_recovery/api_server/static/vendor TESTS=tests/tab/vendor
readonly DAGRE=X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==
readonly GRAPHLIB=Hjv7hbfmSBMP4nVXMFt4gusqWWHghQF0qNT4V5KHo4Jatvd+2L5VHKFnnIjXVuDnaHIRz7ZuHSnlf0RuZkOwWA==
readonly AXE=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/npm_package.sh @dagrejs/dagre 3.1.3 $DAGRE "$work/dagre"
scripts/npm_package.sh @dagrejs/graphlib 4.0.6 $GRAPHLIB "$work/graphlib" # is inside dagre's bundle
scripts/npm_package.sh axe-core 4.14.1 $AXE "$work/axe"
mkdir -p $TARGET $TESTS
cp "$work/dagre/dist/dagre.esm.js" $TARGET/dagre.esm.js
cp "$work/dagre/LICENSE" $TARGET/LICENSE-dagre.txt
cp "$work/graphlib/LICENSE" $TARGET/LICENSE-graphlib.txt
cp "$work/axe/axe.min.js" $TESTS/axe.min.js
cp "$work/axe/LICENSE" $TESTS/LICENSE-axe.txt
cp "$work/axe/LICENSE-3RD-PARTY.txt" $TESTS/LICENSE-axe-third-parties.txt
printf 'vendor: %s and %s are as pinned\n' $TARGET $TESTS
