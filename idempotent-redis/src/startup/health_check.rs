//! Checks of a store that is open.
use idempotent_core::StoreError;
use redis::Cmd;

use crate::RedisStore;
use crate::failure::FailureKind;
use crate::startup::health_report::{Checkup, Finding};
use crate::startup::server_info::ServerInfo;
use crate::startup::{self, ServerReport};

impl RedisStore {
    /// Looks at version, eviction, persistence, replication, clock, rights and the namespace's epoch, as
    /// [`connect`](Self::connect) did.
    ///
    /// # Errors
    /// Where a server cannot be asked. What is found is no error, however bad.
    ///
    /// # Cancellation
    /// Nothing is left behind but, perhaps, the namespace's epoch.
    pub async fn check(&self) -> Result<Checkup, StoreError> {
        let mut findings = Vec::new();
        for batcher in self.0.topology.batchers(true).await? {
            findings.extend(startup::inspect(batcher.connection(), &self.0.checks).await?.findings);
        }
        findings.extend(self.epoch().await?);
        Ok(Checkup::new(findings))
    }

    /// Keys that the servers have evicted since this store was opened: each may have been a record, and then its key
    /// runs again.
    ///
    /// # Errors
    /// Where a server cannot be asked.
    ///
    /// # Cancellation
    /// Nothing is left behind.
    pub async fn evicted_keys(&self) -> Result<u64, StoreError> {
        let mut evicted = 0;
        for batcher in self.0.topology.batchers(true).await? {
            let reply = batcher.connection().send(Cmd::new().arg("INFO").arg("stats")).await?;
            if let Some(text) = startup::text(&reply) {
                evicted += ServerInfo(text).number("evicted_keys").unwrap_or_default();
            }
        }
        // A server that was started anew counts from 0.
        Ok(evicted.checked_sub(self.0.evicted).unwrap_or(evicted))
    }

    /// Fails where what was found forbids to go on.
    pub(crate) async fn judge(&self, looked: Vec<ServerReport>) -> Result<(), StoreError> {
        // Without rights there is no epoch to be had either.
        Checkup::new(looked.into_iter().flat_map(|looked| looked.findings).collect()).judge()?;
        Checkup::new(self.epoch().await?).judge()
    }

    /// In a cluster one node has the key, and the others say so.
    async fn epoch(&self) -> Result<Vec<Finding>, StoreError> {
        let mut moved = None;
        for batcher in self.0.topology.batchers(false).await? {
            match startup::epoch(batcher.connection(), &self.0.checks.namespace).await {
                Err(failure) if matches!(failure.kind, FailureKind::Moved(_) | FailureKind::Ask(_)) => {
                    moved = Some(failure);
                }
                found => return Ok(found?),
            }
        }
        moved.map_or(Ok(Vec::new()), |failure| Err(failure.into()))
    }
}
