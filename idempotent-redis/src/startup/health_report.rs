//! The findings about a store's servers.
use std::fmt;

use idempotent_core::{StoreError, StoreErrorKind};

/// The findings of [`RedisStore::check`](crate::RedisStore::check). Displays as a table.
#[derive(Clone, Debug, Default)]
pub struct HealthReport {
    findings: Vec<HealthFinding>,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub struct HealthFinding {
    severity: Severity,
    subject: &'static str,
    server: String,
    text: String,
    kind: StoreErrorKind,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Severity {
    /// No problem.
    Ok,
    /// Works with weaker guarantees, which the text names.
    Warn,
    /// Does not work, or would lose records. [`RedisStore::connect`](crate::RedisStore::connect) fails.
    Refuse,
}

impl HealthReport {
    pub(crate) fn new(findings: Vec<HealthFinding>) -> Self {
        Self { findings }
    }

    /// Returns all findings, grouped by server.
    #[must_use]
    pub fn findings(&self) -> &[HealthFinding] {
        &self.findings
    }

    /// Returns the highest severity of all findings.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Returns the findings of severity `Refuse` as one error, and emits warnings as `tracing` events.
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

impl HealthFinding {
    /// Returns the severity.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the subject of the check: `version`, `eviction`, `persistence`, `replication`, `clock`, `rights` or
    /// `epoch`.
    #[must_use]
    pub fn subject(&self) -> &'static str {
        self.subject
    }

    /// Returns the server, without credentials.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the description of the finding, with a remedy.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A collector for the findings about one server.
#[derive(Debug)]
pub(crate) struct ServerFindings<'a> {
    pub(crate) server: &'a str,
    pub(crate) all: Vec<HealthFinding>,
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

    /// Adds a finding of severity `Refuse` for missing permissions.
    pub(crate) fn deny(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Refuse, subject, StoreErrorKind::Denied, text);
    }

    fn add(&mut self, severity: Severity, subject: &'static str, kind: StoreErrorKind, text: impl Into<String>) {
        let (server, text) = (self.server.to_owned(), text.into());
        self.all.push(HealthFinding { severity, subject, server, text, kind });
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

impl fmt::Display for HealthFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {:<12} {}: {}", self.severity, self.subject, self.server, self.text)
    }
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}
