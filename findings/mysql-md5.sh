#!/usr/bin/env bash
# The hash functions MD5 and SHA1 in MySQL, which dedupe keys and partition functions often use.
#
# Version: MySQL 9.7.4 (Debian sid). Seen on 2026-11-28.
# Guess: `MD5()` and `SHA1()` still exist, at most with a warning that they are deprecated.
# Seen:  both are unknown: "FUNCTION d.md5 does not exist" (1305). A generated column over MD5() is refused as one with a disallowed function (3763).
# Effect: schemas and triggers that hash a key by MD5 fail after an upgrade from 8.4. Use SHA2(…, 256).
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
unpack "$folder" sid mysql-server-core mysql-client-core
start_mysql "$folder"
"${mysql[@]}" --execute "SELECT CONCAT('version: ', VERSION()); CREATE DATABASE d"
for expression in "MD5('key')" "SHA1('key')" "LENGTH(SHA2('key', 256))"; do
    seen+="$expression: $("${mysql[@]}" d --execute "SELECT $expression" 2>&1 | grep -oE 'ERROR [0-9]+|^[0-9a-f]+$' || true); "
done
seen+="column: $("${mysql[@]}" d --execute "CREATE TABLE t (k INT, h CHAR(32) AS (MD5(k)) STORED)" 2>&1 | grep -oE 'ERROR [0-9]+' || true)"
echo "$seen"
[ "$seen" = "MD5('key'): ERROR 1305; SHA1('key'): ERROR 1305; LENGTH(SHA2('key', 256)): 64; column: ERROR 3763" ]
"${mysql[@]}" --execute SHUTDOWN
