//! The rules and the dashboard's queries, checked by `promtool`.
use std::collections::BTreeSet;
use std::fs;

use idempotent_harness::servers::PrometheusServer;
use idempotent_metrics::ALERT_RULES;

use crate::catalogue::queries;

const TESTS: &str = include_str!("../../../alerts.test.yaml");
const CASE: &str = "\n  - name: ";

/// Runs the tests with these rules.
fn tested(rules: &str, tests: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("alerts.yaml"), rules).unwrap();
    fs::write(folder.path().join("alerts.test.yaml"), tests).unwrap();
    PrometheusServer::promtool(folder.path(), &["test", "rules", "alerts.test.yaml"], "")
}

fn alerts() -> Vec<&'static str> {
    ALERT_RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// Returns the file of tests with only the cases that name this alert.
fn cases_of(alert: &str) -> String {
    let (head, cases) = TESTS.split_once(CASE).unwrap();
    let mentions = |case: &&str| case.starts_with(alert) || case.contains(&format!("alertname=\"{alert}\""));
    let own: Vec<_> = cases.split(CASE).filter(mentions).collect();
    format!("{head}{CASE}{}\n", own.join(CASE))
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    tested(ALERT_RULES, TESTS).unwrap();
    let names: BTreeSet<_> = alerts().into_iter().collect();
    assert_eq!((names.len(), names.len() > 20), (alerts().len(), true));
    for alert in names {
        assert!(TESTS.contains(&format!("alertname=\"{alert}\"")), "{alert} never fires in a test");
        assert!(cases_of(alert).contains("exp_samples: []"), "{alert} is never quiet in a test");
    }
}

#[test]
fn each_query_of_the_dashboard_is_accepted() {
    let rules: Vec<_> = queries().iter().enumerate().map(|(number, query)| recording(number, query)).collect();
    let text = format!("groups:\n  - name: dashboard\n    rules:\n{}", rules.concat());
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        fs::write(folder.path().join("queries.yaml"), text).unwrap();
        PrometheusServer::promtool(folder.path(), &["check", "rules", "queries.yaml"], "")
    };
    let told = check(&text).unwrap();
    assert!(rules.len() > 40 && told.contains(&format!("{} rules found", rules.len())), "{told}");
    check(&text.replacen("sum", "sum(", 1)).unwrap_err();
}

/// Returns a query as a recording rule, with a value for each variable of the dashboard.
fn recording(number: usize, query: &str) -> String {
    let query = query.replace("$__rate_interval", "5m");
    let query =
        ["job", "scope", "store", "group"].iter().fold(query, |query, name| query.replace(&format!("${name}"), ".*"));
    assert!(!query.contains('$'), "an unknown variable: {query}");
    format!("      - record: dashboard:query:{number}\n        expr: |\n          {query}\n")
}

/// A rule with one change, by which at least one test must fail.
struct Mutant {
    alert: &'static str,
    change: String,
    rules: String,
}

/// Returns the mutants of all rules: each threshold too high and too low, each `for` too short or too long, and each
/// clause that is missing.
fn mutants() -> Vec<Mutant> {
    let mut all = Vec::new();
    let mut start = 0;
    for rule in ALERT_RULES.split_inclusive("description: ").map(str::to_owned).collect::<Vec<_>>() {
        let Some(alert) = alerts().into_iter().find(|alert| rule.contains(&format!("- alert: {alert}\n"))) else {
            break;
        };
        let mut put = |change: String, from: usize, to: usize, instead: &str| {
            let rules = format!("{}{instead}{}", &ALERT_RULES[..start + from], &ALERT_RULES[start + to..]);
            all.push(Mutant { alert, change, rules });
        };
        for (at, _) in rule.match_indices("> ") {
            let end = at + 2 + rule[at + 2..].find([' ', '\n']).unwrap();
            let threshold = &rule[at..end];
            put(format!("{threshold} is never reached"), at, end, "> 1e9");
            put(format!("{threshold} is always reached"), at, end, "> -1");
        }
        for (clause, other) in [
            ("\n          or\n", "\n        for:"),
            ("\n          and\n", "\n        for:"),
            ("\n          unless\n", "\n        for:"),
        ] {
            if let Some(from) = rule.find(clause) {
                put(format!("no `{}`", clause.trim()), from, rule.find(other).unwrap(), "");
            }
        }
        let from = rule.find("for: ").unwrap();
        let to = from + rule[from..].find('\n').unwrap();
        put(format!("{} is longer", &rule[from..to]), from, to, "for: 1h");
        if !rule.contains("for: 0m") {
            put(format!("{} is 0", &rule[from..to]), from, to, "for: 0m");
        }
        start += rule.len();
    }
    all
}

/// Tests one mutant of every `nth`.
fn are_noticed(nth: usize) {
    let mutants = mutants();
    assert!(mutants.len() > 100, "{}", mutants.len());
    let missed = mutants.iter().step_by(nth).filter(|mutant| tested(&mutant.rules, &cases_of(mutant.alert)).is_ok());
    let missed: Vec<_> = missed.map(|mutant| format!("{}: {}", mutant.alert, mutant.change)).collect();
    assert!(missed.is_empty(), "no test notices {missed:#?}");
}

#[test]
fn every_twentieth_change_of_a_rule_is_noticed() {
    are_noticed(20);
}

mod extras {
    #[test]
    fn each_change_of_a_rule_is_noticed() {
        super::are_noticed(1);
    }
}
