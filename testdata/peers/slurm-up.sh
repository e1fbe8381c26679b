#!/bin/bash
# slurm-up.sh DIR: start a real SLURM cluster (slurmctld, slurmd, slurmrestd) on loopback.
#
# Nothing is installed: apt fetches Debian's packages with a state directory of
# its own, dpkg-deb unpacks them, and the daemons run chrooted there, in mount
# and UTS namespaces of their own. Needs root, apt, unshare and about 160 MB for
# each suite. Running it again while the cluster is up only prints slurm.env.
#
# It leaves in DIR:
#   slurm.env      how to reach the cluster, for tests and for a site file
#   slurm          runs a client command: DIR/slurm scontrol show node n0001
#   slurm-daemon   start|term|kill|pause|cont of one daemon (slurmctld, slurmrestd, slurmd-n0001, ...)
#
# Settings, all optional, from the environment:
#   SLURM_SUITE      bookworm: 22.05, API up to v0.0.38 | trixie: 24.11, up to v0.0.42 (default) | forky: 26.05, up to v0.0.45
#   SLURM_NODES      nodes that the API shows, n0001 and on (64)
#   SLURM_LIVE       how many of them have a slurmd and run jobs (4)
#   SLURM_SIM        how the others look: idle (default) | cloud (powered down) | unknown
#   SLURM_BASE_PORT  first of 11+LIVE free loopback ports (26800 bookworm, 26850 trixie, 26900 forky)
#   SLURM_ROOTS      where unpacked packages are kept (DIR); several clusters may share it
#   SLURM_SLURMD_TIMEOUT (30), SLURM_RETURN_TO_SERVICE (1), SLURM_EXTRA_CONF (more lines for slurm.conf)
set -euo pipefail

say() { echo "slurm-up: $*" >&2; }
die() { say "$*"; exit 1; }

[ $# -eq 1 ] || { echo "usage: slurm-up.sh DIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || die "must be root: it mounts and changes root"
HERE=$(dirname "$(readlink -f "$0")")
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
[ ${#DIR} -lt 70 ] || die "the path of DIR is too long: a unix socket's path ends at 107 bytes"

SUITE=${SLURM_SUITE:-trixie}
case $SUITE in
  bookworm) default_port=26800 ;;
  trixie) default_port=26850 ;;
  *) default_port=26900 ;;
esac
NODES=${SLURM_NODES:-64}
LIVE=${SLURM_LIVE:-4}
[ "$LIVE" -le "$NODES" ] || LIVE=$NODES
SIM=${SLURM_SIM:-idle}
mkdir -p "${SLURM_ROOTS:-$DIR}"
ROOTS=$(cd "${SLURM_ROOTS:-$DIR}" && pwd)
ROOT=$ROOTS/root-$SUITE
CLUSTER=$DIR/cluster
CTLD_PORT=${SLURM_BASE_PORT:-$default_port}
REST_PORT=$((CTLD_PORT + 1))
SLURMD_PORT=$((CTLD_PORT + 10))

# ---- already up? ------------------------------------------------------------

# alive PIDFILE: the process is there and has this cluster as its /cluster.
alive() {
  [ -s "$1" ] && [ "$(stat -Lc %d:%i "/proc/$(cat "$1")/root/cluster" 2>/dev/null)" = "$(stat -c %d:%i "$CLUSTER")" ]
}
if alive "$CLUSTER/pid/slurmctld" && alive "$CLUSTER/pid/slurmrestd"; then
  say "already running"
  cat "$DIR/slurm.env"
  exit 0
fi
[ ! -d "$CLUSTER/pid" ] || "$HERE/slurm-down.sh" "$DIR" >&2 || true

# ---- packages ---------------------------------------------------------------

# mirror prints the Debian mirror that this machine already uses.
mirror() {
  local found
  found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -v security | head -n 1) || true
  if [ -z "$found" ]; then # apt has no package lists yet
    found=$(sed -nE 's/^URIs: *([^ ]*debian)\/?$/\1/p; s/^deb (\[[^]]*\] )?([^ ]*debian)\/? .*/\2/p' \
      /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1) || true
  fi
  echo "$found"
}

