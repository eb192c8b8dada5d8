//! The load that a plan is made for.
use std::time::Duration;

use super::error::PlanError;

/// The systems whose forms a plan contains.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Engine {
    /// Records in Redis.
    Redis,
    /// Records in Valkey. The constants are those of Redis.
    Valkey,
    /// Records in PostgreSQL.
    Postgres,
    /// Redis and PostgreSQL.
    #[default]
    All,
}

/// The monthly prices of resources, in any currency. A price of 0 leaves the resource out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// The price of a GB of memory.
    pub memory_gb: f64,
    /// The price of a core.
    pub core: f64,
    /// The price of a GB of disk.
    pub disk_gb: f64,
}

/// A load, with the limits of one server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Workload {
    /// New keys per second on average.
    pub rate: f64,
    /// The time for which a consumed key is kept.
    pub retention: Duration,
    /// The rate at the peak, as a multiple of the average rate.
    ///
    /// # Default
    /// 5
    pub peak: f64,
    /// The mean length of a storage key in bytes.
    ///
    /// # Default
    /// 40
    pub key_bytes: f64,
    /// The encoded length of a stored result in bytes. 0: no result is stored.
    ///
    /// # Default
    /// 0
    pub result_bytes: f64,
    /// The share of records with a result, from 0 to 1.
    ///
    /// # Default
    /// 1
    pub results: f64,
    /// The share of records with a fingerprint, from 0 to 1.
    ///
    /// # Default
    /// 0
    pub fingerprints: f64,
    /// The time of a handler.
    ///
    /// # Default
    /// 200 ms
    pub handler: Duration,
    /// Duplicates per new key.
    ///
    /// # Default
    /// 0.02
    pub duplicates: f64,
    /// Replicas of each server.
    ///
    /// # Default
    /// 1
    pub replicas: u32,
    /// The memory of one server in bytes.
    ///
    /// # Default
    /// 8 GB
    pub node_bytes: f64,
    /// The cores of one Redis server that the records may use at the peak.
    ///
    /// # Default
    /// 0.5
    pub cores_per_node: f64,
    /// The resident memory of a Redis server, as a multiple of the memory that it allocated.
    ///
    /// # Default
    /// 1.1
    pub resident: f64,
    /// The systems.
    ///
    /// # Default
    /// [`Engine::All`]
    pub engine: Engine,
    /// The prices, for the order of the forms.
    ///
    /// # Default
    /// None
    pub prices: Option<Prices>,
}

/// The length of the keys with which the constants were measured.
pub(super) const MEASURED_KEY: f64 = 40.0;

impl Workload {
    /// Creates a workload of `rate` new keys per second that are kept for `retention`, with defaults for all other values.
    #[must_use]
    pub fn new(rate: f64, retention: Duration) -> Self {
        Self {
            rate,
            retention,
            peak: 5.0,
            key_bytes: MEASURED_KEY,
            result_bytes: 0.0,
            results: 1.0,
            fingerprints: 0.0,
            handler: Duration::from_millis(200),
            duplicates: 0.02,
            replicas: 1,
            node_bytes: 8e9,
            cores_per_node: 0.5,
            resident: 1.1,
            engine: Engine::All,
            prices: None,
        }
    }

    /// Returns the new keys per second at the peak.
    #[must_use]
    pub fn peak_rate(&self) -> f64 {
        self.rate * self.peak
    }

    /// Returns the number of keys that are kept at the same time.
    #[must_use]
    pub fn live(&self) -> f64 {
        self.rate * self.retention.as_secs_f64()
    }

    /// Checks the ranges of all values.
    ///
    /// # Errors
    /// [`OutOfRange`](PlanError::OutOfRange), with the first value that is out of its range.
    pub fn check(&self) -> Result<(), PlanError> {
        let prices = self.prices.unwrap_or_default();
        let (retention, handler) = (self.retention.as_secs_f64(), self.handler.as_secs_f64());
        for (name, value, range, expected) in [
            ("the rate per second", self.rate, 1e-6..=1e9, "a rate from one key in 11 days to 1e9/s"),
            ("the retention in seconds", retention, 1e-3..=315_576_000.0, "1ms to 10 years"),
            ("the peak factor", self.peak, 1.0..=1_000.0, "1 to 1000"),
            ("the key in bytes", self.key_bytes, 1.0..=1_000.0, "1B to 1000B"),
            ("the result in bytes", self.result_bytes, 0.0..=1e8, "0B to 100MB"),
            ("the share of results", self.results, 0.0..=1.0, "0 to 1"),
            ("the share of fingerprints", self.fingerprints, 0.0..=1.0, "0 to 1"),
            ("the handler in seconds", handler, 0.0..=2_678_400.0, "0s to 31 days"),
            ("duplicates per key", self.duplicates, 0.0..=1_000.0, "0 to 1000"),
            ("the number of replicas", f64::from(self.replicas), 0.0..=16.0, "0 to 16"),
            ("the memory of a server in bytes", self.node_bytes, 1e8..=1e14, "100MB to 100TB"),
            ("the cores per server", self.cores_per_node, 0.01..=1_024.0, "0.01 to 1024"),
            ("the resident memory per allocated memory", self.resident, 1.0..=100.0, "1 to 100"),
            ("the price of memory", prices.memory_gb, 0.0..=1e9, "0 to 1e9"),
            ("the price of a core", prices.core, 0.0..=1e9, "0 to 1e9"),
            ("the price of disk", prices.disk_gb, 0.0..=1e9, "0 to 1e9"),
        ] {
            if !range.contains(&value) {
                return Err(PlanError::OutOfRange { name, value, expected });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_value_out_of_its_range_is_named() {
        type Change = fn(&mut Workload);
        let changes: [(&str, Change); 8] = [
            ("rate", |load| load.rate = 0.0),
            ("retention", |load| load.retention = Duration::MAX),
            ("peak", |load| load.peak = 0.5),
            ("result", |load| load.result_bytes = f64::NAN),
            ("duplicates", |load| load.duplicates = -1.0),
            ("replicas", |load| load.replicas = 17),
            ("memory of a server", |load| load.node_bytes = f64::INFINITY),
            ("price of a core", |load| load.prices = Some(Prices { core: -1.0, ..Prices::default() })),
        ];
        for (name, change) in changes {
            let mut load = Workload::new(1.0, Duration::from_secs(60));
            assert_eq!(load.check(), Ok(()));
            change(&mut load);
            assert!(load.check().is_err_and(|error| error.to_string().contains(name)), "{name}");
        }
    }
}
