#!/usr/bin/env bash
# Starts a real Keystone on loopback for the tests: SQLite, Fernet tokens.
# Idempotent. Makes user admin (project admin, role admin), project service with
# the users ironic and placement (role admin), region RegionOne, and the catalog
# asked for.
#
#   keystone-up.sh DIR [PORT]    DIR gets everything it writes; PORT default 16500
#
# The last line on stdout is the identity endpoint; progress goes to stderr.
# Environment, all optional:
#   KEYSTONE_PASSWORD   of all users (default secret)
#   KEYSTONE_ENDPOINTS  catalog, "type=url type=url", such as "baremetal=http://127.0.0.1:16385"
#   KEYSTONE_EXPIRY     seconds that a token lives (default 3600)
#   KEYSTONE_FRESH      1 drops the database first
#   KEYSTONE_WAIT       seconds to wait until it answers (default 60)
set -euo pipefail

dir=${1:?usage: keystone-up.sh DIR [PORT]}
port=${2:-16500}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
password=${KEYSTONE_PASSWORD:-secret}
url=http://127.0.0.1:$port/v3
pidfile=$dir/keystone.pid
# Debian's own interpreter: another python3 on PATH does not see Debian's modules.
python=/usr/bin/python3

say() { echo "keystone-up: $*" >&2; }

alive() {
  [ -s "$pidfile" ] || return 1
  local pid
  pid=$(cat "$pidfile")
  kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "keystone-loopback $dir "
}

if ! "$python" -c 'import keystone.server.wsgi, waitress' 2>/dev/null; then
  say "installing python3-keystone"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  install() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q \
      --no-install-recommends python3-keystone python3-waitress >"$dir/apt.log" 2>&1
  }
  install || { $sudo apt-get update -q >>"$dir/apt.log" 2>&1 || true; install; } || { tail -20 "$dir/apt.log" >&2; exit 1; }
fi

umask 077
mkdir -p "$dir/fernet" "$dir/credential"
cat >"$dir/keystone.conf" <<CONF
[DEFAULT]
log_file = $dir/keystone.log
use_stderr = false

[database]
connection = sqlite:///$dir/keystone.sqlite
sqlite_synchronous = false

[token]
provider = fernet
expiration = ${KEYSTONE_EXPIRY:-3600}

[fernet_tokens]
key_repository = $dir/fernet

[credential]
key_repository = $dir/credential

[identity]
# cheap hashes: this is a test instance
password_hash_rounds = 4

[oslo_policy]
policy_file = $dir/policy.yaml
CONF
echo '{}' >"$dir/policy.yaml"
export OS_KEYSTONE_CONFIG_DIR=$dir

if ! alive; then
  [ "${KEYSTONE_FRESH:-0}" != 1 ] || rm -f "$dir"/keystone.sqlite* "$dir/bootstrapped"
  if [ ! -e "$dir/bootstrapped" ] || [ ! -s "$dir/keystone.sqlite" ]; then
    : >"$dir/manage.log"
    manage() {
      "$python" /usr/bin/keystone-manage --config-file "$dir/keystone.conf" "$@" >>"$dir/manage.log" 2>&1 ||
        { tail -20 "$dir/manage.log" >&2; exit 1; }
    }
    manage db_sync
    # Without a write-ahead log Keystone locks itself out at its first nested read.
    "$python" -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute("pragma journal_mode=wal")' "$dir/keystone.sqlite"
    manage fernet_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
    manage credential_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
    manage bootstrap --bootstrap-username admin --bootstrap-password "$password" --bootstrap-project-name admin \
      --bootstrap-role-name admin --bootstrap-service-name keystone --bootstrap-region-id RegionOne \
      --bootstrap-public-url "$url" --bootstrap-internal-url "$url" --bootstrap-admin-url "$url"
    touch "$dir/bootstrapped"
  fi

  # Somebody else's server on the port would pass for ours below.
  "$python" -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError as err:
    sys.exit("keystone-up: port %s: %s" % (sys.argv[1], err))
' "$port"

  rm -f "$pidfile"
  cd "$dir"
  setsid nohup env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$python" -c '
import sys
port = int(sys.argv[3])
sys.argv[:] = ["keystone"]
from keystone.server import wsgi
from waitress import serve
serve(wsgi.initialize_public_application(), host="127.0.0.1", port=port, threads=1)
' keystone-loopback "$dir" "$port" </dev/null >"$dir/keystone.out" 2>&1 &
  echo $! >"$pidfile"
fi

# Waits for the first answer, then makes what is missing; each step does nothing where its thing exists.
"$python" - "$url" "$password" "${KEYSTONE_ENDPOINTS:-}" "${KEYSTONE_WAIT:-60}" <<'PY' || { tail -n 20 "$dir/keystone.out" "$dir/keystone.log" >&2 || true; exit 1; }
import json, sys, time, urllib.error, urllib.request

url, password, catalog, patience = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
token = None

def call(method, path, body=None):
    headers = {'Content-Type': 'application/json'}
    if token:
        headers['X-Auth-Token'] = token
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(urllib.request.Request(url + path, data, headers, method=method), timeout=20) as answer:
            text = answer.read()
            return answer.headers, json.loads(text) if text else {}
    except urllib.error.HTTPError as err:
        if err.code == 409:  # it is there
            return err.headers, {}
        sys.exit('keystone-up: %s %s: %d %s' % (method, path, err.code, err.read()[:300]))

deadline = time.time() + float(patience)
while True:
    try:
        opener.open(url, timeout=5).read()
        break
    except OSError:
        if time.time() > deadline:
            sys.exit('keystone-up: no answer in time')
        time.sleep(0.2)

admin = {'name': 'admin', 'domain': {'id': 'default'}, 'password': password}
scope = {'project': {'name': 'admin', 'domain': {'id': 'default'}}}
headers, _ = call('POST', '/auth/tokens', {'auth': {
    'identity': {'methods': ['password'], 'password': {'user': admin}}, 'scope': scope}})
token = headers['X-Subject-Token']

def make(kind, name, **fields):
    call('POST', '/%ss' % kind, {kind: dict(fields, name=name)})
    return call('GET', '/%ss?name=%s' % (kind, name))[1][kind + 's'][0]['id']

project = make('project', 'service', domain_id='default')
role = {r['name']: r['id'] for r in call('GET', '/roles')[1]['roles']}['admin']
for name in 'ironic', 'placement':
    user = make('user', name, domain_id='default', password=password)
    call('PUT', '/projects/%s/users/%s/roles/%s' % (project, user, role))

services = {s['type']: s['id'] for s in call('GET', '/services')[1]['services']}
for entry in catalog.split():
    kind, target = entry.split('=', 1)
    if kind not in services:
        services[kind] = call('POST', '/services', {'service': {'type': kind, 'name': kind}})[1]['service']['id']
    for interface in ('public', 'internal', 'admin'):
        query = '/endpoints?service_id=%s&interface=%s' % (services[kind], interface)
        known = call('GET', query)[1]['endpoints']
        if not known:
            call('POST', '/endpoints', {'endpoint': {
                'service_id': services[kind], 'interface': interface, 'url': target, 'region_id': 'RegionOne'}})
        elif known[0]['url'] != target:
            call('PATCH', '/endpoints/' + known[0]['id'], {'endpoint': {'url': target}})
PY
say "pid $(cat "$pidfile")"
echo "$url"
