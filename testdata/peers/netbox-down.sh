#!/usr/bin/env bash
# netbox-down.sh DIR: stops what netbox-up.sh DIR started. Data and packages stay.
set -euo pipefail

dir=${1:?usage: netbox-down.sh DIR}
[ -d "$dir/pid" ] || exit 0
dir=$(cd "$dir" && pwd)

# standing NAME: the processes that stand in this instance's folder of that name;
# children of a daemon that died before them, too.
standing() {
  local inode
  inode=$(stat -c %d:%i "$dir/$1" 2>/dev/null) || return 0
  stat -Lc '%d:%i %n' /proc/[0-9]*/cwd 2>/dev/null | sed -n "s,^$inode /proc/\([0-9]*\)/cwd\$,\1,p" || true
}

stop() { # NAME SIGNAL
  local name=$1 p
  if [ -s "$dir/pid/$name" ]; then
    p=$(cat "$dir/pid/$name")
    if standing "$name" | grep -qx "$p"; then kill "-$2" "$p" 2>/dev/null || true; fi
  fi
  for _ in $(seq 100); do
    [ -n "$(standing "$name")" ] || break
    sleep 0.1
  done
  for p in $(standing "$name"); do
    # A shell that happens to stand there is nobody's daemon.
    if tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -qE 'gunicorn|redis-server|postgres'; then kill -KILL "$p" 2>/dev/null || true; fi
  done
  rm -f "$dir/pid/$name"
}
stop gunicorn TERM
stop redis TERM
stop postgres INT
rm -f "$dir/postgres/postmaster.pid"
