//! Checks of the server and of the record table.
use idempotent_core::store::{HealthFinding, HealthReport, Severity};
use idempotent_core::{StoreError, StoreErrorKind};

use super::dialect::Dialect;
use super::runner::settled;
use super::statement::{BoundStatement, Statement};
use super::store::ServerStore;

/// The number of records that the check of the purge reads. Ids are hashes, so the first ones are a random sample.
const SAMPLE: u32 = 10_000;

/// A day, in µs.
const DAY: u64 = 86_400_000_000;

/// A check: a statement that returns 0 (no problem), 1 (warn) or 2 (refuse), and a text for each of them.
#[derive(Debug)]
pub(crate) struct HealthQuery {
    subject: &'static str,
    statement: Statement,
    texts: [&'static str; 3],
}

impl HealthQuery {
    pub(crate) fn new<D: Dialect>(subject: &'static str, sql: &str, texts: [&'static str; 3]) -> Self {
        Self { subject, statement: D::statement(sql), texts }
    }
}

impl<D: Dialect> ServerStore<D> {
    /// Runs all checks. They write nothing.
    pub(crate) async fn check(&self) -> Result<HealthReport, StoreError> {
        let mut findings = D::health(self).await?;
        for query in D::health_queries(self) {
            findings.push(self.ask(&query).await?);
        }
        findings.push(self.connections().await?);
        findings.push(match self.lost.text(&self.runner.place.database) {
            Some(text) => self.finding(Severity::Refuse, "space", text),
            None => self.finding(Severity::Ok, "space", "no result was left out for lack of space"),
        });
        // Another clock than the server's says nothing about the server's records.
        if self.clock.is_none() {
            findings.push(self.purged().await?);
        }
        Ok(HealthReport::new(findings))
    }

    /// Returns a finding about this server.
    pub(crate) fn finding(&self, severity: Severity, subject: &'static str, text: impl Into<String>) -> HealthFinding {
        HealthFinding::new(severity, subject, self.runner.place.database.as_str(), text)
    }

    /// Returns a finding about missing permissions on this server.
    pub(crate) fn denied(&self, text: String) -> HealthFinding {
        HealthFinding::denied("rights", self.runner.place.database.as_str(), text)
    }

    async fn ask(&self, HealthQuery { subject, statement, texts }: &HealthQuery) -> Result<HealthFinding, StoreError> {
        match self.level(statement).await {
            Ok(level) => {
                let (severity, text) = match level {
                    0 => (Severity::Ok, texts[0]),
                    1 => (Severity::Warn, texts[1]),
                    _ => (Severity::Refuse, texts[2]),
                };
                Ok(self.finding(severity, subject, text))
            }
            Err(error) if error.kind() == StoreErrorKind::Denied => {
                Ok(self.finding(Severity::Warn, subject, format!("not checked: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the integer that a statement returns.
    pub(crate) async fn level(&self, statement: &Statement) -> Result<i64, StoreError> {
        let row = settled(self.runner.first(BoundStatement::new(statement)).await?)?;
        row.map_or(Ok(0), |row| self.number(&row, 0))
    }

    /// Compares the connections of this store with the limit of the server.
    async fn connections(&self) -> Result<HealthFinding, StoreError> {
        let limit = self.level(&D::statement(D::MAX_CONNECTIONS)).await?;
        let own = i64::from(self.runner.place.connections);
        let text = format!("{own} connections for each process; the limit of the server is {limit}");
        Ok(if own * 5 > limit * 4 {
            let remedy = "one process may use them up: lower `connections`, raise `max_connections`, or use a pooler";
            self.finding(Severity::Warn, "connections", format!("{text}; {remedy}"))
        } else {
            self.finding(Severity::Ok, "connections", text)
        })
    }

    /// Looks for records that expired long ago.
    async fn purged(&self) -> Result<HealthFinding, StoreError> {
        let sql = format!(
            "SELECT coalesce(max({}-s.expires_at),0) FROM (SELECT expires_at FROM {} ORDER BY id LIMIT {SAMPLE}) AS s",
            D::NOW,
            D::table(self)
        );
        let days = u64::try_from(self.level(&D::statement(&sql)).await?).unwrap_or_default() / DAY;
        Ok(if days == 0 {
            self.finding(Severity::Ok, "purge", "no record expired more than a day ago")
        } else {
            let text = format!(
                "a record expired {days} days ago, so nothing removes expired records: call `Purge::purge` periodically, \
                 or run `idempotent purge`"
            );
            self.finding(Severity::Warn, "purge", text)
        })
    }
}
