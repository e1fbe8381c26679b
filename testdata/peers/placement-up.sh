#!/usr/bin/env bash
# Starts a real Placement on loopback for the tests: SQLite, one thread.
# Idempotent: a second call with the same DIR finds the first one running.
#
#   placement-up.sh DIR [PORT]   DIR gets everything it writes; PORT default 16778
#
# The last line on stdout is the endpoint; progress goes to stderr.
# Environment, all optional:
#   PLACEMENT_AUTH     noauth2 (default: the token "admin" may do everything, another
#                      one nothing), or keystone (needs KEYSTONE_URL)
#   KEYSTONE_URL       such as http://127.0.0.1:16500/v3, from keystone-up.sh
#   KEYSTONE_PASSWORD  of the service user placement (default secret)
#   PLACEMENT_FRESH    1 drops the database first
#   PLACEMENT_WAIT     seconds to wait until it answers (default 60)
set -euo pipefail

dir=${1:?usage: placement-up.sh DIR [PORT]}
port=${2:-16778}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
auth=${PLACEMENT_AUTH:-noauth2}
url=http://127.0.0.1:$port
pidfile=$dir/placement.pid
# Debian's own interpreter: another python3 on PATH does not see Debian's modules.
python=/usr/bin/python3

say() { echo "placement-up: $*" >&2; }

alive() {
  [ -s "$pidfile" ] || return 1
  local pid
  pid=$(cat "$pidfile")
  kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "placement-loopback $dir "
}

if alive; then
  say "runs already, pid $(cat "$pidfile")"
  echo "$url"
  exit 0
fi

if ! "$python" -c 'import placement.wsgi, waitress' 2>/dev/null; then
  say "installing python3-placement"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  install() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q \
      --no-install-recommends python3-placement python3-waitress >"$dir/apt.log" 2>&1
  }
  install || { $sudo apt-get update -q >>"$dir/apt.log" 2>&1 || true; install; } || { tail -20 "$dir/apt.log" >&2; exit 1; }
fi

umask 077
cat >"$dir/placement.conf" <<CONF
[DEFAULT]
log_file = $dir/placement.log
use_stderr = false
state_path = $dir

[api]
auth_strategy = $auth

[placement_database]
connection = sqlite:///$dir/placement.sqlite
sqlite_synchronous = false

[oslo_concurrency]
lock_path = $dir
CONF
if [ "$auth" = keystone ]; then
  cat >>"$dir/placement.conf" <<CONF

[keystone_authtoken]
auth_type = password
auth_url = ${KEYSTONE_URL:?}
www_authenticate_uri = $KEYSTONE_URL
username = placement
password = ${KEYSTONE_PASSWORD:-secret}
project_name = service
user_domain_id = default
project_domain_id = default
CONF
fi
[ "${PLACEMENT_FRESH:-0}" != 1 ] || rm -f "$dir"/placement.sqlite*
"$python" /usr/bin/placement-manage --config-file "$dir/placement.conf" db sync >"$dir/sync.log" 2>&1 ||
  { tail -20 "$dir/sync.log" >&2; exit 1; }

# Somebody else's server on the port would pass for ours below.
"$python" -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError as err:
    sys.exit("placement-up: port %s: %s" % (sys.argv[1], err))
' "$port"

# One thread: SQLite has one writer, and Placement tries again only for MySQL's deadlocks.
rm -f "$pidfile"
cd "$dir"
OS_PLACEMENT_CONFIG_DIR=$dir setsid nohup env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$python" -c '
import sys
port = int(sys.argv[3])
sys.argv[:] = ["placement"]
from placement.wsgi import init_application
from waitress import serve
serve(init_application(), host="127.0.0.1", port=port, threads=1)
' placement-loopback "$dir" "$port" </dev/null >"$dir/placement.out" 2>&1 &
echo $! >"$pidfile"

deadline=$(($(date +%s) + ${PLACEMENT_WAIT:-60}))
until "$python" -c '
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1] + "/", timeout=5).read()' "$url" 2>/dev/null; do
  if ! alive || [ "$(date +%s)" -ge "$deadline" ]; then
    say "it does not answer:"
    tail -n 20 "$dir/placement.out" "$dir/placement.log" >&2 || true
    exit 1
  fi
  sleep 0.2
done
say "pid $(cat "$pidfile")"
echo "$url"