# fetch unpacks SLURM and all that it needs into $ROOT. dpkg's status is empty,
# so apt resolves the whole closure; no script of a package is run.
fetch() {
  local uri key=/usr/share/keyrings/debian-archive-keyring.gpg work=$ROOTS/apt-$SUITE new=$ROOT.new apt d
  uri=$(mirror)
  [ -n "$uri" ] || die "apt's configuration names no Debian mirror"
  [ -s "$key" ] || die "$key is missing: install debian-archive-keyring"
  rm -rf "$work" "$new"
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial}
  : > "$work/state/status"
  echo "deb [signed-by=$key] $uri $SUITE main" > "$work/sources.list"
  apt=(apt-get -q
    -o "Dir::State=$work/state" -o "Dir::State::status=$work/state/status" -o "Dir::Cache=$work/cache"
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o Acquire::Retries=3 -o APT::Keep-Downloaded-Packages=true -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2
  "${apt[@]}" -y --no-install-recommends --download-only install \
    slurmctld slurmd slurmrestd slurm-client slurm-wlm-jwt-plugin munge \
    base-files base-passwd bash coreutils dash libc-bin netbase >&2

  mkdir -p "$new"/usr/{bin,sbin,lib,lib64}
  for d in bin sbin lib lib64; do ln -s "usr/$d" "$new/$d"; done
  for d in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$d" | tar -C "$new" --keep-directory-symlink -xpf -
  done
  for d in slurmctld slurmd slurmstepd; do ln -sf "$d-wlm" "$new/usr/sbin/$d"; done # what update-alternatives does
  furnish "$new"
  rm -rf "$work" "$ROOT"
  mv "$new" "$ROOT"
}

# furnish makes an unpacked tree one that can be changed root to.
furnish() {
  local root=$1 line
  cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
  cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
  for line in slurm:64030 restd:64031 munge:64032 alice:2001 bob:2002; do
    echo "${line%:*}:x:${line#*:}:${line#*:}::/tmp:/bin/sh" >> "$root/etc/passwd"
    echo "${line%:*}:x:${line#*:}:" >> "$root/etc/group"
  done
  echo '127.0.0.1 localhost ctl' > "$root/etc/hosts"
  printf 'passwd: files\ngroup: files\nhosts: files\n' > "$root/etc/nsswitch.conf"
  mkdir -p "$root"/{cluster,proc,sys,dev,run,tmp,etc/slurm,var}
  chmod 1777 "$root/tmp"
  ln -sf /cluster/etc/slurm.conf "$root/etc/slurm/slurm.conf"
  rm -rf "$root/var/run" "$root"/usr/share/{doc,man,locale,info}
  ln -s /run "$root/var/run"
  chroot "$root" /sbin/ldconfig
  chroot "$root" /usr/sbin/slurmctld -V > /dev/null
  chroot "$root" /usr/sbin/slurmrestd -V > /dev/null
}

exec 9> "$ROOTS/.lock-$SUITE"
flock 9
[ -x "$ROOT/usr/sbin/slurmrestd" ] || fetch
exec 9>&-
VERSION=$(chroot "$ROOT" /usr/sbin/slurmctld -V | awk '{print $2}')
RELEASE=$(echo "$VERSION" | awk -F. '{print $1 * 100 + $2}') # 2205, 2411, 2605

# ---- configuration ----------------------------------------------------------

name() { printf 'n%04d' "$1"; }
range() { printf 'n[%04d-%04d]' "$1" "$2"; }

rm -rf "$CLUSTER"
mkdir -p "$CLUSTER"/{etc,state,spool,log,pid,cmd,dev,sock,run/{slurmctld,slurm,munge,slurmrestd}}
chmod 755 "$CLUSTER" "$CLUSTER"/{etc,log,pid,run}
chmod 777 "$CLUSTER/sock"
chown 64030:64030 "$CLUSTER/state" "$CLUSTER/log"
chown 64032:64032 "$CLUSTER/run/munge"

