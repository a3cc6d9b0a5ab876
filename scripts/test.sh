#!/usr/bin/env bash
# Everything that CI checks: format, lint, types, tests. --fast leaves out the slow tests, and the repeats of
# others for most families of models and for MariaDB; other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chosen=()
if [ "${1:-}" = --fast ]; then
  chosen=(-m "not slow")
  shift
fi
bash scripts/setup.sh test
# Before OMP_NUM_THREADS is set, which nproc takes for the number of processors.
# One more than there are: a test that waits for processes leaves its own processor idle.
workers=$(($(env -u OMP_NUM_THREADS nproc) + 1))
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
# The tests start many processes; with bytecode each needs half the time to start.
unset PYTHONDONTWRITEBYTECODE
.venv/bin/ruff format --check --quiet .
.venv/bin/ruff check --quiet .
said=$(mktemp)
trap 'rm -f "$said"; kill "$types" 2> /dev/null || true' EXIT
# Types beside tests: most tests wait for processes for a good part of their time.
.venv/bin/mypy > "$said" 2>&1 & types=$!
code=0
.venv/bin/python -m pytest -n "$workers" --dist loadscope --no-loadscope-reorder "${chosen[@]}" "$@" || code=$?
if ! wait "$types"; then
  cat "$said"
  code=1
fi
exit "$code"
