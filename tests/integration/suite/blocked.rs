//! Handlers that block their runtime, over stores without a server.
use idempotent::{MemoryStore, SqliteStore};
use idempotent_testkit::blocked_handler_keeps_its_key;

#[test]
fn a_blocked_handler_keeps_its_key_in_memory() {
    let store = MemoryStore::new();
    blocked_handler_keeps_its_key(async || store.clone());
}

#[test]
fn a_blocked_handler_keeps_its_key_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocked.db");
    blocked_handler_keeps_its_key(async || SqliteStore::open(path.to_str().unwrap()).await.unwrap());
}
