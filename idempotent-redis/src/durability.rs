//! How far a record has to have got before it counts.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

/// What a claim, and a completion, waits for besides the primary's own answer. See
/// [`RedisStoreBuilder::durability`](crate::RedisStoreBuilder::durability).
///
/// Redis copies to its replicas after it has answered. What it answered and had not copied when it died is lost with
/// it, and a key of which the record is lost is granted again. Waiting makes that rare, not impossible: a replica that
/// has acknowledged nothing may still be the one that is promoted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing more.
    #[default]
    Primary,
    /// So many replicas have it in memory (`WAIT`).
    Replicas {
        /// At least so many.
        replicas: u32,
        /// No longer than this, to the ms, and no less than 1 ms.
        timeout: Duration,
    },
    /// The primary has it in its append-only file, on disk, and so have so many replicas (`WAITAOF`, Redis 7.2).
    Disk {
        /// At least so many, besides the primary.
        replicas: u32,
        /// No longer than this, to the ms, and no less than 1 ms.
        timeout: Duration,
    },
}

impl Durability {
    /// At least so many replicas have it in memory, or `timeout` has passed.
    #[must_use]
    pub const fn wait(replicas: u32, timeout: Duration) -> Self {
        Self::Replicas { replicas, timeout }
    }

    /// The primary and at least so many replicas have it on disk, or `timeout` has passed. The server needs an
    /// append-only file, and version 7.2.
    #[must_use]
    pub const fn wait_for_disk(replicas: u32, timeout: Duration) -> Self {
        Self::Disk { replicas, timeout }
    }

    /// The command that waits, if one does.
    pub(crate) fn command_name(self) -> Option<&'static str> {
        match self {
            Self::Primary => None,
            Self::Replicas { .. } => Some("wait"),
            Self::Disk { .. } => Some("waitaof"),
        }
    }

    /// How many of them it waits for.
    pub(crate) fn replicas(self) -> u32 {
        match self {
            Self::Primary => 0,
            Self::Replicas { replicas, .. } | Self::Disk { replicas, .. } => replicas,
        }
    }

    /// How long its answer may take longer.
    pub(crate) fn extra_timeout(self) -> Duration {
        match self {
            Self::Primary => Duration::ZERO,
            Self::Replicas { timeout, .. } | Self::Disk { timeout, .. } => Duration::from_millis(millis(timeout)),
        }
    }

    /// Goes behind what was written, over the same connection.
    pub(crate) fn command(self) -> Option<Cmd> {
        let mut cmd = Cmd::new();
        match self {
            Self::Primary => return None,
            Self::Replicas { replicas, timeout } => cmd.arg("WAIT").arg(replicas).arg(millis(timeout)),
            Self::Disk { replicas, timeout } => cmd.arg("WAITAOF").arg(1).arg(replicas).arg(millis(timeout)),
        };
        Some(cmd)
    }

    /// Asks whether the server can wait for its disk, where it is to.
    pub(crate) fn disk_probe(self) -> Option<Cmd> {
        let Self::Disk { .. } = self else { return None };
        Self::wait_for_disk(0, Duration::ZERO).command()
    }

    /// What is missing by the answer to [`command`](Self::command). An error is an answer, too: a primary that steps
    /// down has nobody who has it.
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

/// 0 would be for ever.
fn millis(timeout: Duration) -> u64 {
    crate::record::millis(timeout)
}

/// A write that has not got as far as it should.
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

/// What has happened to a store since it was made, in all its connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RedisCounts {
    /// Claims that were granted and given back, since too few replicas had them in time.
    pub claims_not_replicated: u64,
    /// Completions that stand though too few replicas had them in time, or asked again, which does not tell whether the
    /// first was copied: a failover may lose them.
    pub completions_not_replicated: u64,
    /// Calls that another server of a cluster had to be asked for (`MOVED`, `ASK`).
    pub redirections: u64,
}

/// Where they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) claims: AtomicU64,
    pub(crate) completions: AtomicU64,
    pub(crate) redirections: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> RedisCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RedisCounts {
            claims_not_replicated: read(&self.claims),
            completions_not_replicated: read(&self.completions),
            redirections: read(&self.redirections),
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
    fn fewer_than_asked_for_or_no_number_is_missing() {
        let wait = Durability::wait(2, Duration::from_millis(5));
        assert_eq!(wait.unconfirmed(&Value::Int(2)), None);
        assert_eq!(wait.unconfirmed(&Value::Int(3)), None);
        let text = |reply: &Value| wait.unconfirmed(reply).unwrap().to_string();
        assert_eq!(text(&Value::Int(1)), "1 of 2 requested replicas acknowledged it in time");
        assert!(text(&Value::Nil).starts_with("0 of 2"));
    }

    #[test]
    fn on_disk_means_the_primary_s_too() {
        let wait = Durability::wait_for_disk(1, Duration::ZERO);
        let reply = |primary, replicas| Value::Array(vec![Value::Int(primary), Value::Int(replicas)]);
        assert_eq!(wait.unconfirmed(&reply(1, 1)), None);
        assert!(wait.unconfirmed(&reply(0, 1)).unwrap().to_string().contains("not written it to disk"));
        assert!(wait.unconfirmed(&reply(1, 0)).is_some() && wait.unconfirmed(&Value::Nil).is_some());
        // 0 would wait for ever.
        assert_eq!(wait.command().unwrap().args_iter().count(), 4);
        assert_eq!(wait.extra_timeout(), Duration::from_millis(1));
    }
}
