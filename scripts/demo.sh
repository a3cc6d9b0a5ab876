#!/usr/bin/env bash
# The whole path on one machine, no GPU and no network: a study of the embedded demo, its operating points,
# its report. Run it again and it resumes: nothing is trained twice. Arguments go to launch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh dashboard
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec .venv/bin/python -m study.launch --demo --task mrpc --workers "$(nproc)" --storage sqlite:///demo.db \
  --out report/demo "$@"
