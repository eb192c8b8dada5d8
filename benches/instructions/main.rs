//! Instructions and allocations, counted by callgrind: `cargo xtask bench instructions`.
//!
//! Unlike times, counts do not depend on the load of the machine, so a small growth is visible. Callgrind counts while the
//! function [`cases::measured`] runs. SHA-256 is taken off: callgrind has no SHA instructions, so it would count a
//! version in software.
//!
//! `cargo xtask check budget` fails if a figure exceeds that of the page by more than 3 %.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod callgrind;
mod cases;
#[path = "../core/keys.rs"]
mod keys;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;

use std::process::ExitCode;

use serde_json::Value;

use self::cases::{CASES, Case};
use self::report::{Goal, Report};

/// The option with which callgrind runs this program for a single case.
const ONE: &str = "--one=";
/// The growth above which a comparison fails.
const GROWTH: f64 = 1.03;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().collect();
    if let Some(name) = arguments.iter().find_map(|argument| argument.strip_prefix(ONE)) {
        let case = CASES.iter().find(|case| case.title() == name).expect("a name of the list");
        (case.run)(case.at, case.operations);
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--compare") {
        return compare();
    }
    let report = Report::from_args("instructions");
    report.title();
    for case in CASES.iter().filter(|case| report.wants(case.of, case.name)) {
        if report.is_tried() {
            (case.run)(case.at, 128);
            println!("works: {}", case.title());
        } else {
            for (name, unit, value, goal) in figures(case) {
                report.value((case.of, &name, Some(case.at)), unit, value, goal.map_or(Goal::None, Goal::AtMost));
            }
        }
    }
    ExitCode::SUCCESS
}

type Figure = (String, &'static str, f64, Option<f64>);

/// Counts a case. Returns its instructions and allocations and the parts of its instructions, each with a name, a unit and a goal.
fn figures(case: &Case) -> Vec<Figure> {
    let each = |count: u64| count as f64 / case.operations as f64;
    let (instructions, allocations) = case.goals;
    let parts = callgrind::count(case);
    let mut figures = vec![
        (case.name.to_owned(), "instructions", each(parts.values().sum()), instructions),
        (format!("{}, allocations", case.name), "allocations", each(case.allocations()), allocations),
    ];
    let part =
        |(part, count): (&&str, &u64)| (format!("{}, part: {part}", case.name), "instructions", each(*count), None);
    figures.extend(parts.iter().filter(|_| case.is_split).map(part));
    figures
}

/// Counts each case, and fails if a figure exceeds that of the page by more than 3 %.
fn compare() -> ExitCode {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/instructions.jsonl");
    let lines = std::fs::read_to_string(page).expect("the figures of the page");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut grown = 0;
    for case in &CASES {
        for (name, _, now, _) in figures(case).into_iter().take(2) {
            let of_case = |line: &&Value| line["store"] == case.of && line["concurrency"] == case.at;
            let before = lines.iter().filter(of_case).find(|line| line["case"] == name.as_str());
            let before = before.and_then(|line| line["value"].as_f64()).unwrap_or_default();
            let word = if now > before * GROWTH { "FAILED " } else { "ok     " };
            grown += usize::from(now > before * GROWTH);
            println!("{word}  {} {name}, {}: {now:.1}, on the page {before:.1}", case.of, case.at);
        }
    }
    if grown > 0 {
        println!(
            "{grown} figures grew by more than 3 %. Reduce them, or write them with `cargo xtask bench instructions --write`"
        );
    }
    ExitCode::from(u8::from(grown > 0))
}
