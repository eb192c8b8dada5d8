//! Checks of an open store.
use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_core::store::{Health, HealthFinding, HealthReport};
use redis::Cmd;

use crate::RedisStore;
use crate::connection::text;
use crate::failure::FailureKind;
use crate::startup::server_info::ServerInfo;
use crate::startup::{self, ServerReport};

#[async_trait]
impl Health for RedisStore {
    /// Checks version, eviction, persistence, replication, clock, permissions and the namespace's epoch, as
    /// [`connect`](Self::connect) does, and writes nothing. A missing epoch is a finding.
    async fn check(&self) -> Result<HealthReport, StoreError> {
        let mut findings = Vec::new();
        for batcher in self.0.topology.batchers(true).await? {
            findings.extend(startup::inspect(batcher.connection(), &self.0.checks).await?.findings);
        }
        findings.extend(self.epoch(false).await?);
        Ok(HealthReport::new(findings))
    }
}

impl RedisStore {
    /// Returns the number of keys that the servers have evicted since this store was opened. Each of them may have been
    /// a record, whose key then runs again.
    ///
    /// # Errors
    /// A server cannot be reached.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn evicted_keys(&self) -> Result<u64, StoreError> {
        let mut evicted = 0;
        for batcher in self.0.topology.batchers(true).await? {
            let reply = batcher.connection().send(Cmd::new().arg("INFO").arg("stats")).await?;
            if let Some(stats) = text(&reply) {
                evicted += ServerInfo(stats).number("evicted_keys").unwrap_or_default();
            }
        }
        // A restarted server counts from 0.
        Ok(evicted.checked_sub(self.0.evicted).unwrap_or(evicted))
    }

    /// Returns an error if the reports contain a finding that forbids using the servers. Eviction does not forbid reading.
    pub(crate) async fn judge(&self, looked: Vec<ServerReport>) -> Result<(), StoreError> {
        // Permissions first: without them the epoch cannot be read either.
        let read_only = self.0.checks.read_only;
        let findings = looked.into_iter().flat_map(|looked| looked.findings);
        HealthReport::new(findings.filter(|finding| !(read_only && finding.subject() == "eviction")).collect())
            .judge()?;
        HealthReport::new(self.epoch(!read_only).await?).judge()
    }

    /// Checks the epoch. With `create`, writes a missing epoch. In a cluster one node owns the key, and the others
    /// redirect.
    async fn epoch(&self, create: bool) -> Result<Vec<HealthFinding>, StoreError> {
        let mut moved = None;
        for batcher in self.0.topology.batchers(false).await? {
            match startup::epoch(batcher.connection(), &self.0.checks.namespace, create).await {
                Err(failure) if matches!(failure.kind, FailureKind::Moved(_) | FailureKind::Ask(_)) => {
                    moved = Some(failure);
                }
                found => return Ok(found?),
            }
        }
        moved.map_or(Ok(Vec::new()), |failure| Err(failure.into()))
    }
}
