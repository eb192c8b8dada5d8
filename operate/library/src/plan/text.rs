//! A plan as text and as JSON.
use std::fmt::Write;

use serde_json::{Value, json};

use super::calculation::Plan;
use super::form::Form;
use super::quantity::{bytes, count, digits};
use super::workload::Workload;

impl Plan {
    /// Returns the plan as text for people: the load, a line for each form, and the notes.
    #[must_use]
    pub fn text(&self) -> String {
        let load = &self.workload;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "load   {} new keys/s, {}/s at the peak, {}/s duplicates; {} keys in {}",
            count(load.rate),
            count(load.peak_rate()),
            count(load.rate * load.duplicates),
            count(load.live()),
            crate::short_time(u64::try_from(load.retention.as_millis()).unwrap_or(u64::MAX))
        );
        let width = self.forms.iter().map(|form| form.name.text().len()).max().unwrap_or_default();
        for (at, form) in self.forms.iter().enumerate() {
            let figures = figures(load, form).join(" · ");
            let _ = writeln!(out, "{:>4}   {:<width$}   {figures}", at + 1, form.name.text());
        }
        for note in &self.notes {
            let _ = writeln!(out, "note   {note}");
        }
        out
    }

    /// Returns the steps of the calculation as text, one per line.
    #[must_use]
    pub fn explanation(&self) -> String {
        let mut out = String::new();
        let mut of = "";
        for step in &self.steps {
            if step.of != of {
                let _ = writeln!(out, "{}", step.of);
                of = step.of;
            }
            let _ = writeln!(out, "  {} = {} = {}", step.name, step.formula, step.value);
        }
        out
    }

    /// Returns the plan as a JSON object. The names of the fields are stable, and later versions may add fields.
    #[must_use]
    pub fn json(&self, with_steps: bool) -> Value {
        let load = &self.workload;
        let mut plan = json!({
            "load": {
                "rate": load.rate, "peak_rate": load.peak_rate(), "retention_s": load.retention.as_secs_f64(),
                "live": load.live(), "duplicates": load.duplicates, "handler_s": load.handler.as_secs_f64(),
                "result_bytes": load.result_bytes, "results": load.results, "fingerprints": load.fingerprints,
                "replicas": load.replicas, "node_bytes": load.node_bytes, "resident": load.resident,
            },
            "forms": self.forms,
            "notes": self.notes,
        });
        if with_steps {
            plan["steps"] = json!(self.steps);
        }
        plan
    }
}

/// Returns the figures of a form for people.
fn figures(load: &Workload, form: &Form) -> Vec<String> {
    let mut figures = Vec::new();
    let mut add = |figure: Option<String>| figures.extend(figure);
    add(form.resident_bytes.map(|resident| format!("{} resident", bytes(resident))));
    add(form.disk_bytes.map(|disk| format!("{} disk", bytes(disk))));
    add(form.index_bytes.map(|index| format!("{} of it index", bytes(index))));
    add(Some(format!("{} cores", digits(form.cores_at_peak))));
    add(form.network_bytes_per_second.map(|network| format!("{}/s", bytes(network))));
    add(form.wal_bytes_per_day.map(|wal| format!("{} WAL/day", bytes(wal))));
    add(form.transactions_per_day.map(|number| format!("{} transactions/day", count(number))));
    add(Some(servers(load, form)));
    add(form.cost.map(|cost| format!("{} per month", count(cost))));
    figures
}

fn servers(load: &Workload, form: &Form) -> String {
    let (number, name) = match (form.name.is_in_memory(), form.servers) {
        (true, 1) => ("1".to_owned(), "server"),
        (true, masters) => (count(masters as f64), "masters"),
        (false, 1) => ("1".to_owned(), "database"),
        (false, databases) => (count(databases as f64), "databases"),
    };
    if form.name.is_in_memory() {
        format!("{number} {name} of {}", bytes(load.node_bytes))
    } else {
        format!("{number} {name}")
    }
}
