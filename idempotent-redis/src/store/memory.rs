//! The memory of the servers.
use idempotent_core::{StoreError, StoreErrorKind};
use redis::Cmd;

use crate::RedisStore;
use crate::connection::text;
use crate::startup::server_info::ServerInfo;

/// The keys and the memory of all servers of a store, without replicas.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RedisMemory {
    /// The number of keys, of each database and of each program.
    pub keys: u64,
    /// The allocated bytes, as `used_memory` of `INFO`.
    pub used_bytes: u64,
    /// The bytes that the operating system gave the servers, as `used_memory_rss` of `INFO`.
    pub resident_bytes: u64,
}

impl RedisMemory {
    /// Adds the figures in a reply to `INFO`. Returns `None` if the reply lacks a figure.
    fn add(&mut self, info: ServerInfo<'_>) -> Option<()> {
        self.used_bytes += info.number("used_memory")?;
        self.resident_bytes += info.number("used_memory_rss")?;
        let databases = info.0.lines().filter(|line| line.starts_with("db"));
        let keys =
            databases.filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.trim().parse::<u64>().ok());
        self.keys += keys.sum::<u64>();
        Some(())
    }
}

impl RedisStore {
    /// Returns the keys and the memory of all servers. Needs the permission for `INFO`.
    ///
    /// # Errors
    /// A server cannot be reached, or denies `INFO`, or its reply lacks a figure.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn memory(&self) -> Result<RedisMemory, StoreError> {
        let mut memory = RedisMemory::default();
        for batcher in self.0.topology.batchers(true).await? {
            let reply = batcher.connection().send(Cmd::new().arg("INFO")).await?;
            let added = text(&reply).and_then(|info| memory.add(ServerInfo(info)));
            added.ok_or_else(|| {
                StoreError::new(StoreErrorKind::Schema)
                    .because("`INFO` has no memory: the server is no Redis or Valkey")
            })?;
        }
        Ok(memory)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const INFO: &str = "# Memory\r\nused_memory:1000\r\nused_memory_rss:1300\r\n# Keyspace\r\n\
                        db0:keys=7,expires=6,avg_ttl=1\r\ndb3:keys=2,expires=0,avg_ttl=0\r\n";

    #[test]
    fn the_figures_of_servers_and_databases_are_added() {
        let mut memory = RedisMemory::default();
        memory.add(ServerInfo(INFO)).unwrap();
        memory.add(ServerInfo(INFO)).unwrap();
        assert_eq!(memory, RedisMemory { keys: 18, used_bytes: 2_000, resident_bytes: 2_600 });
        assert_eq!(memory.add(ServerInfo("redis_version:7.0.15\r\n")), None, "a reply without memory");
    }
}
