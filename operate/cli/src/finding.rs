//! The results of checks.
use idempotent::store::{HealthFinding, Severity as Health};

/// The severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// No problem.
    Ok,
    /// The store works with weaker guarantees.
    Warn,
    /// The store does not work, or would lose records.
    Fail,
}

/// The result of one check.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) check: &'static str,
    pub(crate) server: String,
    pub(crate) text: String,
}

impl From<&HealthFinding> for Finding {
    fn from(finding: &HealthFinding) -> Self {
        let severity = match finding.severity() {
            Health::Ok => Severity::Ok,
            Health::Warn => Severity::Warn,
            _ => Severity::Fail,
        };
        let (server, text) = (finding.server().to_owned(), finding.text().to_owned());
        Self { severity, check: finding.subject(), server, text }
    }
}
