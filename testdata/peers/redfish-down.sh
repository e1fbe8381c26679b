#!/usr/bin/env bash
# Stops the BMCs that redfish-up.sh started in DIR; --wipe drops their state too.
#
#   redfish-down.sh DIR [--wipe]
set -euo pipefail
dir=${1:?usage: redfish-down.sh DIR [--wipe]}
[ -d "$dir" ] || exit 0
dir=$(cd "$dir" && pwd)
pidfile=$dir/redfish.pid
if [ -s "$pidfile" ]; then
  pid=$(cat "$pidfile")
  ours() { kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$dir/peer.json"; }
  if ours; then
    kill -TERM "$pid"
    for _ in $(seq 1 50); do
      ours || break
      sleep 0.1
    done
    if ours; then
      echo "redfish-down: pid $pid ignored SIGTERM, killing it" >&2
      kill -KILL "$pid"
    fi
  fi
  rm -f "$pidfile"
fi
[ "${2:-}" != --wipe ] || rm -rf "$dir/state" "$dir/tls" "$dir/redfish.log"
