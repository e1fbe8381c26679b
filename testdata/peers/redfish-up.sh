#!/usr/bin/env bash
# Starts a Redfish service that is not ours on loopback for the tests: sushy-tools'
# emulator with its fake driver, as a few BMCs with TLS and a login, each at an
# address of its own. Idempotent: a second call with the same DIR finds it running.
#
#   redfish-up.sh DIR [PORT]     DIR gets everything it writes; PORT default 16443
#
# It leaves DIR/redfish.env, and prints its path as the last line on stdout.
# The login is admin:secret. Power states survive a restart. DIR/journal has a line
# of JSON for each request that got past the login: what was asked, by which program,
# when, and the power that was answered.
# Environment, all optional:
#   REDFISH_BMCS     how many (default 3), at REDFISH_NET.1 and on
#   REDFISH_NET      the first three bytes of their addresses, in 127/8 (default 127.81.0)
#   REDFISH_SHELVES  how many of them, the last, are power shelves (default 0)
#   REDFISH_POWER    what they all are at the first start (default Off)
#   REDFISH_LOSING   numbers of BMCs that do what they are sent and never answer a POST (default none)
#   REDFISH_DELAY    seconds until a power change shows, MIN,MAX (default 0.3,0.8)
#   REDFISH_VENV     where sushy-tools is installed (default DIR/venv)
#   REDFISH_VERSION  of sushy-tools (default 2.2.0)
#   REDFISH_WAIT     seconds to wait until it answers (default 60)
set -euo pipefail

dir=${1:?usage: redfish-up.sh DIR [PORT]}
port=${2:-16443}
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$dir/state" "$dir/tls"
dir=$(cd "$dir" && pwd)
count=${REDFISH_BMCS:-3}
net=${REDFISH_NET:-127.81.0}
venv=${REDFISH_VENV:-$dir/venv}
version=${REDFISH_VERSION:-2.2.0}
pidfile=$dir/redfish.pid
log=$dir/redfish.log

say() { echo "redfish-up: $*" >&2; }

# alive: the pid file names a live process that runs on our configuration.
alive() {
  [ -s "$pidfile" ] || return 1
  local pid
  pid=$(cat "$pidfile")
  kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$dir/peer.json"
}

if alive; then
  say "already running"
  echo "$dir/redfish.env"
  exit 0
fi
case $net in 127.*.*) ;; *) say "REDFISH_NET must lie in 127/8" && exit 2 ;; esac

python=$venv/bin/python
if ! "$python" -c 'import sys; from importlib.metadata import version as v; sys.exit(v("sushy-tools") != sys.argv[1])' "$version" 2>/dev/null; then
  say "installing sushy-tools $version"
  python3 -m venv --clear "$venv" >"$dir/pip.log" 2>&1 || {
    say "no virtual environment can be made: install python3-venv" && tail -n 5 "$dir/pip.log" >&2
    exit 1
  }
  "$python" -m pip install -q --disable-pip-version-check "sushy-tools==$version" >>"$dir/pip.log" 2>&1 || { tail -n 20 "$dir/pip.log" >&2 && exit 1; }
fi

addresses=()
names=DNS:localhost,IP:127.0.0.1
for i in $(seq 1 "$count"); do
  addresses+=("$net.$i")
  names=$names,IP:$net.$i
done

# One certificate for all the addresses, from an authority of our own.
(
  cd "$dir/tls"
  [ "$(cat names 2>/dev/null)" != "$names" ] || exit 0
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 800 -subj '/CN=redfish tests' \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign'
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj '/CN=bmc'
  printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$names" >extensions
  openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 800 -extfile extensions -out server.crt
  echo "$names" >names
) >"$dir/tls/openssl.log" 2>&1 || { tail -n 5 "$dir/tls/openssl.log" >&2 && exit 1; }

"$python" - "$dir" "$port" "${REDFISH_DELAY:-0.3,0.8}" "${REDFISH_SHELVES:-0}" "${REDFISH_POWER:-Off}" "${REDFISH_LOSING:-}" "${addresses[@]}" >"$dir/peer.json" <<'PY'
import json, sys
d, port, delay, shelves, power, losing, *addresses = sys.argv[1:]
json.dump({'dir': d, 'port': int(port), 'delay': [float(x) for x in delay.split(',')], 'addresses': addresses, 'shelves': int(shelves), 'power': power, 'losing': losing,
           'cert': d + '/tls/server.crt', 'key': d + '/tls/server.key'}, sys.stdout)
PY
: >"$log"
setsid nohup "$python" "$here/redfish-emulator.py" "$dir/peer.json" </dev/null >>"$log" 2>&1 &
echo $! >"$pidfile"

deadline=$(($(date +%s) + ${REDFISH_WAIT:-60}))
until curl -sf --noproxy '*' --cacert "$dir/tls/ca.crt" -u admin:secret "https://${addresses[-1]}:$port/redfish/v1/Systems" >/dev/null; do
  if ! alive; then
    say "it ended at its start:" && tail -n 20 "$log" >&2
    exit 1
  fi
  if [ "$(date +%s)" -ge "$deadline" ]; then
    say "it does not answer:" && tail -n 20 "$log" >&2
    "$here/redfish-down.sh" "$dir"
    exit 1
  fi
  sleep 0.2
done

cat >"$dir/redfish.env" <<EOF
REDFISH_ADDRESSES=$(IFS=,; echo "${addresses[*]}")
REDFISH_PORT=$port
REDFISH_CA=$dir/tls/ca.crt
REDFISH_LOGIN=admin:secret
REDFISH_JOURNAL=$dir/journal
EOF
say "$count BMCs at $net.1 and on, port $port"
echo "$dir/redfish.env"
