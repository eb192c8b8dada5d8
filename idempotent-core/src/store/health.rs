//! The [`Health`] capability, and the findings about a store's servers.
use std::fmt;

use async_trait::async_trait;

use crate::{StoreError, StoreErrorKind};

/// Checks of a store's servers, which find a loss of records before it happens.
#[async_trait]
pub trait Health: fmt::Debug + Send + Sync {
    /// Checks the servers of this store, and writes nothing.
    ///
    /// # Errors
    /// A server cannot be reached. Findings are never errors, however severe.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    ///
    /// # Laws
    /// `reported_capabilities_work`.
    async fn check(&self) -> Result<HealthReport, StoreError>;
}

/// The findings of [`Health::check`]. Displays as a table.
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
    /// Does not work, or would lose records. A store that checks its servers when it opens refuses to open.
    Refuse,
}

impl HealthReport {
    /// Creates a report.
    #[must_use]
    pub fn new(findings: Vec<HealthFinding>) -> Self {
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

    /// Emits warnings as `tracing` events, and returns an error if a finding has the severity `Refuse`.
    ///
    /// # Errors
    /// The texts of all findings of severity `Refuse`. The kind is that of the first one.
    pub fn judge(&self) -> Result<(), StoreError> {
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
    /// Creates a finding about a server, whose name contains no credentials. The text describes the finding and its remedy.
    /// The [error](HealthReport::judge) of a refused finding has the kind [`Schema`](StoreErrorKind::Schema).
    pub fn new(severity: Severity, subject: &'static str, server: impl Into<String>, text: impl Into<String>) -> Self {
        Self { severity, subject, server: server.into(), text: text.into(), kind: StoreErrorKind::Schema }
    }

    /// Creates a finding of severity `Refuse` about missing permissions, whose error has the kind
    /// [`Denied`](StoreErrorKind::Denied).
    pub fn denied(subject: &'static str, server: impl Into<String>, text: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Denied, ..Self::new(Severity::Refuse, subject, server, text) }
    }

    /// Returns the severity.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the subject of the check, such as `version`, `rights` or `clock`. The documentation of each store lists its
    /// subjects.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finding(severity: Severity, text: &str) -> HealthFinding {
        HealthFinding::new(severity, "clock", "db:5432", text)
    }

    #[test]
    fn a_report_has_the_highest_severity_of_its_findings() {
        let of = |severities: &[Severity]| {
            HealthReport::new(severities.iter().map(|severity| finding(*severity, "")).collect()).severity()
        };
        assert_eq!(of(&[]), Severity::Ok);
        assert_eq!(of(&[Severity::Ok, Severity::Warn, Severity::Ok]), Severity::Warn);
        assert_eq!(of(&[Severity::Refuse, Severity::Warn]), Severity::Refuse);
    }

    #[test]
    fn a_refused_finding_is_an_error_with_the_texts_of_all_of_them() {
        HealthReport::new(vec![finding(Severity::Ok, "a"), finding(Severity::Warn, "b")]).judge().unwrap();
        let refused = finding(Severity::Refuse, "one");
        let denied = HealthFinding::denied("rights", "db:5432", "two");
        let error = HealthReport::new(vec![refused.clone(), denied.clone()]).judge().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Schema);
        assert!(error.to_string().contains("db:5432: one; db:5432: two"), "{error}");
        assert_eq!(HealthReport::new(vec![denied, refused]).judge().unwrap_err().kind(), StoreErrorKind::Denied);
    }

    #[test]
    fn a_finding_shows_each_of_its_parts() {
        let found = finding(Severity::Warn, "late");
        assert_eq!((found.severity(), found.subject()), (Severity::Warn, "clock"));
        assert_eq!((found.server(), found.text()), ("db:5432", "late"));
        let report = HealthReport::new(vec![found, HealthFinding::denied("rights", "db", "none")]);
        assert_eq!(report.findings().len(), 2);
        assert_eq!(report.to_string(), "warn    clock        db:5432: late\nrefuse  rights       db: none\n");
        assert_eq!(Severity::Ok.to_string(), "ok");
    }
}
