//! The results of checks.
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
