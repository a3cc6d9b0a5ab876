#!/usr/bin/env bash
# Everything that CI checks: format, lint, types, tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh test
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
.venv/bin/ruff format --check --quiet .
.venv/bin/ruff check --quiet .
.venv/bin/mypy
exec .venv/bin/python -m pytest -n "$(nproc)" --dist loadfile "$@"
