//! The link of each alert to its section of the guide `operating`.
use std::collections::{BTreeMap, BTreeSet};

use idempotent_metrics::ALERT_RULES;

const OPERATING: &str = include_str!("../../../../guides/operating.md");

/// A rule, as the file of rules has it.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    pub(crate) alert: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) runbook: Option<&'static str>,
}

/// Returns all rules.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = Vec::<Rule>::new();
    for line in ALERT_RULES.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            rules.push(Rule { alert, ..Rule::default() });
        }
        let (Some((name, value)), Some(rule)) = (line.split_once(": "), rules.last_mut()) else { continue };
        match name {
            "severity" => rule.severity = value,
            "summary" => rule.summary = value.trim_matches('\''),
            "runbook_url" => rule.runbook = Some(value.trim_matches('\'')),
            _ => {}
        }
    }
    rules
}

/// Returns the text of each section, by its title.
pub(crate) fn sections(guide: &str) -> BTreeMap<&str, &str> {
    guide.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect()
}

/// Returns the alerts that a section names in its first paragraph.
pub(crate) fn named(section: &str) -> BTreeSet<&str> {
    let first = section.trim_start().split("\n\n").next().unwrap_or_default();
    let is_list = first.starts_with("Alert: ") || first.starts_with("Alerts: ");
    first.split('`').skip(1).step_by(2).filter(|name| is_list && name.starts_with("Idempotent")).collect()
}

/// Returns the anchor that rustdoc gives to a heading.
pub(crate) fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char));
    kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
}

/// Returns the page of the guide in the documentation of the facade.
fn page() -> String {
    let manifest = include_str!("../../../../Cargo.toml");
    let documentation = manifest.lines().find_map(|line| line.strip_prefix("documentation = \"")).unwrap();
    assert!(include_str!("../../../../src/docs.rs").contains("\n    operating = \"operating.md\","));
    format!("{}/latest/idempotent/docs/operating/index.html#", documentation.trim_end_matches('"'))
}

#[test]
fn each_rule_links_to_a_section_that_names_it() {
    let (page, sections) = (page(), sections(OPERATING));
    let by_anchor: BTreeMap<_, _> = sections.iter().map(|(title, text)| (anchor(title), named(text))).collect();
    let rules = rules();
    assert!(rules.len() > 20, "{rules:?}");
    for Rule { alert, runbook, .. } in rules {
        let runbook = runbook.unwrap_or_else(|| panic!("{alert} has no `runbook_url`"));
        let anchor = runbook.strip_prefix(&page).unwrap_or_else(|| panic!("{alert}: {runbook} is not on {page}"));
        let named = by_anchor.get(anchor).unwrap_or_else(|| panic!("{alert}: the guide has no section #{anchor}"));
        assert!(named.contains(alert), "the section #{anchor} does not name {alert}, but {named:?}");
    }
}

#[test]
fn each_alert_of_the_guide_has_a_rule() {
    let alerts: BTreeSet<_> = rules().iter().map(|rule| rule.alert).collect();
    let named: BTreeSet<_> = sections(OPERATING).values().flat_map(|text| named(text)).collect();
    assert_eq!(named, alerts);
    let mentioned = OPERATING.split('`').skip(1).step_by(2).filter(|span| span.starts_with("Idempotent"));
    assert_eq!(mentioned.filter(|alert| !alerts.contains(alert)).collect::<Vec<_>>(), Vec::<&str>::new());
}
