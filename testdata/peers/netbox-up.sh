#!/usr/bin/env bash
# Starts a real NetBox on loopback for the tests: the package `netbox` of PyPI
# with a PostgreSQL and a Redis of its own. Idempotent: a second call with the
# same DIR finds the first one running, or starts again what died.
#
#   netbox-up.sh DIR [PORT]      DIR gets everything it writes; PORT default 16800,
#                                PostgreSQL takes PORT+1, Redis PORT+2
#
# Needs Python 3.12 to 3.14 (on PATH or pyenv's) and PostgreSQL's programs, 15 or
# later; redis-server is unpacked from Debian's packages where the machine has none.
# There is no worker of its queues: nothing here waits for what they would do.
#
# The last line on stdout is DIR/netbox.env: the address, the tokens, and what
# netbox-seed.py made. Progress goes to stderr.
# Environment, all optional:
#   NETBOX_VERSION  4.7.3 (default); another one is migrated from nothing, in minutes
#   NETBOX_CACHE    where the packages lie between runs (default DIR/cache)
#   NETBOX_PYTHON   the Python to use
#   NETBOX_PGBIN    the folder of initdb and postgres
#   NETBOX_WAIT     seconds to wait until it answers (default 180)
set -euo pipefail

dir=${1:?usage: netbox-up.sh DIR [PORT]}
port=${2:-16800}
here=$(dirname "$(readlink -f "$0")")
umask 022
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cache=${NETBOX_CACHE:-$dir/cache}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
version=${NETBOX_VERSION:-4.7.3}
url=http://127.0.0.1:$port
pgport=$((port + 1))
redisport=$((port + 2))

say() { echo "netbox-up: $*" >&2; }
die() { say "$@"; exit 1; }

# alive NAME: the pid file's process stands in this instance's folder of that
# name. A pid that somebody else has by now does not.
alive() {
  [ -s "$dir/pid/$1" ] &&
    [ "$(stat -Lc %d:%i "/proc/$(cat "$dir/pid/$1")/cwd" 2>/dev/null)" = "$(stat -c %d:%i "$dir/$1")" ]
}

exec 8>"$dir/lock"
flock 8
mkdir -p "$dir"/{pid,log,conf,run,postgres,redis,gunicorn,media,reports,scripts,static}
if [ -s "$dir/netbox.env" ] && alive postgres && alive redis && alive gunicorn; then
  say "already running"
  echo "$dir/netbox.env"
  exit 0
fi

# --- what to run with

python=
for candidate in ${NETBOX_PYTHON:-} python3.14 python3.13 python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[234].*/bin/python3; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
    python=$("$candidate" -c 'import sys; print(sys.executable)')
    break
  fi
done
[ -n "$python" ] || die "NetBox needs Python 3.12 to 3.14 with venv: install one, or name it by NETBOX_PYTHON"

pgbin=
for candidate in ${NETBOX_PGBIN:-} $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5 -nr); do
  if [ -x "$candidate/initdb" ] && [ "$("$candidate/postgres" -V | sed -E 's/.* ([0-9]+).*/\1/')" -ge 15 ]; then
    pgbin=$candidate
    break
  fi
done
[ -n "$pgbin" ] || die "NetBox needs PostgreSQL 15 or later: install the package postgresql, or name its programs by NETBOX_PGBIN"

exec 9>"$cache/lock"
flock 9 # several instances may share what is installed

