#!/usr/bin/env bash
# INSERT IGNORE with a SELECT that must not wait for a lock.
#
# Version: MySQL 9.7.4 (Debian sid). Seen on 2026-11-28.
# Guess: `INSERT IGNORE INTO t SELECT … FOR SHARE NOWAIT` reports a row that is locked by another transaction as a warning, since IGNORE
#        does so with other errors of a row, such as a duplicate key.
# Seen:  error 3572 ("Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set") ends the statement.
# Effect: a claim by INSERT IGNORE can report "in flight" at once, and still distinguish it from "exists".
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
unpack "$folder" sid mysql-server-core mysql-client-core
start_mysql "$folder"
"${mysql[@]}" --execute "SELECT CONCAT('version: ', VERSION()); CREATE DATABASE d; CREATE TABLE d.t (k INT PRIMARY KEY)"
coproc holder { "${mysql[@]}" --unbuffered d; }
echo "BEGIN; INSERT INTO t VALUES (1); SELECT 'locked';" >&"${holder[1]}"
read -r -u "${holder[0]}" locked
[ "$locked" = locked ]
seen=$("${mysql[@]}" d --execute "INSERT IGNORE INTO t SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM t WHERE k = 1 FOR SHARE NOWAIT)" 2>&1 || true)
echo "$seen"
[[ $seen == *"ERROR 3572"* ]]
echo "COMMIT; SELECT 'done';" >&"${holder[1]}"
read -r -u "${holder[0]}" _
"${mysql[@]}" d --execute "INSERT IGNORE INTO t SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM t WHERE k = 1 FOR SHARE NOWAIT); SELECT CONCAT('rows after the commit: ', ROW_COUNT())" | tee "$folder/after"
grep -qx 'rows after the commit: 0' "$folder/after"
"${mysql[@]}" --execute SHUTDOWN
