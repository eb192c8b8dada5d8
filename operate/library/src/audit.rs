//! The audit of repairs.
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The phase of a repair that an entry describes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditPhase {
    /// The repair is about to be sent to the store.
    Intent,
    /// The store has answered, or failed. An intent without a result has an unknown outcome.
    Result,
}

/// An entry of the audit log. It contains no payload and no part of a key but the visible one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The id that an intent and its result share.
    pub id: String,
    /// The time by this machine's clock, RFC 3339 in UTC.
    pub at: String,
    /// The phase.
    pub phase: AuditPhase,
    /// The author.
    pub by: String,
    /// The program: `cli` for the command line.
    pub via: String,
    /// The action: `forget` or `release`.
    pub action: String,
    /// The store's URL, with masked passwords.
    pub target: String,
    /// The storage key.
    pub subject: String,
    /// The fencing number that the author saw.
    pub fencing: u64,
    /// The author's reason.
    pub reason: String,
    /// The result: `done`, `changed: STATE` or `failed: ERROR`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// A destination of audit entries.
pub trait AuditSink: fmt::Debug + Send + Sync {
    /// Writes an entry durably. A repair whose intent cannot be written is not sent.
    ///
    /// # Errors
    /// The entry may be lost.
    fn write(&self, entry: &AuditEntry) -> io::Result<()>;
}

/// An audit log in the program's log: one event of target `idempotent::audit` for each entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingAudit;

impl AuditSink for TracingAudit {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let AuditEntry { id, phase, by, via, action, target, subject, fencing, reason, outcome, .. } = entry;
        tracing::info!(
            target: "idempotent::audit",
            id, ?phase, by, via, action, store = target, subject, fencing, reason, outcome,
        );
        Ok(())
    }
}

/// An audit log in a file, one JSON object per line. Each entry is on disk before its repair continues.
#[derive(Debug)]
pub struct AuditFile(Mutex<File>);

impl AuditFile {
    /// Opens a file for appending, and creates a missing one that only its owner can read.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self(Mutex::new(options.open(path)?)))
    }
}

impl AuditSink for AuditFile {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let line = serde_json::to_string(entry)?;
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One write, so that entries of several processes do not mix.
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    }
}