secret() { head -c "$2" /dev/urandom > "$1"; chmod 600 "$1"; }
secret "$CLUSTER/etc/jwt_hs256.key" 32
if [ "$RELEASE" -ge 2405 ]; then
  AUTH=slurm
  secret "$CLUSTER/etc/slurm.key" 1024
else
  AUTH=munge
  mkdir -p "$CLUSTER/etc/munge"
  secret "$CLUSTER/etc/munge/munge.key" 1024
  chmod 700 "$CLUSTER/etc/munge"
  chown -R 64032:64032 "$CLUSTER/etc/munge"
fi

configuration() {
  cat <<CONF
ClusterName=test
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort=$CTLD_PORT
SlurmdPort=$SLURMD_PORT
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/$AUTH
CredType=cred/$AUTH
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/cluster/etc/jwt_hs256.key
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/cluster/state
SlurmdSpoolDir=/cluster/spool/%n
SlurmctldPidFile=/cluster/run/slurmctld.pid
SlurmdPidFile=/cluster/run/slurmd-%n.pid
SlurmctldLogFile=/cluster/log/slurmctld.log
SlurmdLogFile=/cluster/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,sched_interval=1,defer_batch=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PropagateResourceLimits=NONE
PropagatePrioProcess=0
SlurmdParameters=config_overrides
ReturnToService=${SLURM_RETURN_TO_SERVICE:-1}
RebootProgram=/bin/true
SuspendProgram=/bin/true
ResumeProgram=/bin/true
ResumeTimeout=30
SuspendTimeout=5
SuspendTime=8640000
SuspendExcParts=main,live
SlurmctldTimeout=30
SlurmdTimeout=${SLURM_SLURMD_TIMEOUT:-30}
TreeWidth=$([ "$RELEASE" -ge 2311 ] && echo 65000 || echo 2000)
InactiveLimit=0
KillWait=2
MinJobAge=300
MaxNodeCount=$((NODES + 64))
MailProg=/bin/true
NodeName=$(range 1 "$LIVE") NodeHostname=ctl NodeAddr=127.0.0.1 Port=[$SLURMD_PORT-$((SLURMD_PORT + LIVE - 1))] CPUs=4 RealMemory=4000 Gres=gpu:h100:2 Features=live,rack1 Weight=1 State=UNKNOWN
PartitionName=main Nodes=$(range 1 "$NODES") Default=YES MaxTime=INFINITE State=UP
PartitionName=live Nodes=$(range 1 "$LIVE") MaxTime=1:00:00 State=UP
CONF
  if [ "$LIVE" -lt "$NODES" ]; then
    local state=UNKNOWN
    case $SIM in cloud) state=CLOUD ;; idle) state=DOWN ;; esac
    # All simulated nodes have the address of one more slurmd, which answers
    # every ping whoever it is for: so they do not stop responding.
    echo "NodeName=$(range $((LIVE + 1)) "$NODES") NodeHostname=ctl NodeAddr=127.0.0.1 Port=$((SLURMD_PORT + LIVE)) CPUs=64 RealMemory=256000 Features=sim,rack2 Weight=1000 State=$state"
  fi
  printf '%b\n' "${SLURM_EXTRA_CONF:-}"
}
configuration > "$CLUSTER/etc/slurm.conf"
if [ "$RELEASE" -ge 2311 ]; then
  echo "CgroupPlugin=disabled" > "$CLUSTER/etc/cgroup.conf"
else
  printf 'CgroupAutomount=no\nConstrainCores=no\n' > "$CLUSTER/etc/cgroup.conf"
fi
for i in 0 1; do # a GPU's device file must exist
  mknod -m 666 "$CLUSTER/dev/gpu$i" c 1 3 2>/dev/null || : > "$CLUSTER/dev/gpu$i"
done
echo "NodeName=$(range 1 "$LIVE") Name=gpu Type=h100 File=/cluster/dev/gpu[0-1]" > "$CLUSTER/etc/gres.conf"

# ---- tools left in DIR ------------------------------------------------------

