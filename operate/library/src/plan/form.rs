//! The forms in which stores keep records, and what each of them needs.
use serde::Serialize;

use super::constants::Constants;
use super::workload::{Engine, MEASURED_KEY, Workload};

/// A form in which a store keeps records.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FormName {
    /// `RedisStore` on Redis: a record for each key.
    RedisRecords,
    /// `RedisStore` on Valkey: a record for each key.
    ValkeyRecords,
    /// `PostgresStore`: a table with a regular purge, and a run for each message.
    PostgresRuns,
    /// `PostgresStore`: a table with a regular purge, and batches of 64 messages.
    PostgresBatches,
}

impl FormName {
    /// Returns the name for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::RedisRecords => "redis, a record for each key",
            Self::ValkeyRecords => "valkey, a record for each key",
            Self::PostgresRuns => "postgres, single runs",
            Self::PostgresBatches => "postgres, batches of 64",
        }
    }

    /// Returns true for Redis and Valkey.
    #[must_use]
    pub fn is_in_memory(self) -> bool {
        matches!(self, Self::RedisRecords | Self::ValkeyRecords)
    }

    /// Returns the forms of an engine.
    pub(super) fn of(engine: Engine) -> &'static [Self] {
        match engine {
            Engine::Redis => &[Self::RedisRecords],
            Engine::Valkey => &[Self::ValkeyRecords],
            Engine::Postgres => &[Self::PostgresRuns, Self::PostgresBatches],
            Engine::All => &[Self::RedisRecords, Self::PostgresRuns, Self::PostgresBatches],
        }
    }
}

/// The resources that one form needs. Figures that a form does not have are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Form {
    /// The name.
    pub name: FormName,
    /// The number of stored records, including expired ones that are not removed yet.
    pub records: f64,
    /// The bytes that Redis allocates on all masters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<f64>,
    /// The bytes of memory that all masters of Redis occupy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<f64>,
    /// The bytes of the table and its index on disk, without the write-ahead log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<f64>,
    /// The bytes of the index, which a part of the disk holds and which belongs into memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_bytes: Option<f64>,
    /// The bytes that a database appends to its write-ahead log in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes_per_day: Option<f64>,
    /// The transactions of a database in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions_per_day: Option<f64>,
    /// The bytes per second between clients, masters and replicas at the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_bytes_per_second: Option<f64>,
    /// The cores that all servers use on average, without replicas.
    pub cores: f64,
    /// The cores that all servers use at the peak, without replicas.
    pub cores_at_peak: f64,
    /// The memory that a save copies, as a share of the memory of a master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied_by_a_save: Option<f64>,
    /// The servers, without replicas: masters of Redis, or databases.
    pub servers: u64,
    /// The price in a month, if the workload has prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// The share of a server's memory that records may occupy.
pub(super) const FILLED: f64 = 0.6;
/// The bytes per second that a save writes, which is an assumption.
pub(super) const SAVED_PER_SECOND: f64 = 1e8;
/// The bytes that a write during a save copies: a page of the record and one of the table of keys.
pub(super) const COPIED: f64 = 8_192.0;
/// The fewest masters of a cluster.
pub(super) const SMALLEST_CLUSTER: u64 = 3;
/// The time in seconds between two purges, during which expired records stay.
pub(super) const PURGE: f64 = 300.0;
/// The most records of one database, which is an assumption.
pub(super) const MOST_ROWS: f64 = 5e8;
/// The most transactions of one database in a day: PostgreSQL freezes all rows after as many.
pub(super) const MOST_TRANSACTIONS: f64 = 2e8;
/// The messages of a batch.
pub(super) const BATCH: f64 = 64.0;
pub(super) const DAY: f64 = 86_400.0;

/// Returns the bytes that one record occupies in Redis.
pub(super) fn record_bytes(load: &Workload, constants: &Constants) -> f64 {
    let result = load.results * (constants.with_result(load.result_bytes) - constants.record);
    let key = allocated_key(load.key_bytes) - allocated_key(MEASURED_KEY);
    constants.record + key + load.fingerprints * (constants.fingerprint - constants.record) + result
}

/// Returns the bytes that Redis allocates for a key of this length: a header of 3 bytes, an end of 1 byte, and steps of 16 bytes.
fn allocated_key(length: f64) -> f64 {
    ((length + 4.0) / 16.0).ceil() * 16.0
}

/// Calculates a form.
pub(super) fn calculate(name: FormName, load: &Workload, constants: &Constants) -> Form {
    let mut form = if name.is_in_memory() { redis(name, load, constants) } else { postgres(name, load, constants) };
    form.cost = load.prices.map(|prices| {
        let copies = 1.0 + f64::from(load.replicas);
        let gb = |bytes: Option<f64>| bytes.unwrap_or_default() / 1e9;
        let stored = gb(form.resident_bytes) * prices.memory_gb + gb(form.disk_bytes) * prices.disk_gb;
        copies * stored + form.cores * prices.core
    });
    form
}

