#!/usr/bin/env bash
# Starts a real Ironic on loopback for the tests: API and conductor in one
# process, SQLite, no message bus, fake-hardware. Idempotent: a second call with
# the same DIR finds the first one running.
#
#   ironic-up.sh DIR [PORT]      DIR gets everything it writes; PORT default 16385
#
# The last line on stdout is the endpoint; progress goes to stderr.
# Environment, all optional:
#   IRONIC_AUTH        noauth (default), http_basic, or keystone (needs KEYSTONE_URL)
#   IRONIC_USER, IRONIC_PASSWORD     of http_basic (default admin, secret)
#   KEYSTONE_URL       such as http://127.0.0.1:16500/v3, from keystone-up.sh
#   KEYSTONE_PASSWORD  of the service user ironic (default secret)
#   IRONIC_MAX_LIMIT   largest page of a listing (default 1000)
#   IRONIC_POWER_SYNC  seconds between power syncs (default 60)
#   IRONIC_CLEAN       automated cleaning: true (default) or false
#   IRONIC_FAKE_{POWER,BOOT,DEPLOY,MANAGEMENT,INSPECT,BIOS,RAID}
#                      seconds that a fake operation takes (default 0, BIOS 2: a manual
#                      clean step then holds the lock long enough to be met)
#   IRONIC_EXTRA       a file whose text is appended to the configuration
#   IRONIC_FRESH       1 drops the database first
#   IRONIC_WAIT        seconds to wait until it answers (default 90)
set -euo pipefail

dir=${1:?usage: ironic-up.sh DIR [PORT]}
port=${2:-16385}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
auth=${IRONIC_AUTH:-noauth}
url=http://127.0.0.1:$port
pidfile=$dir/ironic.pid
log=$dir/ironic.log
# Debian's own interpreter: another python3 on PATH does not see Debian's modules.
python=/usr/bin/python3

say() { echo "ironic-up: $*" >&2; }

# alive: the pid file names a live process that runs on our configuration.
alive() {
  [ -s "$pidfile" ] || return 1
  local pid
  pid=$(cat "$pidfile")
  kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$dir/ironic.conf"
}

# answers PATH: the status of GET PATH and 1 where no conductor in it is dead.
answers() {
  IRONIC_AUTH=$auth "$python" - "$url$1" <<'PY'
import base64, os, sys, urllib.error, urllib.request

request = urllib.request.Request(sys.argv[1], headers={'X-OpenStack-Ironic-API-Version': '1.49'})
if os.environ['IRONIC_AUTH'] == 'http_basic':
    pair = os.environ.get('IRONIC_USER', 'admin') + ':' + os.environ.get('IRONIC_PASSWORD', 'secret')
    request.add_header('Authorization', 'Basic ' + base64.b64encode(pair.encode()).decode())
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        text = answer.read().decode('utf-8', 'replace')
        print(answer.status, int('"conductors"' not in text or '"alive": true' in text))
except urllib.error.HTTPError as err:
    print(err.code, 0)
except OSError:
    print(0, 0)
PY
}

if alive; then
  say "already running, pid $(cat "$pidfile")"
  echo "$url"
  exit 0
fi

# python3-ironic alone holds the whole program. The packages ironic-api and
# ironic-conductor add service units and some forty packages that need them.
if ! "$python" -c 'import ironic.cmd.singleprocess' 2>/dev/null; then
  say "installing python3-ironic"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  install() {
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q \
      --no-install-recommends python3-ironic >"$dir/apt.log" 2>&1
  }
  install || { $sudo apt-get update -q >>"$dir/apt.log" 2>&1 || true; install; } || { tail -20 "$dir/apt.log" >&2; exit 1; }
fi

umask 077
mkdir -p "$dir"/{state,tmp,lock,conf.d,httpboot,tftpboot,images}

if [ "$auth" = http_basic ]; then
  # The cheapest hash there is: the server computes it again on every request.
  "$python" -c '
import bcrypt, sys
user, password = sys.argv[1:]
print(user + ":" + bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode())
' "${IRONIC_USER:-admin}" "${IRONIC_PASSWORD:-secret}" >"$dir/htpasswd"
fi

# fake-hardware may use any enabled interface: the real ones beside the fakes are
# how tests make a node fail. connection_attempts = 1 makes a dead BMC an error at
# once instead of after 16 s. project_admin_can_manage_own_nodes = false lets
# tests give an owner at creation without Keystone.
cat >"$dir/ironic.conf" <<CONF
[DEFAULT]
auth_strategy = $auth
http_basic_auth_user_file = $dir/htpasswd
rpc_transport = none
host = ironic-loopback
my_ip = 127.0.0.1
state_path = $dir/state
tempdir = $dir/tmp
log_file = $log
use_stderr = false
enabled_hardware_types = fake-hardware,redfish
enabled_bios_interfaces = fake,no-bios,redfish
enabled_boot_interfaces = fake,pxe,redfish-virtual-media
enabled_console_interfaces = fake,no-console
enabled_deploy_interfaces = fake,direct,ramdisk
enabled_inspect_interfaces = fake,no-inspect,redfish
enabled_management_interfaces = fake,noop,redfish
enabled_network_interfaces = noop
enabled_power_interfaces = fake,redfish
enabled_raid_interfaces = fake,no-raid,agent
enabled_rescue_interfaces = fake,no-rescue
enabled_storage_interfaces = fake,noop
enabled_vendor_interfaces = fake,no-vendor
default_network_interface = noop
minimum_memory_warning_only = true

