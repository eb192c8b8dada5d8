//! Tests of the private servers and of the proxy. `cargo xtask setup` installs the servers.
mod proxy;
mod single;

use std::path::Path;

use idempotent_harness::servers::{MariaDbServer, PostgresServer};

/// A server that starts removes the temporary tables of all other servers in the same folder, whose statements then
/// fail.
#[test]
fn temporary_tables_of_a_mariadb_lie_in_its_own_folder() {
    let server = MariaDbServer::start();
    let folders = server.sql("mysql", "SELECT @@datadir, @@tmpdir");
    let (data, temporary) = folders.trim().split_once('\t').unwrap();
    assert_eq!(Path::new(data).parent(), Some(Path::new(temporary)));
}

#[test]
fn commits_wait_for_the_disk_where_that_is_asked_for() {
    let fsync = |server: PostgresServer| server.psql("postgres", "SHOW fsync");
    assert_eq!((fsync(PostgresServer::start()), fsync(PostgresServer::start_durable())), ("off".into(), "on".into()));
    let flush = |server: MariaDbServer| server.sql("test", "SELECT @@innodb_flush_log_at_trx_commit");
    assert_eq!((flush(MariaDbServer::start()), flush(MariaDbServer::start_durable())), ("2".into(), "1".into()));
}
