//! Capacity plans: their outputs with fixed constants, and the laws of their figures.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use idempotent_operate::plan::{Constants, Engine, Form, Plan, Prices, Workload, parse_rate};

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/plan")
}

/// Returns constants that no run of the bench changes.
fn constants() -> Constants {
    Constants::parse(&fs::read_to_string(folder().join("constants.jsonl")).unwrap()).unwrap()
}

fn load(rate: &str, seconds: u64) -> Workload {
    Workload::new(parse_rate(rate).unwrap(), Duration::from_secs(seconds))
}

fn changed(rate: &str, seconds: u64, change: impl FnOnce(&mut Workload)) -> Workload {
    let mut load = load(rate, seconds);
    change(&mut load);
    load
}

fn plan(load: &Workload) -> Plan {
    Plan::of(load, &constants()).unwrap()
}

/// Returns workloads of all sizes, with a name each.
fn workloads() -> Vec<(&'static str, Workload)> {
    vec![
        ("small", load("1/s", HOUR)),
        ("100-per-second-for-a-week", load("100/s", 7 * DAY)),
        ("1000-per-second-for-a-day", load("1000/s", DAY)),
        ("12000-per-second-for-a-day", load("12000/s", DAY)),
        ("5e7-per-day-for-a-week", load("5e7/day", 7 * DAY)),
        ("1e9-per-day-for-a-week", load("1e9/day", 7 * DAY)),
        ("fingerprints", changed("5e8/day", DAY, |load| load.fingerprints = 1.0)),
        ("results", changed("1e8/day", DAY, |load| load.result_bytes = 300.0)),
        ("valkey", changed("1e9/day", DAY, |load| load.engine = Engine::Valkey)),
        ("postgres", changed("1e9/day", DAY, |load| load.engine = Engine::Postgres)),
        (
            "prices",
            changed("1e9/day", DAY, |load| load.prices = Some(Prices { memory_gb: 4.0, core: 30.0, disk_gb: 0.1 })),
        ),
        (
            "large-servers-and-slow-handlers",
            changed("1e9/day", DAY, |load| {
                (load.node_bytes, load.replicas, load.cores_per_node) = (64e9, 2, 1.0);
                (load.handler, load.peak, load.duplicates) = (Duration::from_secs(30), 10.0, 1.0);
            }),
        ),
    ]
}

#[test]
fn the_outputs_are_those_of_the_files() {
    let is_overwritten = std::env::var("GOLDEN").is_ok_and(|value| value == "overwrite");
    let mut outputs: Vec<_> =
        workloads().into_iter().map(|(name, load)| (name.to_owned(), plan(&load).text())).collect();
    let with_results = changed("12000/s", DAY, |load| (load.fingerprints, load.result_bytes) = (0.5, 300.0));
    outputs.push(("explanation".to_owned(), plan(&with_results).explanation()));
    outputs.push(("json".to_owned(), format!("{:#}\n", plan(&load("12000/s", DAY)).json(true))));
    for (name, output) in outputs {
        let file = folder().join(format!("{name}.txt"));
        if is_overwritten {
            fs::write(file, output).unwrap();
        } else {
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(output, expected, "{name}: `GOLDEN=overwrite cargo test -p idempotent-operate -- outputs`");
        }
    }
}

/// Returns whether two figures differ by at most one percent, which the memory of empty servers explains.
fn is_double(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (other / one - 2.0).abs() < 0.02,
        (None, None) => true,
        _ => false,
    }
}

#[test]
fn twice_the_rate_needs_twice_the_resources() {
    for rate in ["1e8/day", "1e9/day", "1e10/day"] {
        let once = plan(&load(rate, DAY));
        let twice = plan(&changed(rate, DAY, |load| load.rate *= 2.0));
        for form in &once.forms {
            let other = twice.forms.iter().find(|other| other.name == form.name).unwrap();
            let figures: [fn(&Form) -> Option<f64>; 7] = [
                |form| form.resident_bytes,
                |form| form.disk_bytes,
                |form| form.wal_bytes_per_day,
                |form| form.transactions_per_day,
                |form| form.network_bytes_per_second,
                |form| Some(form.cores),
                |form| Some(form.cores_at_peak),
            ];
            assert!(figures.iter().all(|figure| is_double(figure(form), figure(other))), "{form:?}: {other:?}");
            assert!(other.servers >= form.servers);
        }
    }
}

#[test]
fn each_resource_grows_with_its_cause_alone() {
    let first = |load: &Workload| plan(load).forms.into_iter().find(|form| form.name.is_in_memory()).unwrap();
    let base = first(&load("1e9/day", DAY));
    let longer = first(&load("1e9/day", 2 * DAY));
    assert!(is_double(base.resident_bytes, longer.resident_bytes) && base.cores == longer.cores);
    let peak = first(&changed("1e9/day", DAY, |load| load.peak = 10.0));
    assert!(is_double(Some(base.cores_at_peak), Some(peak.cores_at_peak)) && base.cores == peak.cores);
    let result = first(&changed("1e9/day", DAY, |load| load.result_bytes = 100.0));
    assert!(result.resident_bytes > base.resident_bytes && result.cores == base.cores);
    let replicas = first(&changed("1e9/day", DAY, |load| load.replicas = 0));
    assert!(replicas.network_bytes_per_second < base.network_bytes_per_second);
}

#[test]
fn the_explanation_names_each_constant_with_its_row() {
    let explanation = plan(&load("12000/s", DAY)).explanation();
    for (row, ..) in constants().rows() {
        assert!(explanation.contains(&format!("  {row} = measured by `cargo xtask bench scale` = ")), "{row}");
    }
}

#[test]
fn a_plan_of_any_size_ends() {
    for (rate, retention) in [(1e-6, Duration::from_millis(1)), (1e9, Duration::from_secs(315_576_000))] {
        let mut load = Workload::new(rate, retention);
        (load.peak, load.result_bytes, load.node_bytes, load.resident) = (1_000.0, 1e8, 1e8, 100.0);
        assert!(plan(&load).forms.iter().all(|form| form.servers >= 1));
    }
}