[api]
host_ip = 127.0.0.1
port = $port
public_endpoint = $url
api_workers = 1
max_limit = ${IRONIC_MAX_LIMIT:-1000}
project_admin_can_manage_own_nodes = false

[database]
connection = sqlite:///$dir/ironic.sqlite
sqlite_synchronous = false

[conductor]
automated_clean = ${IRONIC_CLEAN:-true}
enable_mdns = false
heartbeat_interval = 5
sync_power_state_interval = ${IRONIC_POWER_SYNC:-60}
power_state_sync_max_retries = 1
check_provision_state_interval = 5
check_allocations_interval = 5
power_failure_recovery_interval = 10
workers_pool_size = 100

[deploy]
http_url = http://127.0.0.1:$((port + 2))
http_root = $dir/httpboot
default_boot_mode = uefi

[pxe]
tftp_root = $dir/tftpboot
tftp_master_path = $dir/tftpboot/master
images_path = $dir/images
instance_master_path = $dir/images/master

[dhcp]
dhcp_provider = none

[service_catalog]
auth_type = none
endpoint_override = $url

[glance]
auth_type = none
endpoint_override = http://127.0.0.1:1

[inspector]
require_managed_boot = false

[redfish]
connection_attempts = 1
connection_retry_interval = 1

[oslo_concurrency]
lock_path = $dir/lock

[fake]
power_delay = ${IRONIC_FAKE_POWER:-0}
boot_delay = ${IRONIC_FAKE_BOOT:-0}
deploy_delay = ${IRONIC_FAKE_DEPLOY:-0}
management_delay = ${IRONIC_FAKE_MANAGEMENT:-0}
inspect_delay = ${IRONIC_FAKE_INSPECT:-0}
bios_delay = ${IRONIC_FAKE_BIOS:-2}
raid_delay = ${IRONIC_FAKE_RAID:-0}
CONF
if [ "$auth" = keystone ]; then
  cat >>"$dir/ironic.conf" <<CONF

[keystone_authtoken]
auth_type = password
auth_url = ${KEYSTONE_URL:?IRONIC_AUTH=keystone needs KEYSTONE_URL}
www_authenticate_uri = $KEYSTONE_URL
username = ironic
password = ${KEYSTONE_PASSWORD:-secret}
project_name = service
user_domain_id = default
project_domain_id = default
CONF
fi
[ -z "${IRONIC_EXTRA:-}" ] || cat "$IRONIC_EXTRA" >>"$dir/ironic.conf"

# create_schema builds the whole schema at once and must run once only.
[ "${IRONIC_FRESH:-0}" != 1 ] || rm -f "$dir"/ironic.sqlite*
if [ ! -e "$dir/schema-made" ] || [ ! -s "$dir/ironic.sqlite" ]; then
  rm -f "$dir"/ironic.sqlite* "$dir/schema-made"
  "$python" -c 'import sys; sys.argv[0] = "ironic-dbsync"; from ironic.cmd.dbsync import main; main()' \
    --config-file "$dir/ironic.conf" --config-dir "$dir/conf.d" create_schema >"$dir/dbsync.log" 2>&1 ||
    { tail -20 "$dir/dbsync.log" >&2; exit 1; }
  touch "$dir/schema-made"
fi

# Somebody else's server on the port would pass for ours below.
"$python" -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except OSError as err:
    sys.exit("ironic-up: port %s: %s" % (sys.argv[1], err))
' "$port"

rm -f "$pidfile"
cd "$dir"
# A bundle of authorities in the environment would outrank a node's redfish_verify_ca.
setsid nohup env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u REQUESTS_CA_BUNDLE -u CURL_CA_BUNDLE \
  "$python" -c 'import sys; sys.argv[0] = "ironic"; from ironic.cmd.singleprocess import main; main()' \
  --config-file "$dir/ironic.conf" --config-dir "$dir/conf.d" </dev/null >"$dir/ironic.out" 2>&1 &
pid=$!
echo "$pid" >"$pidfile"

deadline=$(($(date +%s) + ${IRONIC_WAIT:-90}))
while :; do
  # By the pid alone: until it has become Ironic, nothing shows whose it is.
  if ! kill -0 "$pid" 2>/dev/null; then
    say "Ironic died at start; see $log and $dir/ironic.out"
    tail -n 20 "$dir/ironic.out" "$log" >&2 || true
    exit 1
  fi
  read -r status ok < <(answers /v1/drivers)
  # The API starts after the conductor: with Keystone a refusal says that both run.
  if [ "$auth" = keystone ] && [ "$status" = 401 ]; then break; fi
  if [ "$status" = 200 ]; then
    read -r status ok < <(answers /v1/conductors)
    [ "$status $ok" != "200 1" ] || break
  fi
  if [ "$(date +%s)" -ge "$deadline" ]; then
    say "no answer in time; see $log"
    tail -20 "$log" >&2 || true
    kill "$(cat "$pidfile")"
    rm -f "$pidfile"
    exit 1
  fi
  sleep 0.3
done
say "pid $(cat "$pidfile"), auth $auth"
echo "$url"
