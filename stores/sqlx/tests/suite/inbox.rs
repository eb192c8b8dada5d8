//! The transactional inbox, on each database.
mod mysql;
mod postgres;
mod sqlite;
mod stores_without_transactions;

use std::fmt;

use idempotent_core::{Call, ClaimRequest, Identity, Key, Outcome, Rejection, Scene};

fn call(key: &str) -> Call {
    Call::new(Identity::new(Scene::Named("inbox".into()), "tests", key))
}

/// The key of [`call`].
fn key(part: &str) -> Key {
    Identity::new(Scene::Named("inbox".into()), "tests", part).key("idempotent").unwrap()
}

fn request(part: &str) -> ClaimRequest {
    ClaimRequest::new(key(part)).unwrap()
}

/// A handler's error.
#[derive(Debug)]
enum Failure {
    Rejected(Rejection),
    Own(&'static str),
    Sql,
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(_: sqlx::Error) -> Self {
        Self::Sql
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Own(text) => f.write_str(text),
            Self::Sql => f.write_str("a statement failed"),
        }
    }
}

#[track_caller]
fn released(outcome: Option<Outcome>) {
    assert!(matches!(outcome, Some(Outcome::Released { .. })), "{outcome:?}");
}
