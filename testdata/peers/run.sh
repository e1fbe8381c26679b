#!/usr/bin/env bash
# Starts real peers on loopback, runs the tests that speak to them, and stops the
# peers again, however it ends.
#
#   run.sh [flags of go test]
#
# Environment, all optional:
#   PEERS             which to start: ironic, ironic-basic, ironic-keystone (a Keystone with an
#                     Ironic and a Placement), placement, slurm-bookworm (22.05), slurm-trixie
#                     (24.11), slurm-forky (26.05), slurm-trixie-e2e (the same again, for the end-to-end
#                     tests alone), netbox (4.7), redfish (sushy-tools), redfish-validator (DMTF's, run on
#                     the simulator); default all but slurm-trixie-e2e
#   SLURM_ROOTS       where unpacked SLURMs are kept between runs (default ~/.cache/muster/slurm-roots)
#   NETBOX_CACHE      where NetBox's packages are kept (default ~/.cache/muster/netbox)
#   REDFISH_VENV      where sushy-tools is kept (default ~/.cache/muster/sushy-tools)
#   MUSTER_PEER_REDFISH_TREES   a directory of captured trees of BMCs, NAME.json.gz; passed on
#   MUSTER_TEMPORAL_BIN   muster-temporal, on which jobs run (default bin/muster-temporal, of `make temporal`);
#                     without it what needs jobs is skipped
#   PEER_PACKAGES     the packages to test, one after the other (default the adapters, then the end-to-end tests;
#                     those of SLURM's adapter, which wait for its time-outs, beside all others)
#
# It prints each package's result, each skip with its reason, and what failed; with
# -v everything.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$(cd "$here/../.." && pwd)
# The slow ones first.
peers=${PEERS:-netbox ironic-keystone slurm-trixie slurm-bookworm slurm-forky redfish-validator ironic ironic-basic placement redfish}
export SLURM_ROOTS=${SLURM_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/slurm-roots}
export NETBOX_CACHE=${NETBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/netbox}
export REDFISH_VENV=${REDFISH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/muster/sushy-tools}
work=$(mktemp -d /tmp/muster-peers-XXXXXX) # short: SLURM's sockets lie below it
chmod 755 "$work"                          # its daemons run as users of their own

say() { printf 'peers: %s\n' "$*" >&2; }

building= slow=
declare -A pid port
stop() {
  local code=$? name
  trap - EXIT INT TERM
  [ -z "$building" ] || kill "$building" 2>/dev/null || true
  [ -z "$slow" ] || kill "$slow" 2>/dev/null || true
  for name in "${!pid[@]}"; do wait "${pid[$name]}" || true; done # what is still starting cannot be stopped
  for name in $peers; do
    case $name in
      slurm-*) "$here/slurm-down.sh" "$work/$name" || true ;;
      placement) "$here/placement-down.sh" "$work/$name" || true ;;
      netbox) "$here/netbox-down.sh" "$work/$name" || true ;;
      redfish) "$here/redfish-down.sh" "$work/$name" || true ;;
      redfish-validator) ;; # nothing runs
      *) "$here/ironic-down.sh" "$work/$name" || true ;;
    esac
  done
  "$here/placement-down.sh" "$work/placement-keystone" || true
  "$here/keystone-down.sh" "$work/keystone" || true
  if [ "$code" = 0 ]; then rm -rf "$work"; else say "logs are in $work"; fi
  exit "$code"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# block N: the first of N free ports in a row. Others run on this machine too.
block() {
  local first p
  for first in $(shuf -i 20000-26500 -n 200); do # 26960 and on are the end-to-end tests'
    for ((p = first; p < first + $1; p++)); do
      if listens "$p"; then continue 2; fi
    done
    echo "$first"
    return
  done
  say "no $1 free ports in a row"
  return 1
}
next=$(block 192)

mkdir -p "$SLURM_ROOTS"

# up NAME: starts one peer; what it prints last on stdout lands in NAME.out.
up() {
  local name=$1 out=$work/$1.out
  case $name in
    ironic) "$here/ironic-up.sh" "$work/$name" "$2" >"$out" ;;
    ironic-basic) IRONIC_AUTH=http_basic "$here/ironic-up.sh" "$work/$name" "$2" >"$out" ;;
    ironic-keystone)
      KEYSTONE_ENDPOINTS="baremetal=http://127.0.0.1:$2 placement=http://127.0.0.1:$(($2 + 4))" \
        "$here/keystone-up.sh" "$work/keystone" "$3" >"$work/keystone.out"
      local identity beside
      identity=$(tail -n 1 "$work/keystone.out")
      PLACEMENT_AUTH=keystone KEYSTONE_URL=$identity "$here/placement-up.sh" "$work/placement-keystone" "$(($2 + 4))" >"$work/placement-keystone.out" &
      beside=$!
      IRONIC_AUTH=keystone KEYSTONE_URL=$identity "$here/ironic-up.sh" "$work/$name" "$2" >"$out"
      wait "$beside"
      ;;
    placement) "$here/placement-up.sh" "$work/$name" "$2" >"$out" ;;
    netbox) "$here/netbox-up.sh" "$work/$name" "$2" >"$out" ;;
    redfish) "$here/redfish-up.sh" "$work/$name" "$2" >"$out" ;;
    redfish-validator) "$here/redfish-validator-up.sh" >"$out" ;;
    slurm-*)
      local suite=${name#slurm-}
      SLURM_SUITE=${suite%-e2e} SLURM_BASE_PORT=$2 "$here/slurm-up.sh" "$work/$name" >"$out"
      ;;
    *) say "no such peer: $name" && return 1 ;;
  esac
}

