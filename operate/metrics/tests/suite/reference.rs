//! The tables of metrics and alerts in the guide `reference`.
//!
//! `REFERENCE=overwrite cargo test -p idempotent-metrics -- reference` writes them.
use std::fs;
use std::path::Path;

use idempotent_metrics::{METRICS, MetricInfo, MetricKind};

use crate::runbooks::{Rule, anchor, rules, sections};

const OPERATING: &str = include_str!("../../../../guides/operating.md");

fn metric(MetricInfo { name, kind, labels, help, .. }: &MetricInfo) -> String {
    let kind = match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
        other => panic!("{other:?} has no name"),
    };
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), help.trim_end_matches('.'))
}

fn alert(Rule { alert, severity, summary, runbook }: &Rule) -> String {
    let titles = sections(OPERATING).into_keys();
    let has_link = |title: &&str| runbook.is_some_and(|url| url.ends_with(&format!("#{}", anchor(title))));
    let title = titles.into_iter().find(has_link).unwrap();
    let summary = summary.replace("{{ $labels.", "`").replace(" }}", "`");
    format!("| `{alert}` | {severity} | {summary} | {title} |\n")
}

/// Replaces the table of a section.
fn replaced(guide: &str, title: &str, table: &str) -> String {
    let section = guide.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no section {title}"));
    let start = section + guide[section..].find("\n|").unwrap() + 1;
    let end = guide[start..].find("\n\n").map_or(guide.len(), |length| start + length + 1);
    format!("{}{table}{}", &guide[..start], &guide[end..])
}

#[test]
fn the_reference_lists_each_metric_and_each_alert() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guides/reference.md");
    let guide = fs::read_to_string(&path).unwrap();
    let metrics: String = METRICS.iter().map(metric).collect();
    let alerts: String = rules().iter().map(alert).collect();
    let metrics = format!("| metric | kind | labels | meaning |\n|---|---|---|---|\n{metrics}");
    let alerts = format!("| alert | severity | meaning | section |\n|---|---|---|---|\n{alerts}");
    let expected = replaced(&replaced(&guide, "Metrics", &metrics), "Alerts", &alerts);
    if std::env::var("REFERENCE").is_ok_and(|value| value == "overwrite") {
        fs::write(&path, &expected).unwrap();
        return;
    }
    let mut lines = guide.lines().zip(expected.lines());
    let other = lines.find(|(found, expected)| found != expected);
    assert!(
        guide == expected,
        "{other:?} differs: run `REFERENCE=overwrite cargo test -p idempotent-metrics -- reference`"
    );
}
