#!/usr/bin/env bash
# Stops the Placement that placement-up.sh started in DIR; --wipe drops its database too.
#
#   placement-down.sh DIR [--wipe]
set -euo pipefail
dir=${1:?usage: placement-down.sh DIR [--wipe]}
[ -d "$dir" ] || exit 0
dir=$(cd "$dir" && pwd)
pidfile=$dir/placement.pid
if [ -s "$pidfile" ]; then
  pid=$(cat "$pidfile")
  ours() { kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "placement-loopback $dir "; }
  if ours; then
    kill -TERM "$pid"
    for _ in $(seq 1 50); do
      ours || break
      sleep 0.1
    done
    if ours; then
      echo "placement-down: pid $pid ignored SIGTERM, killing it" >&2
      kill -KILL "$pid"
    fi
  fi
  rm -f "$pidfile"
fi
[ "${2:-}" != --wipe ] || rm -f "$dir"/placement.sqlite*
