//! Tests of the model of large fleets: all scenarios hold, each check can fail, and the program reports a violation.
use std::collections::BTreeSet;
use std::process::Command;

use idempotent_simulator::scale::{Bug, BugCase, Check, Form, Scenario, play};

use super::sim::each;

/// The seeds among which a bug must show. Most bugs show with the first one.
const SEEDS: u64 = 20;

#[test]
fn all_scenarios_hold_in_both_forms() {
    let all: Vec<_> = Scenario::ALL.iter().flat_map(|(one, ..)| Form::ALL.map(|(form, _)| (*one, form))).collect();
    let broken: Vec<_> = each(&all, |(scenario, form)| (*scenario, *form, play(*scenario, *form, 1, None, None)))
        .into_iter()
        .filter(|(_, _, played)| !played.violations.is_empty() || played.figures.runs == 0)
        .map(|(scenario, form, played)| (scenario, form, played.violations))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn each_bug_is_detected_by_the_check_for_it() {
    let missed: Vec<_> = each(&Bug::CASES, |case| {
        let BugCase { bug, scenario, form, check, .. } = *case;
        let is_detected = (0..SEEDS).any(|seed| {
            let broken = play(scenario, form, seed, Some(bug), None);
            broken.violations.iter().any(|violation| violation.check == check)
        });
        (!is_detected).then_some(*case)
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(missed.is_empty(), "not detected: {missed:#?}");
}

#[test]
fn each_check_and_each_scenario_has_a_bug() {
    let checks: BTreeSet<Check> = Bug::CASES.iter().map(|case| case.check).collect();
    assert_eq!(checks, Check::ALL.into());
    let scenarios: BTreeSet<Scenario> = Bug::CASES.iter().map(|case| case.scenario).collect();
    assert_eq!(scenarios, Scenario::ALL.iter().map(|(scenario, ..)| *scenario).collect());
}

#[test]
fn a_play_is_repeated_exactly() {
    for (scenario, form) in [(Scenario::Failover, Form::Packed), (Scenario::MasterLost, Form::Record)] {
        let [one, two] = [(); 2].map(|()| play(scenario, form, 3, None, Some(7)));
        assert_eq!(one, two);
        assert!(!one.log.is_empty() && !one.faults.is_empty());
    }
}

struct Said {
    code: i32,
    closing: Option<serde_json::Value>,
    err: String,
}

fn sim_scale(arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_idempotent-sim-scale")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let closing = text(output.stdout).lines().last().and_then(|last| serde_json::from_str(last).ok());
    Said { code: output.status.code().unwrap(), closing, err: text(output.stderr) }
}

#[test]
fn the_program_prints_a_table_and_ends_with_one_object() {
    let said = sim_scale(&["--seeds", "2", "--first", "5", "--scenario", "small"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let rows = said.err.lines().filter(|line| line.starts_with("small"));
    assert_eq!(rows.count(), 2, "{}", said.err);
    let closing = said.closing.unwrap();
    assert_eq!((&closing["name"], &closing["seed"], &closing["plays"]), (&"sim scale".into(), &5.into(), &4.into()));
    assert!(closing["failing_seed"].is_null() && closing["violations"] == 0, "{closing}");
}

#[test]
fn a_violation_ends_with_its_seed_and_a_command_that_repeats_it() {
    let bug = ["--scenario", "small", "--form", "record", "--bug", "PostponedDropped"];
    let said = sim_scale(&[&["--seeds", "5"][..], &bug].concat());
    assert_eq!(said.code, 1, "{}", said.err);
    let seed = said.closing.unwrap()["failing_seed"].to_string();
    let command = format!("cargo xtask sim scale --seed {seed} {}", bug.join(" "));
    assert!(said.err.contains(&command), "{}", said.err);
    assert!(said.err.contains("not acknowledged") && said.err.contains("is delivered later"), "{}", said.err);
    let again = sim_scale(&[&["--seed", &seed][..], &bug].concat());
    assert_eq!(again.code, 1, "{}", again.err);
}

#[test]
fn bad_arguments_are_named_with_the_remedy() {
    for (arguments, words) in [
        (&["--seds", "5"][..], ["`--seds`", "those below"]),
        (&["--seeds", "many"], ["\"many\"", "digits"]),
        (&["--seeds", "0"], ["plays nothing", "1 or more"]),
        (&["--seed"], ["has no value", "after it"]),
        (&["--seed", "1"], ["--scenario", "--form"]),
        (&["--scenario", "rain"], ["rain", "--list"]),
        (&["--form", "box"], ["box", "record or packed"]),
        (&["--bug", "None"], ["None", "Bug::CASES"]),
    ] {
        let said = sim_scale(arguments);
        assert!(said.code == 2 && said.closing.is_none(), "{arguments:?}: {} {}", said.code, said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{arguments:?}: {}", said.err);
    }
}
