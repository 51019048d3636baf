#!/usr/bin/env bash
# Resolve pyproject.toml again and write constraints/locked.txt: every package of the base install and of all extras,
# direct or not, with its version and the hashes of all its files; and constraints/server.txt, the part of it that a
# controller needs, which ships with Gangline: hosts that run one get exactly these files. Both serve Python 3.11 and
# newer on every platform (markers tell them apart). Called by `make lock`; UV names the resolver's executable.
set -euo pipefail
cd "$(dirname "$0")/.."

resolve() { # resolve FILE READER OPTION...
    local out=$1 reader=$2
    shift 2
    {
        echo "# Written by \`make lock\` from pyproject.toml; read by $reader. Do not edit."
        "${UV:-uv}" pip compile pyproject.toml --universal --python-version 3.11 \
            --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet "$@"
    } > "$out.new"
    mv "$out.new" "$out"
    echo "$out: $(grep -c == "$out") packages"
}

resolve constraints/locked.txt '`make setup`' --all-extras "$@"
resolve constraints/server.txt 'whoever brings a controller to a host' --extra server --constraint constraints/locked.txt
