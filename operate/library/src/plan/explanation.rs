//! The calculation in steps.
use serde::Serialize;

use super::constants::Constants;
use super::form::{
    BATCH, COPIED, FILLED, Form, FormName, MOST_ROWS, MOST_TRANSACTIONS, PURGE, SAVED_PER_SECOND, SMALLEST_CLUSTER,
    record_bytes,
};
use super::quantity::{bytes, count, digits};
use super::workload::Workload;

/// A step of the calculation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// The form to which the step belongs, or `load` or `constant`.
    pub of: &'static str,
    /// The name of the result.
    pub name: String,
    /// The formula with its numbers.
    pub formula: String,
    /// The result.
    pub value: String,
}

/// Returns the steps of all forms, and the constants.
pub(super) fn steps(load: &Workload, constants: &Constants, forms: &[Form]) -> Vec<Step> {
    let mut steps = of_load(load);
    for form in forms {
        if form.name.is_in_memory() {
            of_redis(&mut steps, load, constants, form);
        } else {
            of_postgres(&mut steps, load, constants, form);
        }
    }
    let rows = constants.rows().into_iter();
    steps.extend(rows.map(|(row, value, unit)| {
        step("constant", row, "measured by `cargo xtask bench scale`", format!("{} {unit}", digits(value)))
    }));
    steps
}

fn step(of: &'static str, name: &str, formula: impl Into<String>, value: String) -> Step {
    Step { of, name: name.to_owned(), formula: formula.into(), value }
}

fn of_load(load: &Workload) -> Vec<Step> {
    let (rate, peak) = (count(load.rate), count(load.peak_rate()));
    let seconds = count(load.retention.as_secs_f64());
    vec![
        step("load", "peak rate", format!("{rate}/s × {}", count(load.peak)), format!("{peak}/s")),
        step("load", "live keys", format!("{rate}/s × {seconds} s"), count(load.live())),
    ]
}

fn of_redis(steps: &mut Vec<Step>, load: &Workload, constants: &Constants, form: &Form) {
    let of = form.name.text();
    let (peak, cores) = (count(load.peak_rate()), digits(form.cores_at_peak));
    let record = record_bytes(load, constants);
    let in_flight = load.peak_rate() * load.handler.as_secs_f64();
    let formula = format!(
        "{} × {} + {} in flight × {} + {} × {} of an empty server",
        count(load.live()),
        bytes(record),
        count(in_flight),
        bytes(constants.in_flight),
        form.servers,
        bytes(constants.empty_server)
    );
    steps.push(step(of, "used", formula, bytes(form.used_bytes.unwrap_or_default())));
    let resident = bytes(form.resident_bytes.unwrap_or_default());
    steps.push(step(of, "resident", format!("used × {}", digits(load.resident)), resident));
    let (cycle, duplicate) = (digits(constants.cycle), digits(constants.duplicate));
    let formula = format!("{peak}/s × ({cycle} µs + {} × {duplicate} µs)", count(load.duplicates));
    steps.push(step(of, "cores at peak", formula, cores));
    let traffic = bytes(constants.to_server + constants.from_server);
    let formula = format!(
        "{peak}/s × ({traffic} × (1 + {} / 2) + {} × {})",
        count(load.duplicates),
        load.replicas,
        bytes(constants.append_only)
    );
    let network = form.network_bytes_per_second.unwrap_or_default();
    steps.push(step(of, "network at peak", formula, format!("{}/s", bytes(network))));
    let formula = format!("{peak}/s × {} / (masters × {}/s of a save)", bytes(COPIED), bytes(SAVED_PER_SECOND));
    let copied = format!("{} %", digits(100.0 * form.copied_by_a_save.unwrap_or_default()));
    steps.push(step(of, "memory that a save copies", formula, copied));
    let formula = format!(
        "1, or at least {SMALLEST_CLUSTER}: (resident + copied) / ({FILLED} × {}), and cores / {}",
        bytes(load.node_bytes),
        load.cores_per_node
    );
    steps.push(step(of, "masters", formula, form.servers.to_string()));
}

fn of_postgres(steps: &mut Vec<Step>, load: &Workload, constants: &Constants, form: &Form) {
    let of = form.name.text();
    let is_batched = form.name == FormName::PostgresBatches;
    let (micros, batch) = if is_batched { (constants.sql_batch, BATCH) } else { (constants.sql_cycle, 1.0) };
    let (rate, records) = (count(load.rate), count(form.records));
    let more = load.results * load.result_bytes + load.fingerprints * 17.0;
    let formula = format!("{} + {rate}/s × {PURGE} s between purges", count(load.live()));
    steps.push(step(of, "records", formula, records.clone()));
    let (row, index) = (bytes(constants.row + more), bytes(constants.index));
    let disk = bytes(form.disk_bytes.unwrap_or_default());
    steps.push(step(of, "disk", format!("{records} × ({row} + {index} of index)"), disk));
    let formula =
        format!("{}/s × {} µs × (1 + {} / 2)", count(load.peak_rate()), digits(micros), count(load.duplicates));
    steps.push(step(of, "cores at peak", formula, digits(form.cores_at_peak)));
    let (wal, purged) = (bytes(constants.wal + more), bytes(constants.wal_purged));
    let formula = format!(
        "{rate}/s × 86,400 s × ({wal} + {purged} of a purge); up to {} instead of {wal} after a checkpoint",
        bytes(constants.wal_after_checkpoint + more)
    );
    steps.push(step(of, "WAL in a day", formula, bytes(form.wal_bytes_per_day.unwrap_or_default())));
    let transactions = count(form.transactions_per_day.unwrap_or_default());
    steps.push(step(of, "transactions in a day", format!("2 × {rate}/s × 86,400 s / {batch}"), transactions));
    let formula =
        format!("records / {}, and transactions / {}, as an assumption", count(MOST_ROWS), count(MOST_TRANSACTIONS));
    steps.push(step(of, "databases", formula, form.servers.to_string()));
}
