#!/usr/bin/env bash
# What the pooler Odyssey keeps of a session between two statements, with transaction pooling and its defaults.
#
# Version: Odyssey 1.5.2, PostgreSQL 18 (Debian sid). Seen on 2026-11-28.
# Guess: as with PgBouncer, `LISTEN`, `SET` and advisory locks stay on the server connection. Statements of PREPARE are dropped for other
#        clients.
# Seen:  the reverse. After each statement outside a transaction, Odyssey drops channels, settings and advisory locks, although `LISTEN`, `SET`
#        and `pg_advisory_lock` succeed. A statement of PREPARE stays, and another client runs it by its name.
# Effect: a lock for a session protects nothing, also within one connection. Use locks for a transaction (`pg_advisory_xact_lock`).
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
# Odyssey waits for its clients when it is asked to end.
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
unpack "$folder" sid odyssey postgresql-18
mkdir "$folder/data"
as_user=(env)
# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    as_user=(setpriv --reuid nobody --regid nogroup --clear-groups)
    chmod 755 "$folder"
    chown nobody "$folder/data"
fi
bin=$folder/usr/lib/postgresql/18/bin
server=$(free_port)
pooler=$(free_port)
"${as_user[@]}" "$bin/initdb" --pgdata "$folder/data/pg" --username postgres --auth trust >/dev/null
"${as_user[@]}" "$bin/postgres" -D "$folder/data/pg" -p "$server" -k "$folder/data" -c dynamic_shared_memory_type=mmap 2>"$folder/log" &
cat >"$folder/odyssey.conf" <<CONF
daemonize no
log_to_stdout no
log_format "%m\n"
storage "server" { type "remote" host "127.0.0.1" port $server }
database default { user default { authentication "none" storage "server" pool "transaction" pool_size 1 } }
listen { host "127.0.0.1" port $pooler }
CONF
cd "$folder/data"
"${as_user[@]}" "$folder/usr/bin/odyssey" "$folder/odyssey.conf" &
client=("$bin/psql" --host 127.0.0.1 --port "$pooler" --username postgres --no-align --tuples-only --quiet postgres)
for _ in {1..100}; do
    "${client[@]}" --command 'SELECT 1' >/dev/null 2>&1 && break
    sleep 0.2
done
"$folder/usr/bin/odyssey" --version
one_session=$("${client[@]}" 2>/dev/null <<'SQL'
LISTEN changes;
SELECT 'channels: ' || count(*) FROM pg_listening_channels();
SET statement_timeout = '7s';
SELECT 'timeout: ' || current_setting('statement_timeout');
SELECT 'lock: taken' WHERE pg_advisory_lock(7) IS NOT NULL;
SELECT 'still held: ' || pg_advisory_unlock(7);
PREPARE mine AS SELECT 'of the first client';
SQL
)
seen="${one_session//$'\n'/; }; mine: $("${client[@]}" --command 'EXECUTE mine')"
echo "$seen"
[ "$seen" = "channels: 0; timeout: 0; lock: taken; still held: false; mine: of the first client" ]
