//! The records that a failover has rolled back, byte by byte.
//!
//! A server that keeps an append-only file writes each change into it before it answers. So a killed primary's file
//! holds all that it ever answered, and its replica holds what has reached it: where they differ the record was lost,
//! and nowhere else.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use idempotent_harness::servers::{Connection, RedisServer, Value};

/// Values by key.
type Image = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys asked for at once.
const MANY: usize = 500;

/// The folder of a server's files; to be asked while it runs.
pub(super) fn folder(server: &RedisServer) -> anyhow::Result<PathBuf> {
    let answer = server.command(&["CONFIG", "GET", "dir"]);
    let folder = answer.items().get(1).context("the server does not say where its files are")?;
    Ok(folder.text().into())
}

/// What the killed primary with this folder had answered, and its replica, not yet promoted, does not hold.
pub(super) fn lost(primary: &Path, replica: &RedisServer) -> anyhow::Result<Vec<String>> {
    let reached = image(replica)?;
    let role = replica.command(&["ROLE"]);
    if role.items().first().is_none_or(|role| role.text() != "slave") {
        bail!("the replica was promoted before it could be read; the machine is too busy for this run to be judged");
    }
    Ok(differences(&answered(primary)?, &reached))
}

/// From the append-only file of a server that is gone, by another one that reads a copy of it.
fn answered(folder: &Path) -> anyhow::Result<Image> {
    let copy = tempfile::tempdir()?;
    let (from, to) = (folder.join("appendonlydir"), copy.path().join("appendonlydir"));
    fs::create_dir(&to)?;
    for file in fs::read_dir(&from).with_context(|| from.display().to_string())? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    image(&RedisServer::builder().aof().arg("--dir").arg(copy.path()).start())
}

fn image(server: &RedisServer) -> anyhow::Result<Image> {
    let mut connection = Connection::to(&server.address())?;
    // A cluster's replica shows its keys only to those that know it for one; others have nothing to say to that.
    connection.ask(&["READONLY"])?;
    let mut image = Image::new();
    let (mut cursor, count) = ("0".to_owned(), MANY.to_string());
    loop {
        let answer = connection.ask(&["SCAN", &cursor, "COUNT", &count])?;
        let [next, keys] = answer.items() else { bail!("SCAN answers {answer:?}") };
        let keys: Vec<Vec<u8>> = keys.items().iter().filter_map(bytes).collect();
        // One by one: in a cluster no two of them lie together.
        for key in &keys {
            connection.send(&[b"GET", &key[..]])?;
        }
        for key in keys {
            let value = connection.answer()?;
            if value.is_error() {
                bail!("{} does not show what it holds: {}", server.address(), value.text());
            }
            // None: its time has come since.
            image.extend(bytes(&value).map(|value| (key, value)));
        }
        cursor = next.text();
        if cursor == "0" {
            return Ok(image);
        }
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

fn differences(one: &Image, other: &Image) -> Vec<String> {
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ = keys.into_iter().filter(|key| one.get(*key) != other.get(*key));
    differ.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use idempotent_harness::servers::RedisReplicas;

    use super::*;

    /// Sets keys to 1, and waits until a replica has them. Over one connection: `WAIT` is about what its own has written.
    pub(in crate::target) fn replicated(primary: &RedisServer, keys: &[&str]) {
        let mut connection = Connection::to(&primary.address()).unwrap();
        for key in keys {
            connection.ask(&["SET", *key, "1"]).unwrap();
        }
        assert_eq!(connection.ask(&["WAIT", "1", "20000"]).unwrap().integer(), Some(1));
    }

    #[test]
    fn acknowledged_writes_that_did_not_reach_the_replica_are_lost_and_nothing_more() {
        let group: RedisReplicas = RedisServer::builder().aof().start_replicas(1);
        let (primary, replica) = (group.primary(), group.replica());
        replicated(primary, &["kept", "changed", "deleted"]);
        let folder = folder(primary).unwrap();
        group.cut_links();
        for command in [&["SET", "changed", "2"][..], &["SET", "new", "1"], &["DEL", "deleted"], &["SET", "kept", "1"]]
        {
            primary.command(command);
        }
        primary.kill();
        assert_eq!(lost(&folder, replica).unwrap(), ["changed", "deleted", "new"]);
    }
}