fn redis(name: FormName, load: &Workload, constants: &Constants) -> Form {
    let in_flight = load.peak_rate() * load.handler.as_secs_f64();
    let records = load.live() * record_bytes(load, constants) + in_flight * constants.in_flight;
    let cores = load.rate * (constants.cycle + load.duplicates * constants.duplicate) / 1e6;
    let cores_at_peak = cores * load.peak;
    let (servers, copied) = masters(load, records, cores_at_peak);
    let used = records + servers as f64 * constants.empty_server;
    let cycle = constants.to_server + constants.from_server;
    let network = cycle * (1.0 + load.duplicates / 2.0) + f64::from(load.replicas) * constants.append_only;
    Form {
        name,
        records: load.live(),
        used_bytes: Some(used),
        resident_bytes: Some(used * load.resident),
        disk_bytes: None,
        index_bytes: None,
        wal_bytes_per_day: None,
        transactions_per_day: None,
        network_bytes_per_second: Some(load.peak_rate() * network),
        cores,
        cores_at_peak,
        copied_by_a_save: Some(copied),
        servers,
        cost: None,
    }
}

/// Returns the number of masters, and the share of their memory that a save copies.
fn masters(load: &Workload, used: f64, cores_at_peak: f64) -> (u64, f64) {
    let resident = used * load.resident;
    // A save takes as long as its memory, so the number of copied pages is the same share of a small and of a large master.
    let copied = |masters: u64| (load.peak_rate() * COPIED / (masters as f64 * SAVED_PER_SECOND)).min(1.0);
    let fits = |masters: u64| {
        resident * (1.0 + copied(masters)) <= masters as f64 * FILLED * load.node_bytes
            && cores_at_peak <= masters as f64 * load.cores_per_node
    };
    if fits(1) {
        return (1, copied(1));
    }
    // More masters always fit if fewer do, and a save at most doubles the memory.
    let (mut low, mut high) = (SMALLEST_CLUSTER, SMALLEST_CLUSTER);
    while !fits(high) && high < u64::MAX {
        (low, high) = (high, high.saturating_mul(2));
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    (high, copied(high))
}

fn postgres(name: FormName, load: &Workload, constants: &Constants) -> Form {
    let (micros, batch) = match name {
        FormName::PostgresBatches => (constants.sql_batch, BATCH),
        _ => (constants.sql_cycle, 1.0),
    };
    let records = load.live() + load.rate * PURGE;
    // A result is stored as it is, and a fingerprint takes 17 bytes.
    let more = load.results * load.result_bytes + load.fingerprints * 17.0;
    let index = records * constants.index;
    let transactions = 2.0 * load.rate * DAY / batch;
    let cores = load.rate * micros * (1.0 + load.duplicates / 2.0) / 1e6;
    let servers = (records / MOST_ROWS).max(transactions / MOST_TRANSACTIONS).ceil().max(1.0);
    Form {
        name,
        records,
        used_bytes: None,
        resident_bytes: None,
        disk_bytes: Some(records * (constants.row + more) + index),
        index_bytes: Some(index),
        wal_bytes_per_day: Some(load.rate * DAY * (constants.wal + more + constants.wal_purged)),
        transactions_per_day: Some(transactions),
        network_bytes_per_second: None,
        cores,
        cores_at_peak: cores * load.peak,
        copied_by_a_save: None,
        servers: servers as u64,
        cost: None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_number_of_masters_is_the_smallest_that_fits() {
        let load = Workload::new(12_000.0, Duration::from_secs(86_400));
        let (masters, copied) = masters(&load, 155e9, 0.5);
        let needed = |masters: f64| 155e9 * 1.1 * (1.0 + (60_000.0 * 8_192.0 / (masters * 1e8)).min(1.0)) / (0.6 * 8e9);
        assert!(needed(masters as f64) <= masters as f64, "{masters}");
        assert!(needed(masters as f64 - 1.0) > masters as f64 - 1.0, "{masters}");
        assert!(copied > 0.0 && copied < 0.2, "{copied}");
        assert_eq!(super::masters(&load, 1e9, 0.5).0, 1, "one server is enough");
        assert_eq!(super::masters(&load, 5e9, 0.5).0, 3, "a cluster has three masters at least");
        assert_eq!(super::masters(&load, 1e9, 2.4).0, 5, "processors need masters, too");
    }

    #[test]
    fn the_memory_of_a_key_grows_in_steps_of_16_bytes() {
        assert_eq!([12.0, 13.0, 28.0, 29.0].map(allocated_key), [16.0, 32.0, 32.0, 48.0]);
    }
}
