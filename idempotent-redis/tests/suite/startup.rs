//! Addresses, certificates, permissions, and checks of real servers.
mod access;
mod health_check;
mod permissions;
mod read_only;
mod server_states;
mod tls;

use idempotent_core::store::{HealthFinding, HealthReport};
use idempotent_core::{Claim, ClaimHandle, Settled, Store, StoreError, StoreErrorKind};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{RedisStore, RedisStoreBuilder};

use crate::support::{ask, done};

const SECRET: &str = "hunter2";

async fn claim(store: &RedisStore, part: &str) -> Result<ClaimHandle, StoreError> {
    let request = ask(part, 7);
    match store.claim(&request).await? {
        Claim::Acquired(grant) => Ok(ClaimHandle::granted(&request, &grant)),
        other => panic!("not free: {other:?}"),
    }
}

/// Claims and completes; a second claim replays.
async fn cycle(store: &RedisStore, part: &str) -> Result<(), StoreError> {
    let held = claim(store, part).await?;
    assert_eq!(store.complete(&held, &done(None)).await?, Settled::Done);
    assert!(matches!(store.claim(&ask(part, 7)).await?, Claim::Consumed(_)));
    Ok(())
}

fn quick(url: String) -> RedisStoreBuilder {
    RedisStore::builder(url).cache(None)
}

/// Returns the text of an error of this kind, and checks that it contains no password.
#[track_caller]
fn said<T: std::fmt::Debug>(result: Result<T, StoreError>, kind: StoreErrorKind, parts: &[&str]) -> String {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!format!("{text} {error:?}").contains(SECRET), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    text
}

#[track_caller]
fn find<'a>(checkup: &'a HealthReport, subject: &str) -> &'a HealthFinding {
    let found = checkup.findings().iter().find(|finding| finding.subject() == subject);
    found.unwrap_or_else(|| panic!("nothing of {subject} in {checkup}"))
}

/// Sets exactly these permissions of a user.
fn allow(server: &RedisServer, user: &str, rule: &str) {
    let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">hunter2"];
    command.extend(rule.split_whitespace());
    assert_eq!(server.command(&command).text(), "OK", "{rule}");
}

/// Returns the rule that an error contains.
fn printed(text: &str) -> String {
    text.split("the whole rule is `").nth(1).unwrap_or_else(|| panic!("{text}")).split('`').next().unwrap().to_owned()
}

/// Checks that the server has refused only optional probes since its log was reset.
fn assert_only_probes_were_refused(server: &RedisServer) {
    let log = server.command(&["ACL", "LOG"]);
    let refused: Vec<_> = log.items().iter().map(|entry| entry.items()[7].text()).collect();
    assert!(refused.iter().all(|command| command.to_lowercase().starts_with("config")), "{refused:?}");
}
