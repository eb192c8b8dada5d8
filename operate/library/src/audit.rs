//! The audit of repairs.
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use idempotent_core::{Entropy, OsEntropy};
use serde::{Deserialize, Serialize};

use crate::OperateError;

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
    /// The action: `forget`, `release`, `redrive`, `discard`, `resend` or `void`.
    pub action: String,
    /// The URL of the store, of the queue or of the outbox, with masked passwords.
    pub target: String,
    /// The storage key, the selection of dead letters, the [names](crate::LetterSummary::subject) of a dead letter, or the id of a
    /// message of an outbox.
    pub subject: String,
    /// The fencing number that the author saw, or 0 for a dead letter without a key.
    pub fencing: u64,
    /// The author's reason.
    pub reason: String,
    /// The result: `done`, `gone`, `changed: STATE` or `failed: ERROR`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

impl AuditEntry {
    /// Creates the fields that all entries of an author have in common.
    ///
    /// # Errors
    /// [`Author`](OperateError::Author) if `by` has not 1 to 255 bytes, if `reason` has not 1 to 4,096, or if one of
    /// them contains a control character.
    pub(crate) fn of_author((by, reason): (&str, &str), via: &str, target: &str) -> Result<Self, OperateError> {
        check("author", by, 255, "1 to 255 bytes without control characters")?;
        check("reason", reason, 4_096, "1 to 4,096 bytes without control characters")?;
        Ok(Self {
            id: String::new(),
            at: String::new(),
            phase: AuditPhase::Intent,
            by: by.to_owned(),
            via: via.to_owned(),
            action: String::new(),
            target: target.to_owned(),
            subject: String::new(),
            fencing: 0,
            reason: reason.to_owned(),
            outcome: None,
        })
    }

    /// Creates the entry of an intent, with a new id.
    pub(crate) fn intent(&self, action: &str, subject: &str, fencing: u64) -> Result<Self, OperateError> {
        let (id, at) = (format!("{:032x}", OsEntropy.bits()?), now());
        Ok(Self { id, at, action: action.to_owned(), subject: subject.to_owned(), fencing, ..self.clone() })
    }

    /// Creates the entry of the result of this intent.
    pub(crate) fn result(&self, outcome: String) -> Self {
        Self { at: now(), phase: AuditPhase::Result, outcome: Some(outcome), ..self.clone() }
    }
}

fn check(field: &'static str, text: &str, most: usize, rule: &'static str) -> Result<(), OperateError> {
    let is_valid = !text.trim().is_empty() && text.len() <= most && !text.contains(char::is_control);
    if is_valid { Ok(()) } else { Err(OperateError::Author { field, rule }) }
}

fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// The audit log of one author's changes of one target.
#[derive(Clone, Debug)]
pub struct AuditTrail {
    sink: Arc<dyn AuditSink>,
    /// The fields that all entries have in common.
    entry: AuditEntry,
}

/// A recorded intent, whose result is still open.
#[derive(Debug)]
#[must_use]
pub struct AuditIntent {
    sink: Arc<dyn AuditSink>,
    entry: AuditEntry,
}

impl AuditTrail {
    /// Creates a trail. `author` is a name and a reason. `target` describes the changed system: pass its URL without
    /// passwords, and its name.
    ///
    /// # Errors
    /// [`Author`](OperateError::Author), as for [`Repairer::new`](crate::Repairer::new).
    pub fn new(sink: Arc<dyn AuditSink>, author: (&str, &str), via: &str, target: &str) -> Result<Self, OperateError> {
        Ok(Self { sink, entry: AuditEntry::of_author(author, via, target)? })
    }

    /// Records the intent of a change of `subject`. Make the change only after this call, and pass its outcome to
    /// [`AuditIntent::end`].
    ///
    /// # Errors
    /// [`Audit`](OperateError::Audit) if the intent cannot be recorded.
    pub fn begin(&self, action: &str, subject: &str) -> Result<AuditIntent, OperateError> {
        let entry = self.entry.intent(action, subject, 0)?;
        self.sink.write(&entry).map_err(OperateError::Audit)?;
        Ok(AuditIntent { sink: self.sink.clone(), entry })
    }
}

