//! The program of `cargo xtask sim scale`: plays the scenarios of a model of large fleets, or repeats one play.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
use std::process::ExitCode;
use std::time::Instant;

use idempotent_simulator::scale::{
    Bug, Figures, Form, ScalePlay, Scenario, ScenarioForm, campaign, needed_faults, play,
};
use serde_json::json;

const USAGE: &str = "\
cargo xtask sim scale [--seeds N] [--first N] [--scenario NAME] [--form record|packed]
                                    play N seeds from the first on; 200 from 0 on unless you say otherwise
cargo xtask sim scale --seed N --scenario NAME --form record|packed
                                    play one, and print its faults and violations
cargo xtask sim scale --list        print the scenarios

`--bug NAME` plays with a deliberate bug, for the tests of the simulator.

A simulation of a model: no server runs. Ends with one JSON object on stdout. Exit code 0: held; 1: violated;
2: vacuous, or not started.";

const HELD: u8 = 0;
const VIOLATED: u8 = 1;
const VACUOUS: u8 = 2;

/// The number of seeds from which on every situation must have occurred.
const MANY: u64 = 100;

/// The arguments.
#[derive(Default)]
struct Arguments {
    seeds: Option<u64>,
    first: Option<u64>,
    seed: Option<u64>,
    scenario: Option<Scenario>,
    form: Option<Form>,
    bug: Option<Bug>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("help" | "-h" | "--help") => println!("{USAGE}"),
        Some("--list") if words.len() == 1 => {
            for (_, name, text) in Scenario::ALL {
                println!("{name:<18}{text}");
            }
        }
        _ => {
            return match parse(&words).and_then(|arguments| run(&arguments)) {
                Ok(code) => ExitCode::from(code),
                Err(mistake) => {
                    eprintln!("sim scale: {mistake}\n\n{USAGE}");
                    ExitCode::from(VACUOUS)
                }
            };
        }
    }
    ExitCode::SUCCESS
}

fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut rest = words.iter();
    while let Some(name) = rest.next() {
        if !["--seeds", "--first", "--seed", "--scenario", "--form", "--bug"].contains(&name.as_str()) {
            return Err(format!("unknown argument `{name}`; the arguments are those below"));
        }
        let value = rest.next().ok_or_else(|| format!("`{name}` has no value; add one after it"))?;
        let number = || {
            value
                .parse()
                .map(Some)
                .map_err(|_| format!("`{name} {value}`: {value:?} is not a whole number from 0 on; write it in digits"))
        };
        match name.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--first" => arguments.first = number()?,
            "--seed" => arguments.seed = number()?,
            "--form" => {
                let found = Form::ALL.iter().find(|(_, known)| known == value);
                arguments.form = Some(found.ok_or_else(|| format!("`--form {value}`: a form is record or packed"))?.0);
            }
            "--bug" => {
                let found = Bug::CASES.iter().find(|case| format!("{:?}", case.bug) == *value);
                arguments.bug = Some(found.ok_or_else(|| format!("`--bug {value}`: no such bug in `Bug::CASES`"))?.bug);
            }
            _ => {
                let found = Scenario::ALL.iter().find(|(_, known, _)| known == value);
                let unknown = || format!("`--scenario {value}`: no such scenario; `--list` lists them");
                arguments.scenario = Some(found.ok_or_else(unknown)?.0);
            }
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> Result<u8, String> {
    match *arguments {
        Arguments { seed: Some(seed), scenario: Some(scenario), form: Some(form), seeds: None, first: None, bug } => {
            Ok(one(seed, (scenario, form), bug))
        }
        Arguments { seed: Some(_), .. } => {
            Err("`--seed` needs --scenario and --form, and neither --seeds nor --first".to_owned())
        }
        Arguments { seeds: Some(0), .. } => Err("`--seeds 0` plays nothing; give 1 or more".to_owned()),
        Arguments { seeds, first, scenario, form, bug, .. } => {
            let scenarios =
                Scenario::ALL.iter().map(|(one, ..)| *one).filter(|one| scenario.is_none_or(|only| only == *one));
            let both = |scenario| Form::ALL.map(|(form, _)| (scenario, form));
            let all: Vec<_> =
                scenarios.flat_map(both).filter(|(_, one)| form.is_none_or(|only| only == *one)).collect();
            Ok(many(seeds.unwrap_or(200), first.unwrap_or_default(), &all, bug))
        }
    }
}

fn many(seeds: u64, first: u64, scenarios: &[ScenarioForm], bug: Option<Bug>) -> u8 {
    let began = Instant::now();
    let all = campaign(first..first.saturating_add(seeds), scenarios, bug);
    let seconds = began.elapsed().as_secs_f64();
    print_table(&all.figures.iter().map(|(of, figures)| (*of, *figures)).collect::<Vec<_>>());
    let missing = if seeds >= MANY { all.missing() } else { Vec::new() };
    if !missing.is_empty() {
        eprintln!("sim scale: never happened: {}", missing.join(", "));
    }
    let failing = all.failed.keys().next().copied();
    if let Some((seed, of)) = failing {
        show(seed, of, bug);
        let option = bug.map_or(String::new(), |bug| format!(" --bug {bug:?}"));
        let (scenario, form) = (name(of.0), form_name(of.1));
        eprintln!("replay: cargo xtask sim scale --seed {seed} --scenario {scenario} --form {form}{option}");
    }
    let mut total = Figures::default();
    all.figures.values().for_each(|figures| total.merge(figures));
    let mut closing = closing(first, &total, all.failed.values().map(Vec::len).sum());
    closing["seeds"] = seeds.into();
    closing["seconds"] = ((seconds * 1_000.0).round() / 1_000.0).into();
    closing["failing_seed"] = failing.map(|(seed, _)| seed).into();
    println!("{closing}");
    match (failing.is_some(), missing.is_empty()) {
        (true, _) => VIOLATED,
        (false, true) => HELD,
        (false, false) => VACUOUS,
    }
}

fn closing(seed: u64, total: &Figures, violations: usize) -> serde_json::Value {
    json!({
        "name": "sim scale",
        "seed": seed,
        "plays": total.plays,
        "deliveries": total.deliveries,
        "runs": total.runs,
        "simulated_seconds": total.virtual_us / 1_000_000,
        "violations": violations,
    })
}

fn one(seed: u64, of: ScenarioForm, bug: Option<Bug>) -> u8 {
    let ScalePlay { violations, figures, .. } = show(seed, of, bug);
    let mut closing = closing(seed, &figures, violations.len());
    closing["failing_seed"] = (!violations.is_empty()).then_some(seed).into();
    println!("{closing}");
    if violations.is_empty() { HELD } else { VIOLATED }
}

/// Plays one seed, and prints its violations, the faults that they need, and the events of the first message concerned.
fn show(seed: u64, of: ScenarioForm, bug: Option<Bug>) -> ScalePlay {
    let played = play(of.0, of.1, seed, bug, None);
    let ScalePlay { violations, faults, figures, .. } = &played;
    eprintln!("sim scale: seed {seed}, {} with {}, faults:\n{}", name(of.0), form_name(of.1), faults.join("\n"));
    for violation in violations {
        eprintln!("{}, message {:?}: {}", violation.check, violation.message, violation.text);
    }
    if !violations.is_empty() {
        eprintln!("faults that the first violation needs:\n{}", needed_faults(of.0, of.1, seed, bug).join("\n"));
    }
    if let Some(message) = violations.iter().find_map(|violation| violation.message) {
        let traced = play(of.0, of.1, seed, bug, Some(message));
        eprintln!("events of message {message}:\n{}", traced.log.join("\n"));
    }
    print_table(&[(of, *figures)]);
    played
}

/// A column: its heading and its figure.
type Column = (&'static str, fn(&Figures) -> u64);

fn print_table(rows: &[(ScenarioForm, Figures)]) {
    let columns: [Column; 14] = [
        ("plays", |figures| figures.plays),
        ("keys", |figures| figures.messages),
        ("deliveries", |figures| figures.deliveries),
        ("runs", |figures| figures.runs),
        ("duplicates", |figures| figures.duplicates),
        ("cached", |figures| figures.cached),
        ("in flight", |figures| figures.in_flight),
        ("postponed", |figures| figures.postponed),
        ("refused", |figures| figures.refused),
        ("takeovers", |figures| figures.takeovers),
        ("lost", |figures| figures.lost),
        ("repeated", |figures| figures.repeated),
        ("segments", |figures| figures.most_segments),
        ("bucket", |figures| figures.fullest_bucket),
    ];
    let headings: Vec<_> = columns.iter().map(|(heading, _)| format!("{heading:>11}")).collect();
    eprintln!("{:<25}{} bytes/key", "scenario", headings.concat());
    for ((scenario, form), figures) in rows {
        let cells: Vec<_> = columns.iter().map(|(_, figure)| format!("{:>11}", figure(figures))).collect();
        let bytes = if figures.most_bytes > 0.0 { format!("{:>9.2}", figures.most_bytes) } else { String::new() };
        eprintln!("{:<18}{:<7}{} {bytes}", name(*scenario), form_name(*form), cells.concat());
    }
}

fn name(scenario: Scenario) -> &'static str {
    Scenario::ALL.iter().find(|(one, ..)| *one == scenario).map_or("?", |(_, name, _)| *name)
}

fn form_name(form: Form) -> &'static str {
    Form::ALL.iter().find(|(one, _)| *one == form).map_or("?", |(_, name)| *name)
}
