#!/usr/bin/env bash
# Stops the Ironic that ironic-up.sh started in DIR; --wipe drops its database too.
#
#   ironic-down.sh DIR [--wipe]
set -euo pipefail
dir=${1:?usage: ironic-down.sh DIR [--wipe]}
[ -d "$dir" ] || exit 0
dir=$(cd "$dir" && pwd)
pidfile=$dir/ironic.pid
if [ -s "$pidfile" ]; then
  pid=$(cat "$pidfile")
  ours() { kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$dir/ironic.conf"; }
  if ours; then
    kill -TERM "$pid"
    for _ in $(seq 1 100); do
      ours || break
      sleep 0.1
    done
    if ours; then
      echo "ironic-down: pid $pid ignored SIGTERM, killing it" >&2
      kill -KILL "$pid"
    fi
  fi
  rm -f "$pidfile"
fi
[ "${2:-}" != --wipe ] || rm -f "$dir"/ironic.sqlite* "$dir/schema-made"
