#!/usr/bin/env bash
# Installs DMTF's redfish-protocol-validator from PyPI into a virtual environment
# that is kept between runs. Idempotent. It runs offline once it is there.
#
#   redfish-validator-up.sh
#
# The last line on stdout is the program. Environment, all optional:
#   VALIDATOR_CACHE    where it lies (default ~/.cache/muster/redfish-validator)
#   VALIDATOR_VERSION  default 1.3.2
#   VALIDATOR_PYTHON   the Python to use (default python3)
set -euo pipefail

cache=${VALIDATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/redfish-validator}
version=${VALIDATOR_VERSION:-1.3.2}
python=${VALIDATOR_PYTHON:-python3}
venv=$cache/$version
program=$venv/bin/rf_protocol_validator

say() { echo "redfish-validator-up: $*" >&2; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if ! "$program" --version >/dev/null 2>&1; then
  say "installing redfish-protocol-validator $version"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" -q install --disable-pip-version-check "redfish-protocol-validator==$version" >&2
fi
say "$("$program" --version 2>&1 | head -n 1)"
echo "$program"