# Every program is exec'd down to the last, so that a pid file names the daemon.
cat > "$CLUSTER/enter" <<'ENTER'
#!/bin/bash
# enter ROOT CLUSTER CMD...: run CMD in the cluster's root, on a host named ctl
exec unshare -m -u --propagation private /bin/bash -c '
  root=$1 cluster=$2
  shift 2
  hostname ctl 2>/dev/null || echo ctl > /proc/sys/kernel/hostname
  mount --bind "$cluster" "$root/cluster"
  mount --bind "${ENTER_RUN:-$cluster/run}" "$root/run"
  for d in proc dev sys; do mount --rbind "/$d" "$root/$d"; done
  exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C SLURM_CONF=/cluster/etc/slurm.conf \
    ${SLURM_JWT+SLURM_JWT="$SLURM_JWT"} ${SLURMRESTD_SECURITY+SLURMRESTD_SECURITY="$SLURMRESTD_SECURITY"} "$@"' enter "$@"
ENTER
cat > "$DIR/slurm" <<SH
#!/bin/bash
# slurm CMD...: run a client command of SLURM in the cluster
exec "$CLUSTER/enter" "$ROOT" "$CLUSTER" "\$@"
SH
cat > "$DIR/slurm-daemon" <<SH
#!/bin/bash
# slurm-daemon start|term|kill|pause|cont NAME
file="$CLUSTER/pid/\$2"
running() { kill -0 "\$(cat "\$file" 2>/dev/null)" 2>/dev/null; }
case \$1 in
  start)
    running && exit 0
    . "$CLUSTER/cmd/\$2"
    setsid "$CLUSTER/enter" "$ROOT" "$CLUSTER" "\${CMD[@]}" < /dev/null >> "$CLUSTER/log/\$2.out" 2>&1 &
    echo \$! > "\$file" ;;
  pause) kill -STOP "\$(cat "\$file")" ;;
  cont) kill -CONT "\$(cat "\$file")" ;;
  term|kill)
    kill -s "\${1^^}" "\$(cat "\$file")"
    for _ in {1..600}; do # a controller waits for what it asked of a node that is gone
      running || { rm -f "\$file"; exit 0; }
      sleep 0.1
    done
    echo "\$2 does not end" >&2
    exit 1 ;;
  *) echo "usage: slurm-daemon start|term|kill|pause|cont NAME" >&2; exit 2 ;;
esac
SH
chmod +x "$CLUSTER/enter" "$DIR/slurm" "$DIR/slurm-daemon"

# ---- start ------------------------------------------------------------------