impl AuditIntent {
    /// Records the outcome: `done`, `changed: STATE` or `failed: ERROR`. A lost entry is logged as an error, because the change
    /// has happened.
    pub fn end(self, outcome: impl Into<String>) {
        write_result(&*self.sink, &self.entry.result(outcome.into()));
    }
}

/// A destination of audit entries.
pub trait AuditSink: fmt::Debug + Send + Sync {
    /// Writes an entry durably. A repair whose intent cannot be written is not sent.
    ///
    /// # Errors
    /// The entry may be lost.
    fn write(&self, entry: &AuditEntry) -> io::Result<()>;
}

/// Writes the result of a change. The change has happened, so a lost entry must not hide it.
pub(crate) fn write_result(audit: &dyn AuditSink, entry: &AuditEntry) {
    if let Err(error) = audit.write(entry) {
        tracing::error!(%error, id = entry.id, "the result of a change is missing in the audit log");
    }
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
///
/// An entry after a torn line, which a crash or a full disk leaves, begins with a line break.
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
        let path = path.as_ref();
        // A file that this user may only append to is no error. Its entries are separated by empty lines.
        let file = options.clone().read(true).open(path).or_else(|_| options.open(path))?;
        Ok(Self(Mutex::new(file)))
    }
}

/// Returns whether the next entry begins a line. Another process may have torn the last line since the last call.
fn is_at_line_start(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

impl AuditSink for AuditFile {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let line = serde_json::to_string(entry)?;
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line_break = if is_at_line_start(&mut file).unwrap_or(false) { "" } else { "\n" };
        // One write, so that entries of several processes do not mix.
        file.write_all(format!("{line_break}{line}\n").as_bytes())?;
        file.sync_data()
    }
}

/// An audit log in memory for tests, which fails after a number of entries.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct MemoryAudit {
    pub(crate) entries: Mutex<Vec<AuditEntry>>,
    pub(crate) most: usize,
}

#[cfg(test)]
impl AuditSink for MemoryAudit {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == self.most {
            return Err(io::Error::other("the disk is full"));
        }
        entries.push(entry.clone());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn intent() -> AuditEntry {
        AuditEntry::of_author(("ann", "stock corrected"), "cli", "orders")
            .unwrap()
            .intent("forget", "key 17", 3)
            .unwrap()
    }

    #[test]
    fn an_intent_has_an_id_of_its_own_which_its_result_shares() {
        let (one, other) = (intent(), intent());
        assert!(one.id.len() == 32 && one.id != other.id, "{one:?}");
        let result = one.result("done".to_owned());
        assert_eq!((&result.id, result.outcome.as_deref()), (&one.id, Some("done")));
    }

    #[test]
    fn an_entry_is_one_event_of_the_log_with_all_fields() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let _logs =
            idempotent_harness::logs_to(tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish());
        let intent = intent();
        TracingAudit.write(&intent).unwrap();
        TracingAudit.write(&intent.result("done".to_owned())).unwrap();
        let lines = std::fs::read_to_string(log.path()).unwrap();
        let id = format!("id=\"{}\"", intent.id);
        let parts = [
            "idempotent::audit",
            &id,
            "by=\"ann\"",
            "via=\"cli\"",
            "action=\"forget\"",
            "store=\"orders\"",
            "subject=\"key 17\"",
            "fencing=3",
            "reason=\"stock corrected\"",
        ];
        let lines: Vec<_> = lines.lines().collect();
        assert!(
            lines.len() == 2 && lines.iter().all(|line| parts.iter().all(|part| line.contains(part))),
            "{lines:#?}"
        );
        assert!(lines[0].contains("phase=Intent") && lines[1].contains("phase=Result"), "{lines:#?}");
        assert!(lines[1].contains("outcome=\"done\""), "{lines:#?}");
    }
}