say "starting $peers"
for name in $peers; do
  port[$name]=$next
  next=$((next + 16))
done

# begin NAME: starts a peer beside the others, and says how long it took.
begin() {
  local name=$1
  (
    began=$SECONDS
    up "$name" "${port[$name]}" "$((port[$name] + 1))" 2>"$work/$name.err"
    say "$name is up after $((SECONDS - began)) s"
  ) &
  pid[$name]=$!
}

# ready NAME: waits for it.
ready() {
  wait "${pid[$1]}" || { say "$1 did not start:"; tail -n 30 "$work/$1.err" >&2; exit 1; }
}

# On a machine without Ironic's package the first that needs it starts alone: it
# fetches Debian's lists, which the others read, and installs what they share.
if ! /usr/bin/python3 -c 'import ironic' 2>/dev/null; then
  for name in $peers; do
    [[ $name == ironic* ]] || continue
    begin "$name"
    ready "$name"
    break
  done
fi
for name in $peers; do
  [ -n "${pid[$name]:-}" ] || begin "$name"
done

# The tests are built meanwhile, so that none waits for a compiler later.
packages=${PEER_PACKAGES:-./sources/... ./simulator/redfish ./simulator/capture ./cmd/muster/e2e/...}
cd "$root"
# shellcheck disable=SC2086 # a list of packages
nice go test -race -count=1 -exec true $packages >"$work/build.log" 2>&1 & # what does not build the tests tell
building=$!
for name in $peers; do ready "$name"; done
wait "$building" || true
building=
say "all are up, the tests are built after $SECONDS s"

slurms=() alone=
for name in $peers; do
  address=$(tail -n 1 "$work/$name.out")
  case $name in
    ironic) export MUSTER_PEER_IRONIC=$address ;;
    ironic-basic) export MUSTER_PEER_IRONIC_BASIC=http://admin:secret@${address#http://} ;;
    ironic-keystone)
      identity=$(tail -n 1 "$work/keystone.out")
      export MUSTER_PEER_KEYSTONE=http://admin:secret@${identity#http://}
      export MUSTER_PEER_IRONIC_KEYSTONE=$MUSTER_PEER_KEYSTONE MUSTER_PEER_PLACEMENT_KEYSTONE=$MUSTER_PEER_KEYSTONE
      ;;
    placement) export MUSTER_PEER_PLACEMENT=$address ;;
    netbox) export MUSTER_PEER_NETBOX=$address ;;
    redfish) export MUSTER_PEER_REDFISH=$address ;;
    redfish-validator) export MUSTER_PEER_REDFISH_VALIDATOR=$address ;;
    slurm-*-e2e) alone=$work/$name/slurm.env ;;
    slurm-*) slurms+=("$work/$name/slurm.env") ;;
  esac
done
if [ ${#slurms[@]} -gt 0 ]; then
  MUSTER_PEER_SLURM=$(IFS=,; echo "${slurms[*]}")
  export MUSTER_PEER_SLURM
elif [ -n "$alone" ]; then
  export MUSTER_PEER_SLURM=$alone
fi
export MUSTER_PEERS=1 MUSTER_TEMPORAL_BIN=${MUSTER_TEMPORAL_BIN:-$root/bin/muster-temporal}

# tests PACKAGE…: runs them and shows the part of what they say that matters.
tests() {
  local show=(awk -f "$here/report.awk") flag
  for flag in "${flags[@]}"; do
    [[ $flag != -v ]] || show=(cat)
  done
  go test -race -count=1 -timeout 20m -v "${flags[@]}" "$@" 2>&1 | "${show[@]}"
}
flags=("$@")
code=0
if [ -n "${PEER_PACKAGES:-}" ]; then
  # shellcheck disable=SC2086 # a list of packages
  tests -p 1 $PEER_PACKAGES || code=1
else
  tests -parallel 3 ./sources/slurm >"$work/slurm.tests" & # each cluster beside the others
  slow=$!
  # shellcheck disable=SC2046 # a list of packages
  tests $(go list ./sources/... | grep -v '/sources/slurm$') ./simulator/redfish ./simulator/capture || code=1
  slurmed() {
    wait "$slow" || code=1
    slow=
    cat "$work/slurm.tests"
  }
  # Behind those that use the same peers, so behind SLURM's where they have none of their own.
  if [ -n "$alone" ]; then export MUSTER_PEER_SLURM=$alone; else slurmed; fi
  tests ./cmd/muster/e2e/... || code=1
  [ -z "$slow" ] || slurmed
fi
say "ended after $SECONDS s"
exit "$code"
