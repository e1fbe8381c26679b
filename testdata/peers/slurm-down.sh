#!/bin/bash
# slurm-down.sh DIR [--purge]: stop what slurm-up.sh DIR started, by its pid files.
# --purge also removes the cluster's state and tools from DIR. Unpacked packages stay.
set -u
[ $# -ge 1 ] || { echo "usage: slurm-down.sh DIR [--purge]" >&2; exit 2; }
[ -d "$1/cluster" ] || exit 0
DIR=$(cd "$1" && pwd)
CLUSTER=$DIR/cluster
ID=$(stat -c %d:%i "$CLUSTER") && [ -n "$ID" ] || exit 1

# ours PID: the process sees this cluster as /cluster, so no other process that
# took over a pid is ever signalled.
ours() { [ "$(stat -Lc %d:%i "/proc/$1/root/cluster" 2>/dev/null)" = "$ID" ]; }

pids() { # GLOB
  local f
  for f in "$CLUSTER"/pid/$1; do [ -s "$f" ] && cat "$f"; done
}

stop() { # GLOB
  local p left
  for p in $(pids "$1"); do ours "$p" && { kill -TERM "$p"; kill -CONT "$p"; } 2>/dev/null; done
  for _ in $(seq 50); do
    left=0
    for p in $(pids "$1"); do ours "$p" && left=1; done
    [ $left = 0 ] && break
    sleep 0.1
  done
  for p in $(pids "$1"); do ours "$p" && kill -KILL "$p" 2>/dev/null; done
  rm -f "$CLUSTER"/pid/$1
}
stop 'slurmrestd*'
stop 'slurmd-*'
stop slurmctld
stop munged

# What the daemons forked (slurmscriptd, slurmstepd, jobs) lives in the same root.
for i in $(seq 30); do
  left=0
  for d in /proc/[0-9]*; do
    p=${d#/proc/}
    if ours "$p"; then
      left=1
      [ "$i" -gt 5 ] && kill -KILL "$p" 2>/dev/null
    fi
  done
  [ $left = 0 ] && break
  sleep 0.1
done
rm -f "$CLUSTER"/sock/*.sock
[ "${2:-}" = --purge ] && rm -rf "$CLUSTER" "$DIR/slurm.env" "$DIR/slurm" "$DIR/slurm-daemon"
exit 0
