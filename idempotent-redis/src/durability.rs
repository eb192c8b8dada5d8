//! The replication and persistence that writes wait for.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::record::millis;

/// The replication that claims and completions wait for, besides the primary's own acknowledgement. See
/// [`RedisStoreBuilder::durability`](crate::RedisStoreBuilder::durability).
///
/// Redis replicates after it has acknowledged a write. If the primary dies before that, the write is lost, and a key
/// whose record is lost is granted again. Waiting makes such a loss rare, not impossible: a replica that has
/// acknowledged nothing may be the one that is promoted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Durability {
    /// Waits for the primary only.
    #[default]
    Primary,
    /// Waits until replicas have the write in memory (`WAIT`).
    Replicas {
        /// Minimum number of replicas.
        replicas: u32,
        /// Maximum wait, with a resolution of 1 ms and a minimum of 1 ms.
        timeout: Duration,
    },
    /// Waits until the primary and replicas have the write in their append-only files on disk (`WAITAOF`, Redis 7.2).
    Disk {
        /// Minimum number of replicas, besides the primary.
        replicas: u32,
        /// Maximum wait, with a resolution of 1 ms and a minimum of 1 ms.
        timeout: Duration,
    },
}

impl Durability {
    /// Waits until at least `replicas` replicas have the write in memory, or `timeout` has passed.
    #[must_use]
    pub const fn wait(replicas: u32, timeout: Duration) -> Self {
        Self::Replicas { replicas, timeout }
    }

    /// Waits until the primary and at least `replicas` replicas have the write on disk, or `timeout` has passed.
    /// Requires an append-only file and Redis 7.2.
    #[must_use]
    pub const fn wait_for_disk(replicas: u32, timeout: Duration) -> Self {
        Self::Disk { replicas, timeout }
    }

    /// Returns the name of the command that waits, if any.
    pub(crate) fn command_name(self) -> Option<&'static str> {
        match self {
            Self::Primary => None,
            Self::Replicas { .. } => Some("wait"),
            Self::Disk { .. } => Some("waitaof"),
        }
    }

    pub(crate) fn replicas(self) -> u32 {
        match self {
            Self::Primary => 0,
            Self::Replicas { replicas, .. } | Self::Disk { replicas, .. } => replicas,
        }
    }

    /// Returns the time by which waiting delays a reply.
    pub(crate) fn extra_timeout(self) -> Duration {
        match self {
            Self::Primary => Duration::ZERO,
            Self::Replicas { timeout, .. } | Self::Disk { timeout, .. } => Duration::from_millis(millis(timeout)),
        }
    }

    /// Returns the command that waits, with a timeout of at least 1 ms: 0 would wait forever. The command follows the writes on the
    /// same connection.
    pub(crate) fn command(self) -> Option<Cmd> {
        let mut cmd = Cmd::new();
        match self {
            Self::Primary => return None,
            Self::Replicas { replicas, timeout } => cmd.arg("WAIT").arg(replicas).arg(millis(timeout)),
            Self::Disk { replicas, timeout } => cmd.arg("WAITAOF").arg(1).arg(replicas).arg(millis(timeout)),
        };
        Some(cmd)
    }

    /// Returns a command that checks whether the server can wait for its disk, if the setting requires it.
    pub(crate) fn disk_probe(self) -> Option<Cmd> {
        let Self::Disk { .. } = self else { return None };
        Self::wait_for_disk(0, Duration::ZERO).command()
    }

    /// Returns the missing replicas by the reply to [`command`](Self::command). An error counts as no acknowledgement:
    /// a primary that steps down has no replicas.
    pub(crate) fn unconfirmed(self, reply: &Value) -> Option<UnconfirmedReplicas> {
        let count = |value: &Value| if let Value::Int(count) = value { u32::try_from(*count).ok() } else { None };
        match (self, reply) {
            (Self::Primary, _) => None,
            (Self::Replicas { replicas, .. }, reply) => {
                let had = count(reply).unwrap_or(0);
                (had < replicas).then_some(UnconfirmedReplicas { asked: replicas, had, disk: true })
            }
            (Self::Disk { replicas, .. }, Value::Array(all)) => {
                let disk = all.first().and_then(count) >= Some(1);
                let had = all.get(1).and_then(count).unwrap_or(0);
                (had < replicas || !disk).then_some(UnconfirmedReplicas { asked: replicas, had, disk })
            }
            (Self::Disk { replicas, .. }, _) => Some(UnconfirmedReplicas { asked: replicas, had: 0, disk: false }),
        }
    }
}

/// A write that too few replicas acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct UnconfirmedReplicas {
    asked: u32,
    had: u32,
    disk: bool,
}

impl std::fmt::Display for UnconfirmedReplicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, had, disk } = self;
        let primary = if *disk { "" } else { ", and the primary has not written it to disk" };
        write!(f, "{had} of {asked} requested replicas acknowledged it in time{primary}")
    }
}

/// Counters of a store's events since its creation, over all connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RedisCounts {
    /// Claims that were granted and released again because too few replicas acknowledged them in time.
    pub claims_not_replicated: u64,
    /// Completions that may be lost in a failover. Either too few replicas acknowledged them in time, or the call was
    /// repeated and the replication of the first attempt is unknown.
    pub completions_not_replicated: u64,
    /// Calls that a cluster node redirected to another node (`MOVED`, `ASK`).
    pub redirections: u64,
    /// Claims that the cache of consumed keys answered without a command.
    pub cache_hits: u64,
}

/// The counters that make up [`RedisCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) claims: AtomicU64,
    pub(crate) completions: AtomicU64,
    pub(crate) redirections: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, cache_hits: u64) -> RedisCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RedisCounts {
            claims_not_replicated: read(&self.claims),
            completions_not_replicated: read(&self.completions),
            redirections: read(&self.redirections),
            cache_hits,
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn too_few_replicas_or_an_invalid_reply_count_as_unconfirmed() {
        let wait = Durability::wait(2, Duration::from_millis(5));
        assert_eq!(wait.unconfirmed(&Value::Int(2)), None);
        assert_eq!(wait.unconfirmed(&Value::Int(3)), None);
        let text = |reply: &Value| wait.unconfirmed(reply).unwrap().to_string();
        assert_eq!(text(&Value::Int(1)), "1 of 2 requested replicas acknowledged it in time");
        assert!(text(&Value::Nil).starts_with("0 of 2"));
    }

    #[test]
    fn disk_durability_includes_the_primary() {
        let wait = Durability::wait_for_disk(1, Duration::ZERO);
        let reply = |primary, replicas| Value::Array(vec![Value::Int(primary), Value::Int(replicas)]);
        assert_eq!(wait.unconfirmed(&reply(1, 1)), None);
        assert!(wait.unconfirmed(&reply(0, 1)).unwrap().to_string().contains("not written it to disk"));
        assert!(wait.unconfirmed(&reply(1, 0)).is_some() && wait.unconfirmed(&Value::Nil).is_some());
        // 0 would wait forever.
        assert_eq!(wait.command().unwrap().args_iter().count(), 4);
        assert_eq!(wait.extra_timeout(), Duration::from_millis(1));
    }
}
