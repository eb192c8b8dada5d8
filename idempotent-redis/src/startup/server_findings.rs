//! The findings about one server.
use idempotent_core::store::{HealthFinding, Severity};

/// A collector for the findings about one server.
#[derive(Debug)]
pub(crate) struct ServerFindings<'a> {
    pub(crate) server: &'a str,
    pub(crate) all: Vec<HealthFinding>,
}

impl ServerFindings<'_> {
    pub(crate) fn ok(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Ok, subject, text);
    }

    pub(crate) fn warn(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Warn, subject, text);
    }

    pub(crate) fn refuse(&mut self, subject: &'static str, text: impl Into<String>) {
        self.add(Severity::Refuse, subject, text);
    }

    /// Adds a finding of severity `Refuse` for missing permissions.
    pub(crate) fn deny(&mut self, subject: &'static str, text: impl Into<String>) {
        self.all.push(HealthFinding::denied(subject, self.server, text));
    }

    fn add(&mut self, severity: Severity, subject: &'static str, text: impl Into<String>) {
        self.all.push(HealthFinding::new(severity, subject, self.server, text));
    }
}
