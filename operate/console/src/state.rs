//! The state that all requests share.
use std::path::PathBuf;
use std::sync::Arc;

use hmac::{Hmac, Mac};
use idempotent_operate::AuditSink;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use crate::access::{Access, Sessions, Throttle};
use crate::overview::{KeyCounts, Readings, Samples};
use crate::plan::Plans;
use crate::targets::{Readiness, Targets};

/// The state of a console.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) targets: Targets,
    pub(crate) access: Access,
    pub(crate) sessions: Sessions,
    pub(crate) throttle: Throttle,
    pub(crate) readiness: Readiness,
    pub(crate) plans: Plans,
    pub(crate) samples: Samples,
    pub(crate) keys: Readings<KeyCounts>,
    /// The numbers of failed checks and of warnings; `None` for a store without checks.
    pub(crate) checks: Readings<Option<[usize; 2]>>,
    pub(crate) letters: Readings<u64>,
    pub(crate) audit: Arc<dyn AuditSink>,
    /// The file that the audit page reads.
    pub(crate) audit_file: Option<PathBuf>,
    /// Admits one reader of the file at a time.
    pub(crate) audit_reader: Arc<Semaphore>,
    pub(crate) is_read_only: bool,
    /// The accepted values of `Host`. Empty if the host application checks them.
    pub(crate) hosts: Vec<String>,
    pub(crate) has_secure_cookie: bool,
    pub(crate) form_key: FormKey,
}

/// The key of this console's form tokens.
pub(crate) struct FormKey([u8; 32]);

impl std::fmt::Debug for FormKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FormKey")
    }
}

impl FormKey {
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// Returns the form token of a session, or of a user of the host application.
    pub(crate) fn token(&self, session: &str) -> String {
        // HMAC accepts keys of every length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(session.as_bytes());
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn accepts(&self, session: &str, token: &str) -> bool {
        !token.is_empty() && bool::from(self.token(session).as_bytes().ct_eq(token.as_bytes()))
    }
}
