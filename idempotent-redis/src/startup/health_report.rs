//! What was found about a store's servers.
use std::fmt;

use idempotent_core::{StoreError, StoreErrorKind};

/// What [`RedisStore::check`](crate::RedisStore::check) found. Prints as a table.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Finding {
    severity: Severity,
    subject: &'static str,
    server: String,
    text: String,
    kind: StoreErrorKind,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, with less than could be promised; the text says what.
    Warn,
    /// Does not work, or would lose records: [`RedisStore::connect`](crate::RedisStore::connect) fails.
    Refuse,
}

impl Checkup {
    pub(crate) fn new(findings: Vec<Finding>) -> Self {
        Self { findings }
    }

    /// All that was looked at, server by server.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The worst of all.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// What forbids to go on, as one error; warnings are events of `tracing`.
    pub(crate) fn judge(&self) -> Result<(), StoreError> {
        for finding in self.findings.iter().filter(|finding| finding.severity == Severity::Warn) {
            tracing::warn!(target: "idempotent", subject = finding.subject, server = %finding.server, "{}", finding.text);
        }
        let refused: Vec<_> = self.findings.iter().filter(|finding| finding.severity == Severity::Refuse).collect();
        let Some(first) = refused.first() else { return Ok(()) };
        let texts: Vec<_> = refused.iter().map(|finding| format!("{}: {}", finding.server, finding.text)).collect();
        Err(StoreError::new(first.kind).because(texts.join("; ")))
    }
}

impl Finding {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What was looked at: `version`, `eviction`, `persistence`, `replication`, `clock`, `rights` or `epoch`.
    #[must_use]
    pub fn subject(&self) -> &'static str {
        self.subject
    }

    /// Which server, without credentials.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What was found, and what to do about it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Collects what is found about one server.
#[derive(Debug)]
pub(crate) struct ServerFindings<'a> {
    pub(crate) server: &'a str,
    pub(crate) all: Vec<Finding>,
}

impl ServerFindings<'_> {
    pub(crate) fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Ok, subject, StoreErrorKind::Schema, text);
    }

    pub(crate) fn warn(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Warn, subject, StoreErrorKind::Schema, text);
    }

    pub(crate) fn refuse(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Refuse, subject, StoreErrorKind::Schema, text);
    }

    /// For want of rights.
    pub(crate) fn deny(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Refuse, subject, StoreErrorKind::Denied, text);
    }

    fn add(&mut self, severity: Severity, subject: &'static str, kind: StoreErrorKind, text: impl Into<String>) {
        let (server, text) = (self.server.to_owned(), text.into());
        self.all.push(Finding { severity, subject, server, text, kind });
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Refuse => "refuse",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {:<12} {}: {}", self.severity, self.subject, self.server, self.text)
    }
}

impl fmt::Display for Checkup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}