# unpack_redis: Debian's own package of this machine's release and the libraries
# that only it needs, downloaded and unpacked; nothing is installed.
unpack_redis() {
  local apt=$cache/apt deb
  mkdir -p "$apt"
  chmod 777 "$apt" # apt downloads as a user of its own
  (cd "$apt" && apt-get -q download redis-server redis-tools $(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances redis-tools | grep -E '^(libjemalloc|liblzf|liblua|libhiredis|libatomic|lua-)' | sort -u)) >"$dir/log/redis-download.log" 2>&1 ||
    { tail -n 5 "$dir/log/redis-download.log" >&2; die "redis-server could not be downloaded: is apt-get update needed?"; }
  for deb in "$apt"/*.deb; do dpkg-deb -x "$deb" "$cache/redis"; done
  rm -rf "$apt"
}
redis=$(command -v redis-server || true)
redislib=
if [ -z "$redis" ]; then
  redis=$cache/redis/usr/bin/redis-server
  [ -x "$redis" ] || unpack_redis
  redislib=$(printf '%s\n' "$cache"/redis/usr/lib/*-linux-gnu* | head -n 1)
fi
LD_LIBRARY_PATH=$redislib "$redis" --version >/dev/null || die "redis-server does not run"

venv=$cache/venv-$version-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ ! -f "$venv/complete" ]; then
  say "installing netbox $version"
  rm -rf "$venv"
  {
    "$python" -m venv "$venv" &&
      "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "netbox==$version" &&
      # Its own pins, without the programs that build its documentation, and with
      # psycopg's ready-made C part in place of one that needs a compiler.
      "$venv/bin/python" -c '
import importlib.metadata, re
for r in importlib.metadata.requires("netbox"):
    name = re.match(r"[\w.-]+", r).group(0).lower()
    if "extra ==" not in r and name != "zensical" and not name.startswith("mkdocs"):
        print(r.replace("psycopg[c,pool]", "psycopg[binary,pool]"))' >"$venv/requirements.txt" &&
      "$venv/bin/pip" install -q --disable-pip-version-check -r "$venv/requirements.txt"
  } >"$dir/log/pip.log" 2>&1 || { tail -n 20 "$dir/log/pip.log" >&2; die "netbox $version could not be installed"; }
  : >"$venv/complete"
fi
flock -u 9

# --- configuration

secrets=$dir/conf/secrets.env
random() { head -c 64 /dev/urandom | od -An -tx1 | tr -d ' \n' | cut -c"1-$1"; }
if [ ! -s "$secrets" ]; then
  (
    umask 077
    for name in SECRET PEPPER; do echo "$name=$(random 60)"; done
    for name in DATABASE TOKEN TOKEN_READ_ONLY TOKEN_LIMITED TOKEN_NONE; do echo "$name=$(random 40)"; done
  ) >"$secrets"
fi
# shellcheck disable=SC1090
. "$secrets"
: >"$dir/conf/__init__.py"
cat >"$dir/conf/configuration.py" <<CONF
ALLOWED_HOSTS = ['127.0.0.1', 'localhost']
DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'netbox', 'USER': 'netbox', 'PASSWORD': '$DATABASE',
                         'HOST': '127.0.0.1', 'PORT': $pgport, 'CONN_MAX_AGE': 300}}
REDIS = {name: {'HOST': '127.0.0.1', 'PORT': $redisport, 'PASSWORD': '', 'DATABASE': i, 'SSL': False}
         for i, name in enumerate(('tasks', 'caching'))}
SECRET_KEY = '$SECRET'
API_TOKEN_PEPPERS = {1: '$PEPPER'}
TIME_ZONE = 'UTC'
# It speaks to nobody.
CENSUS_REPORTING_ENABLED = False
ISOLATED_DEPLOYMENT = True
RELEASE_CHECK_URL = None
MEDIA_ROOT, REPORTS_ROOT, SCRIPTS_ROOT = '$dir/media', '$dir/reports', '$dir/scripts'
CONF
# The application is loaded once and its workers are forked from it: half the
# memory, and half the start. on_exit leaves out the interpreter's farewell, which
# takes seconds.
cat >"$dir/conf/gunicorn.py" <<CONF
bind = '127.0.0.1:$port'
workers, threads, preload_app = 2, 3, True
timeout, graceful_timeout = 120, 3
chdir, pythonpath, worker_tmp_dir = '$dir/gunicorn', '$dir/conf', '$dir/run'
accesslog, errorlog = '$dir/log/access.log', '$dir/log/gunicorn.log'
control_socket_disable = True
def on_exit(server):
    import os
    os._exit(0)
CONF

# --- daemons

"$here/netbox-down.sh" "$dir" # what died in part, or was left behind by a kill
for p in "$port" "$pgport" "$redisport"; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then die "port $p is taken: choose another PORT"; fi
done

# daemon NAME COMMAND...: starts it in the folder by which it is known later.
daemon() {
  local name=$1
  shift
  (cd "$dir/$name" && exec setsid nohup "$@" </dev/null >"$dir/log/$name.out" 2>&1 8>&- 9>&-) &
  echo $! >"$dir/pid/$name"
}
# until_ok NAME SECONDS COMMAND...: waits for a command to succeed while the daemon lives.
until_ok() {
  local name=$1 deadline=$(($(date +%s) + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if ! alive "$name" || [ "$(date +%s)" -ge "$deadline" ]; then
      tail -n 20 "$dir/log/$name".* >&2 || true
      die "$name does not answer"
    fi
    sleep 0.2
  done
}

as=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root
  owner=nobody
  if id postgres >/dev/null 2>&1; then owner=postgres; fi
  chown "$owner" "$dir/postgres"
  as=(setpriv "--reuid=$owner" "--regid=$(id -g "$owner")" --clear-groups)
  "${as[@]}" test -x "$dir/postgres" || die "the user $owner cannot enter $dir: choose a DIR that others may enter"
fi
chmod 700 "$dir/postgres"
in_pg() { (cd "$dir/postgres" && env HOME="$dir/postgres" LC_ALL=C.UTF-8 "${as[@]}" "$@"); }
sql() { # USER DATABASE ARGS...
  local user=$1 database=$2
  shift 2
  in_pg env "PGPASSWORD=$DATABASE" PGCONNECT_TIMEOUT=5 PGOPTIONS=-cclient_min_messages=warning \
    "$pgbin/psql" -h 127.0.0.1 -p "$pgport" -U "$user" -d "$database" -v ON_ERROR_STOP=1 -qAtX "$@"
}
if [ ! -s "$dir/postgres/PG_VERSION" ]; then
  (umask 077 && echo "$DATABASE" >"$dir/run/pw")
  [ ${#as[@]} = 0 ] || chown "$owner" "$dir/run/pw"
  in_pg "$pgbin/initdb" -D "$dir/postgres" -U postgres -E UTF8 --locale=C.UTF-8 --auth=scram-sha-256 \
    --pwfile="$dir/run/pw" --no-sync >"$dir/log/initdb.log" 2>&1 || { cat "$dir/log/initdb.log" >&2; die "initdb failed"; }
  rm -f "$dir/run/pw"
fi
daemon postgres env LC_ALL=C.UTF-8 "${as[@]}" "$pgbin/postgres" -D "$dir/postgres" -p "$pgport" -h 127.0.0.1 -k '' \
  -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=64MB -c max_connections=60 -c jit=off
cat >"$dir/redis/redis.conf" <<CONF
bind 127.0.0.1
port $redisport
dir $dir/redis
save ""
maxmemory 256mb
logfile $dir/log/redis.log
CONF
daemon redis env "LD_LIBRARY_PATH=$redislib" "$redis" "$dir/redis/redis.conf"
until_ok postgres 30 sql postgres postgres -c 'select 1'
until_ok redis 30 bash -c "exec 3<>/dev/tcp/127.0.0.1/$redisport"

# --- schema, users, what is in it

environment=(env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u PYTHONPATH
  "NETBOX_ROOT=$dir" "HOME=$dir/run" LC_ALL=C.UTF-8 PYTHONWARNINGS=ignore)
if [ ! -f "$dir/conf/migrated" ]; then
  sql postgres postgres >/dev/null <<SQL
drop database if exists netbox;
drop role if exists netbox;
create role netbox login password '$DATABASE';
create database netbox owner netbox;
SQL
  schema=$here/netbox-schema-$version.sql.gz # what its own migrations make, dumped
  if [ -s "$schema" ]; then
    gunzip -c "$schema" | sql netbox netbox -1 >"$dir/log/schema.log" 2>&1 || { tail -n 5 "$dir/log/schema.log" >&2; die "the schema does not load"; }
  else
    say "migrating from nothing: this takes minutes"
    (cd "$dir/run" && "${environment[@]}" "$venv/bin/netbox" migrate --no-input) >"$dir/log/migrate.log" 2>&1 ||
      { tail -n 20 "$dir/log/migrate.log" >&2; die "the migrations failed"; }
  fi
  : >"$dir/conf/migrated"
fi
(cd "$dir/run" && "${environment[@]}" "TOKEN=$TOKEN" "TOKEN_READ_ONLY=$TOKEN_READ_ONLY" "TOKEN_LIMITED=$TOKEN_LIMITED" "TOKEN_NONE=$TOKEN_NONE" \
  "$venv/bin/python" "$here/netbox-seed.py" "$dir/conf/seed.env") >"$dir/log/seed.log" 2>&1 || { tail -n 20 "$dir/log/seed.log" >&2; die "the seed failed"; }

daemon gunicorn "${environment[@]}" "$venv/bin/python" -m gunicorn -c "$dir/conf/gunicorn.py" netbox.wsgi:application
ask='import sys, urllib.request as u
u.build_opener(u.ProxyHandler({})).open(u.Request(sys.argv[1] + "/api/status/", headers={"Authorization": "Token " + sys.argv[2]}), timeout=20)'
until_ok gunicorn "${NETBOX_WAIT:-180}" "$python" -c "$ask" "$url" "$TOKEN"

(
  umask 077
  {
    echo "NETBOX_URL=$url"
    echo "NETBOX_VERSION=$version"
    grep '^TOKEN' "$secrets" | sed 's/^/NETBOX_/'
    cat "$dir/conf/seed.env"
  } >"$dir/netbox.env"
)
say "NetBox $version answers at $url"
echo "$dir/netbox.env"
