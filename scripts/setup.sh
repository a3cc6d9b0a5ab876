#!/usr/bin/env bash
# Makes .venv if there is none and installs the project with the tested versions. Usage: setup.sh EXTRA
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extra=${1:?an extra of pyproject.toml, such as dashboard or test}

if [ ! -x .venv/bin/python ]; then
  python=$(command -v python3.11 || command -v python3)
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or newer is needed; $python is older" >&2
    exit 2
  }
  "$python" -m venv .venv
fi

# Installed once for each state of what is asked for: a second run starts at once.
wanted=$(cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)-$extra
if [ "$(cat .venv/installed-"$extra" 2>/dev/null)" != "$wanted" ]; then
  echo "installing (once; PyTorch is large) ..."
  # Python compiles what is really imported when it is first imported: compiling all takes as long as the rest.
  .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[$extra]"
  echo "$wanted" > .venv/installed-"$extra"
fi
