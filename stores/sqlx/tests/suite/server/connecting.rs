//! The text of an error that the client returns while it connects: the address, the cause and the remedy. The same for every server,
//! with a table of its own.
use std::time::Duration;

use idempotent_core::StoreErrorKind;
use idempotent_harness::servers::{CLOSED, HTTP, REDIS, SILENT, stranger};

use super::fixture::{NAME, SCHEME, Store as ServerStore};
use super::setup::refused;

/// An address, and what the error of connecting to it must say.
pub(super) struct Case {
    pub(super) url: String,
    pub(super) kind: StoreErrorKind,
    pub(super) words: Vec<String>,
}

pub(super) fn case(url: impl Into<String>, kind: StoreErrorKind, words: &[&str]) -> Case {
    Case { url: url.into(), kind, words: words.iter().map(|&word| word.into()).collect() }
}

/// Opens a store by each URL, and checks the error.
pub(super) async fn all_are_explained(cases: Vec<Case>) {
    for Case { url, kind, words } in cases {
        let open = ServerStore::builder(&url).timeout(Duration::from_secs(2)).connect().await;
        assert!(open.is_err(), "{url}");
        assert!(!format!("{open:?}").contains("-rsa"), "the remedy of the client: {open:?}");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        refused(open, kind, &words);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    use StoreErrorKind::NotApplied;
    let at = |address: &str| format!("{SCHEME}://me:hunter2@{address}/shop");
    let [silent, closed, redis, http] = [SILENT, CLOSED, REDIS, HTTP].map(stranger);
    let running = format!("check that {NAME} is running, and the host and port");
    let mut cases = vec![
        case(at("127.0.0.1:1"), NotApplied, &["`127.0.0.1:1/shop`", "refused", &running]),
        case(at("no.such.host.invalid:7"), NotApplied, &["`no.such.host.invalid:7/shop`", "check the host name"]),
        case(at(&silent), NotApplied, &[&silent, "no connection", "after 2s", "the host and the port are its own"]),
        case(at(&closed), NotApplied, &[&closed, "closes the connection"]),
    ];
    for address in [redis, http] {
        cases.push(case(at(&address), NotApplied, &[&address, "host", "port"]));
    }
    all_are_explained(cases).await;
}
