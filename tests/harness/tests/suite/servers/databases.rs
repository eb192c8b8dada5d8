//! Tests of the private PostgreSQL and MariaDB servers.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use idempotent_harness::servers::{MariaDbServer, PostgresServer};

use crate::servers::eventually;

/// Returns whether the server sends a byte after this greeting.
fn answers(address: &str, greeting: &[u8]) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut first = [0];
    stream.write_all(greeting).and_then(|()| stream.read_exact(&mut first)).is_ok()
}

/// Counts the processes whose working directory is in the folder. None may outlive the server.
fn processes(folder: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let place = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
    all.filter_map(place).filter(|place| place.starts_with(folder)).count()
}

/// Creates a test of one server. `$sql` runs statements, `$folder` queries the data folder, `$row` is a printed row.
macro_rules! is_private {
    ($name:ident, $server:ident, $sql:ident, $system:literal, $folder:literal, $row:literal, $greeting:expr) => {
        #[test]
        fn $name() {
            let server = $server::start();
            let speaks = |server: &$server| answers(&server.address(), $greeting);
            eventually("it speaks", || speaks(&server));
            assert!(server.is_running());
            assert!(server.url().contains(&server.address()));
            assert_eq!(server.database("of this test"), server.url_of("of this test"));
            server.$sql("of this test", "CREATE TABLE kept AS SELECT 17 AS number, 'seventeen' AS name");
            let folder = server.$sql($system, $folder);
            let folder = folder.trim_end_matches('/');
            assert!(processes(folder) > 0);

            server.pause();
            assert!(!speaks(&server) && server.is_running());
            server.resume();
            eventually("it speaks again", || speaks(&server));

            let (pid, address) = (server.pid(), server.address());
            server.kill();
            assert!(!speaks(&server) && !server.is_running());
            assert_eq!(processes(folder), 0);
            server.restart();
            eventually("it speaks after its restart", || speaks(&server));
            assert!(server.address() == address && server.pid() != pid);
            let kept = server.$sql("of this test", "SELECT * FROM kept");
            assert_eq!(kept, $row, "what was committed outlives a kill");

            drop(server);
            assert_eq!(processes(folder), 0);
            assert!(!std::path::Path::new(folder).exists());
        }
    };
}

// The greeting is a request for TLS.
is_private!(
    a_postgresql_is_private_keeps_what_was_committed_and_leaves_nothing_behind,
    PostgresServer,
    psql,
    "postgres",
    "SHOW data_directory",
    "17|seventeen",
    &[0, 0, 0, 8, 4, 210, 22, 47]
);

// The server sends the first byte.
is_private!(
    a_mariadb_is_private_keeps_what_was_committed_and_leaves_nothing_behind,
    MariaDbServer,
    sql,
    "mysql",
    "SELECT @@datadir",
    "17\tseventeen",
    &[]
);

/// A server that starts removes the temporary tables of all other servers in the same folder, whose statements then
/// fail.
#[test]
fn temporary_tables_of_a_mariadb_lie_in_its_own_folder() {
    let server = MariaDbServer::start();
    let folders = server.sql("mysql", "SELECT @@datadir, @@tmpdir");
    let (data, temporary) = folders.trim().split_once('\t').unwrap();
    assert_eq!(std::path::Path::new(data).parent(), Some(std::path::Path::new(temporary)));
}

#[test]
fn commits_wait_for_the_disk_where_that_is_asked_for() {
    let fsync = |server: PostgresServer| server.psql("postgres", "SHOW fsync");
    assert_eq!((fsync(PostgresServer::start()), fsync(PostgresServer::start_durable())), ("off".into(), "on".into()));
    let flush = |server: MariaDbServer| server.sql("test", "SELECT @@innodb_flush_log_at_trx_commit");
    assert_eq!((flush(MariaDbServer::start()), flush(MariaDbServer::start_durable())), ("2".into(), "1".into()));
}
