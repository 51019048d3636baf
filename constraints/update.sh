#!/usr/bin/env bash
# Resolve pyproject.toml again and write constraints/locked.txt: every package of the base install and of all extras,
# direct or not, with its version and the hashes of all its files. One file serves Python 3.11 and newer on every
# platform (markers tell them apart). Called by `make lock`; UV names the resolver's executable.
set -euo pipefail
cd "$(dirname "$0")/.."

out=constraints/locked.txt
{
    echo "# Written by \`make lock\` from pyproject.toml; read by \`make setup\`. Do not edit."
    "${UV:-uv}" pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
        --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet "$@"
} > "$out.new"
mv "$out.new" "$out"
echo "$out: $(grep -c == "$out") packages"
