//! The measured constants of the calculation.
use serde_json::Value;

use super::error::PlanError;

/// Defines the constants with the names of the benchmark figures that they come from.
macro_rules! constants {
    ($($(#[doc = $doc:literal])+ $name:ident: $row:literal in $unit:literal,)+) => {
        /// The measured constants, each from one figure of `cargo xtask bench scale`.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Constants {
            $($(#[doc = $doc])+ pub $name: f64,)+
        }

        impl Constants {
            /// Parses the constants from the output of the bench, one JSON object per line. Other figures are ignored.
            ///
            /// # Errors
            /// [`InvalidConstant`](PlanError::InvalidConstant) or [`MissingConstant`](PlanError::MissingConstant).
            pub fn parse(lines: &str) -> Result<Self, PlanError> {
                let figures = figures(lines)?;
                let value = |row: &'static str, unit: &str| {
                    let found = figures.iter().find(|figure| figure.name == row && figure.unit == unit);
                    found.map(|figure| figure.value).ok_or(PlanError::MissingConstant { row })
                };
                Ok(Self { $($name: value($row, $unit)?,)+ })
            }

            /// Returns the constants as (name of the figure, value, unit), for an explanation.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, f64, &'static str)> {
                vec![$(($row, self.$name, $unit)),+]
            }
        }
    };
}

constants! {
    /// The memory of a consumed record without a result in Redis, in bytes.
    record: "redis memory of a consumed record" in "B",
    /// The memory of a consumed record with a fingerprint in Redis, in bytes.
    fingerprint: "redis memory of one with a fingerprint" in "B",
    /// The memory of a consumed record with a result of 100 bytes in Redis, in bytes.
    result_of_100: "redis memory of one with a result of 100 B" in "B",
    /// The memory of a consumed record with a result of 500 bytes in Redis, in bytes.
    result_of_500: "redis memory of one with a result of 500 B" in "B",
    /// The memory of a record in flight in Redis, in bytes.
    in_flight: "redis memory of a record in flight" in "B",
    /// The memory of a Redis server without records, in bytes.
    empty_server: "redis memory of an empty server" in "B",
    /// The processor time of a claim and a completion in Redis, in µs.
    cycle: "redis cycle, CPU of the server" in "us",
    /// The processor time of a claim of a consumed key in Redis, in µs.
    duplicate: "redis duplicate, CPU of the server" in "us",
    /// The bytes of a claim and a completion to Redis.
    to_server: "redis bytes of a cycle, to the server" in "B",
    /// The bytes of the answers to a claim and a completion.
    from_server: "redis bytes of a cycle, from the server" in "B",
    /// The bytes of a claim and a completion in the append-only file, and so to each replica.
    append_only: "redis AOF of a cycle" in "B",
    /// The bytes of a consumed record in a table of PostgreSQL, without its index.
    row: "postgres heap of a consumed record" in "B",
    /// The bytes of a consumed record in the index of the table.
    index: "postgres index of a consumed record" in "B",
    /// The processor time of a claim and a completion in PostgreSQL, in µs.
    sql_cycle: "postgres cycle, CPU of the server" in "us",
    /// The processor time of the same in a batch of 64, in µs.
    sql_batch: "postgres cycle in a batch of 64, CPU of the server" in "us",
    /// The bytes of the write-ahead log of a claim and a completion.
    wal: "postgres WAL of a cycle" in "B",
    /// The bytes of the write-ahead log of the same directly after a checkpoint, with the images of whole pages.
    wal_after_checkpoint: "postgres WAL of a cycle after a checkpoint" in "B",
    /// The bytes of the write-ahead log of a removed record.
    wal_purged: "postgres WAL of a purged record" in "B",
}

/// The figures of the last run of the bench, as `bench scale --write` wrote them.
const MEASURED: &str = include_str!("measured.jsonl");

impl Constants {
    /// Returns the constants that this version was published with.
    ///
    /// # Errors
    /// The published figures are incomplete, which a test excludes.
    pub fn measured() -> Result<Self, PlanError> {
        Self::parse(MEASURED)
    }

    /// Returns the memory in bytes of a consumed record in Redis with a result of this length.
    ///
    /// Values between the measured lengths are on straight lines.
    #[must_use]
    pub fn with_result(&self, length: f64) -> f64 {
        let points = [(0.0, self.record), (100.0, self.result_of_100), (500.0, self.result_of_500)];
        let [first, second] = if length < points[1].0 { [points[0], points[1]] } else { [points[1], points[2]] };
        first.1 + (length - first.0) * (second.1 - first.1) / (second.0 - first.0)
    }
}

/// A figure of the bench.
struct Figure {
    name: String,
    unit: String,
    value: f64,
}

fn figures(lines: &str) -> Result<Vec<Figure>, PlanError> {
    let figure = |(at, line): (usize, &str)| {
        let invalid = |reason: String| PlanError::InvalidConstant { line: at + 1, reason };
        let object: Value = serde_json::from_str(line).map_err(|error| invalid(error.to_string()))?;
        let text = |name: &str| object[name].as_str().ok_or_else(|| invalid(format!("no `{name}`")));
        let value = object["value"].as_f64().filter(|value| value.is_finite() && *value >= 0.0);
        Ok(Figure {
            name: format!("{} {}", text("store")?, text("case")?),
            unit: text("unit")?.to_owned(),
            value: value.ok_or_else(|| invalid("no `value` of at least 0".to_owned()))?,
        })
    };
    lines.lines().enumerate().map(figure).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_has_a_measured_row() {
        let constants = Constants::measured().unwrap();
        assert!(constants.rows().iter().all(|(_, value, _)| *value > 0.0), "{constants:?}");
    }

    #[test]
    fn a_missing_row_and_an_invalid_line_are_named() {
        let without = |row: &str| {
            let is_other = |line: &&str| !line.contains(&format!("\"case\":\"{row}\""));
            MEASURED.lines().filter(is_other).map(|line| format!("{line}\n")).collect::<String>()
        };
        let missing = Constants::parse(&without("AOF of a cycle")).unwrap_err();
        // The prototype has a figure with this case, too.
        assert_eq!(missing, PlanError::MissingConstant { row: "redis AOF of a cycle" });
        let invalid = Constants::parse("{}\n").unwrap_err().to_string();
        assert!(invalid.contains("line 1") && invalid.contains("no `store`"), "{invalid}");
        let negative = MEASURED.replacen("\"value\":", "\"value\":-", 1);
        let negative = Constants::parse(&negative).unwrap_err().to_string();
        assert!(negative.contains("no `value` of at least 0"), "{negative}");
    }

    #[test]
    fn a_result_between_two_measured_lengths_is_on_their_line() {
        let mut constants = Constants::measured().unwrap();
        (constants.record, constants.result_of_100, constants.result_of_500) = (150.0, 300.0, 800.0);
        let bytes = [0.0, 50.0, 100.0, 300.0, 500.0, 900.0].map(|length| constants.with_result(length));
        assert_eq!(bytes, [150.0, 225.0, 300.0, 550.0, 800.0, 1_300.0]);
    }
}