# daemon NAME CMD...: note the command with the environment it needs, start it.
daemon() {
  local which=$1
  shift
  {
    { declare -p SLURM_JWT SLURMRESTD_SECURITY ENTER_RUN 2>/dev/null || true; } | sed 's/^declare -[a-zA-Z-]* /export /'
    printf 'CMD=('
    printf '%q ' "$@"
    echo ')'
  } > "$CLUSTER/cmd/$which"
  "$DIR/slurm-daemon" start "$which"
}
# await SECONDS WHAT CMD...: until CMD succeeds; else stop everything and fail.
await() {
  local seconds=$1 what=$2
  shift 2
  for _ in $(seq $((seconds * 10))); do
    "$@" > /dev/null 2>&1 && return 0
    sleep 0.1
  done
  say "$what did not come up in $seconds s; logs are in $CLUSTER/log"
  grep -hE 'fatal|error' "$CLUSTER"/log/* | tail -n 20 >&2
  "$HERE/slurm-down.sh" "$DIR" >&2
  exit 1
}
listens() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
all_idle() { [ "$("$DIR/slurm" sinfo -h -N -p live -t idle -o %t | grep -cx idle)" = "$LIVE" ]; }

for port in "$CTLD_PORT" "$REST_PORT"; do
  ! listens "$port" || die "port $port is in use: set SLURM_BASE_PORT"
done
BEGAN=$(date +%s.%N)
if [ $AUTH = munge ]; then
  daemon munged /bin/sh -c 'chown munge:munge /run/munge; exec /usr/sbin/munged --foreground --force --key-file=/cluster/etc/munge/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid --seed-file=/run/munge/munged.seed'
  await 10 munged test -S "$CLUSTER/run/munge/munge.socket.2"
fi
# -R keeps every node's state over a restart; without it only DOWN and DRAIN
# come back and the simulated nodes would be down.
daemon slurmctld /usr/sbin/slurmctld -D -R
await 20 slurmctld listens "$CTLD_PORT"

slurmds=$LIVE
if [ "$SIM" = idle ] && [ "$LIVE" -lt "$NODES" ]; then slurmds=$((LIVE + 1)); fi
for i in $(seq 1 "$slurmds"); do
  node=$(name "$i")
  mkdir -p "$CLUSTER/spool/$node" "$CLUSTER/runs/$node/slurm"
  if [ $AUTH = slurm ]; then # each binds /run/slurm/sack.socket: two that share /run fail
    ENTER_RUN=$CLUSTER/runs/$node daemon "slurmd-$node" /usr/sbin/slurmd -D -N "$node"
  else
    daemon "slurmd-$node" /usr/sbin/slurmd -D -N "$node"
  fi
done
[ "$LIVE" = 0 ] || await 30 "the slurmds' registration" all_idle
if [ "$slurmds" -gt "$LIVE" ]; then
  # From UNKNOWN a node cannot be set idle, from DOWN it can; resume would leave
  # it NOT_RESPONDING.
  "$DIR/slurm" scontrol update "nodename=$(range $((LIVE + 1)) "$NODES")" state=idle >&2 || say "not every simulated node is idle"
fi

# Two slurmrestds, one for each way in: SLURM_JWT, which tokens need, breaks
# the socket's own authentication.
if [ "$RELEASE" -ge 2311 ]; then plugins=openapi/slurmctld; else plugins=v0.0.36,v0.0.37,v0.0.38; fi
SLURM_JWT=daemon daemon slurmrestd /usr/sbin/slurmrestd -u restd -g restd -a rest_auth/jwt -s "$plugins" "127.0.0.1:$REST_PORT"
if [ "$RELEASE" -lt 2505 ]; then
  SLURMRESTD_SECURITY=disable_user_check daemon slurmrestd-local /usr/sbin/slurmrestd -a rest_auth/local -s "$plugins" unix:/cluster/sock/restd.sock
else # refuses to run as root: its socket may only read
  daemon slurmrestd-local /usr/sbin/slurmrestd -u restd -g restd -a rest_auth/local -s "$plugins" unix:/cluster/sock/restd.sock
fi
await 20 slurmrestd listens "$REST_PORT"
await 20 "slurmrestd's socket" test -S "$CLUSTER/sock/restd.sock"

# ---- how to reach it --------------------------------------------------------

TOKEN=$("$DIR/slurm" scontrol token username=root lifespan=86400 | sed -n 's/^SLURM_JWT=//p')
case $RELEASE in
  2205) APIS="v0.0.36 v0.0.37 v0.0.38" ;;
  *) APIS=$(cd "$ROOT"/usr/lib/*/slurm-wlm && ls data_parser_v*.so | sed -E 's/data_parser_(v[0-9_]+)\.so/\1/; s/_/./g' | sort -V | paste -sd' ') ;;
esac
cat > "$DIR/slurm.env" <<ENV
SLURM_VERSION=$VERSION
SLURM_REST_URL=http://127.0.0.1:$REST_PORT
SLURM_REST_SOCK=$CLUSTER/sock/restd.sock
SLURM_REST_USER=root
SLURM_REST_TOKEN=$TOKEN
SLURM_JWT_KEY=$CLUSTER/etc/jwt_hs256.key
SLURM_API_VERSIONS="$APIS"
SLURM_NODES=$NODES
SLURM_LIVE=$LIVE
SLURM_CLI=$DIR/slurm
ENV
say "SLURM $VERSION is up after $(echo "$(date +%s.%N) $BEGAN" | awk '{printf "%.1f", $1 - $2}') s: $NODES nodes, $LIVE of them live"
cat "$DIR/slurm.env"
