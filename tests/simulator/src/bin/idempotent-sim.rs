//! The program of `cargo xtask sim`: simulates thousands of fleets, repeats a single one, or checks a history that
//! was recorded elsewhere.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use idempotent_core::{MemoryStore, Store};
use idempotent_simulator::mutants::Mutant;
use idempotent_simulator::{Campaign, Coverage, Plan, Simulated, campaign, play, shrink};
use idempotent_testkit::VirtualClock;
use idempotent_testkit::history::History;
use idempotent_testkit::history::check::{Judge, Level, Report};
use serde_json::json;

const USAGE: &str = "\
cargo xtask sim [--seeds N] [--first N]        play N seeds from the first on; 10000 from 0 on unless you say otherwise
cargo xtask sim --seed N [--history FILE]      play one, write its history to stdout or into a file
cargo xtask sim --plan FILE [--history FILE]   play a plan (JSON), likewise
cargo xtask sim --check FILE [--level L2|L3]   judge a recorded history (JSON lines)
cargo xtask sim scale ...                      play a model of large fleets; `sim scale --help` lists its options

Ends with one JSON object on stdout. Exit code 0: held; 1: violated; 2: vacuous, or not started.";

const HELD: u8 = 0;
const VIOLATED: u8 = 1;
const VACUOUS: u8 = 2;

/// The number of seeds from which on every situation must have occurred.
const MANY: u64 = 1_000;
/// The required ratio of simulated to real time.
const RATIO_WANTED: f64 = 1_000.0;

enum Job {
    Many(Range<u64>),
    One { plan: Box<Plan>, history: Option<String> },
    Check { history: String, level: Level },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if matches!(arguments.first().map(String::as_str), Some("help" | "-h" | "--help")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = job(&arguments).and_then(|job| match job {
        Job::Many(seeds) => many(seeds),
        Job::One { plan, history } => one(&plan, history.as_deref()),
        Job::Check { history, level } => check(&history, level),
    });
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("sim: {error}\n\n{USAGE}");
            ExitCode::from(VACUOUS)
        }
    }
}

type Done<T> = Result<T, Box<dyn Error>>;

fn job(arguments: &[String]) -> Done<Job> {
    let (mut seeds, mut first, mut level, mut history, mut what) = (10_000, 0, None, None, None);
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let name = name.as_str();
        if !["--seeds", "--first", "--seed", "--plan", "--check", "--history", "--level"].contains(&name) {
            return Err(format!("unknown argument `{name}`; the arguments are those below").into());
        }
        let value = rest.next().ok_or_else(|| format!("`{name}` has no value; add one after it"))?;
        match name {
            "--seeds" => seeds = number(name, value)?,
            "--first" => first = number(name, value)?,
            "--history" => history = Some(value.clone()),
            "--level" => level = Some(level_of(value)?),
            _ if what.is_some() => return Err(format!("`{name}` {ONE_AT_A_TIME}").into()),
            _ => what = Some((name, value)),
        }
    }
    let only = |what: &str, given: bool, name: &str| match given {
        true => Err(format!("`{name}` has no meaning here; use it with {what}")),
        false => Ok(()),
    };
    only("--check", level.is_some() && what.is_none_or(|(name, _)| name != "--check"), "--level")?;
    only("--seed or --plan", history.is_some() && what.is_none_or(|(name, _)| name == "--check"), "--history")?;
    Ok(match what {
        Some(("--seed", value)) => Job::One { plan: Box::new(Plan::of(number("--seed", value)?)), history },
        Some(("--plan", file)) => Job::One { plan: Box::new(plan(file)?), history },
        Some((_, file)) => Job::Check { history: file.clone(), level: level.unwrap_or_default() },
        None if seeds == 0 => return Err("`--seeds 0` plays nothing; give 1 or more".into()),
        None => Job::Many(first..first.saturating_add(seeds)),
    })
}

const ONE_AT_A_TIME: &str = "came second; give one of --seed, --plan and --check";

fn number(name: &str, value: &str) -> Done<u64> {
    value
        .parse()
        .map_err(|_| format!("`{name} {value}`: {value:?} is not a whole number from 0 on; write it in digits").into())
}

fn level_of(value: &str) -> Done<Level> {
    match value {
        "L1" => Ok(Level::L1),
        "L2" => Ok(Level::L2),
        "L3" => Ok(Level::L3),
        _ => Err(format!("`--level {value}`: a level is L1, L2 (fenced resource) or L3 (one transaction)").into()),
    }
}

fn plan(file: &str) -> Done<Plan> {
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}; give a file with a plan as JSON"))?;
    let plan: Plan = serde_json::from_str(&text)
        .map_err(|e| format!("{file}: {e}; a plan is the last line of a violation, unchanged"))?;
    if plan.workers.is_empty() {
        return Err(format!("{file}: `workers` is empty; a plan needs one at least").into());
    }
    Ok(plan)
}

/// Returns alternately the memory store, and the protocol over a map with all capabilities.
fn store(seed: u64, clock: &VirtualClock) -> Arc<dyn Store> {
    let clock = Arc::new(clock.clone());
    if seed.is_multiple_of(2) {
        Arc::new(MemoryStore::builder().clock(clock).build())
    } else {
        Arc::new(Mutant::new(None, clock))
    }
}

fn world(plan: &Plan) -> Simulated {
    play(plan, |clock| store(plan.seed, clock))
}

fn many(seeds: Range<u64>) -> Done<u8> {
    let (first, began) = (seeds.start, Instant::now());
    let all = campaign(seeds, store);
    let seconds = began.elapsed().as_secs_f64();
    for (what, times) in all.coverage.iter() {
        eprintln!("{times:>10} {what}");
    }
    let missing = missing(&all);
    if !missing.is_empty() {
        eprintln!("sim: never happened: {}", missing.join(", "));
    }
    if let Some(seed) = all.failing_seed() {
        explain(seed, &all);
    }
    let simulated = all.simulated.as_secs_f64();
    let ratio = simulated / seconds.max(1e-9);
    let met = ratio >= RATIO_WANTED;
    eprintln!(
        "sim: {} seeds, {} with violations, {simulated:.0} s simulated in {seconds:.1} s: {ratio:.0}:1, wanted {RATIO_WANTED}:1, met: {met}",
        all.seeds,
        all.failed.len()
    );
    let violations: usize = all.failed.values().map(Vec::len).sum();
    let mut closing = closing(first, seconds, violations, &all.coverage);
    closing["failing_seed"] = all.failing_seed().into();
    closing["seeds"] = all.seeds.into();
    closing["simulated_seconds"] = simulated.round().into();
    closing["ratio"] = ratio.round().into();
    closing["met"] = met.into();
    println!("{closing}");
    Ok(match (violations, missing.is_empty()) {
        (1.., _) => VIOLATED,
        (0, true) => HELD,
        (0, false) => VACUOUS,
    })
}

fn missing(all: &Campaign) -> Vec<&'static str> {
    if all.seeds >= MANY {
        return all.coverage.missing();
    }
    ["kills", "takeovers", "unknowns"].into_iter().filter(|what| all.coverage.times(what) == 0).collect()
}

/// Prints the first failing seed, with its plan shrunk.
fn explain(seed: u64, all: &Campaign) {
    let Some(name) = all.failed.get(&seed).and_then(|violations| violations.first()).map(|first| first.name.clone())
    else {
        return;
    };
    let whole = Plan::of(seed);
    let small = shrink(&whole, |plan| world(plan).violates(&name));
    eprintln!("sim: seed {seed} violates {name}; {} of {} pieces are enough:\n", small.pieces(), whole.pieces());
    eprintln!("{}\n", world(&small).explain());
    eprintln!("replay the whole: cargo xtask sim --seed {seed}; the small one: cargo xtask sim --plan FILE, with");
    eprintln!("{}", serde_json::to_string(&small).unwrap_or_default());
}

fn one(plan: &Plan, file: Option<&str>) -> Done<u8> {
    let began = Instant::now();
    let world = world(plan);
    let seconds = began.elapsed().as_secs_f64();
    match file {
        Some(file) => File::create(file)
            .and_then(|file| world.history.write(file))
            .map_err(|e| format!("`--history {file}`: {e}; give a file that can be written"))?,
        None => world.history.write(io::stdout().lock()).and_then(|()| io::stdout().flush())?,
    }
    for violation in &world.violations {
        eprintln!("{}: {}", violation.name, violation.text);
    }
    let mut closing = closing(plan.seed, seconds, world.violations.len(), &world.coverage);
    closing["failing_seed"] = (!world.violations.is_empty()).then_some(plan.seed).into();
    closing["simulated_seconds"] = world.simulated.as_secs_f64().into();
    println!("{closing}");
    Ok(if world.violations.is_empty() { HELD } else { VIOLATED })
}

fn closing(seed: u64, seconds: f64, violations: usize, coverage: &Coverage) -> serde_json::Value {
    json!({
        "name": "sim",
        "seed": seed,
        "seconds": (seconds * 1_000.0).round() / 1_000.0,
        "violations": violations,
        "kills": coverage.times("kills"),
        "takeovers": coverage.times("takeovers"),
        "unknowns": coverage.times("unknowns"),
    })
}

fn check(file: &str, level: Level) -> Done<u8> {
    let began = Instant::now();
    let text = File::open(file).map_err(|e| format!("{file}: {e}; give a file with a history as JSON lines"))?;
    let history = History::read(text).map_err(|e| format!("{file}: {e}"))?;
    let Report { findings, tallies, counts, .. } = Judge::new().level(level).check(&history);
    for finding in &findings {
        eprintln!("{finding}");
    }
    for (invariant, tally) in tallies {
        eprintln!("{invariant:>4}: {} judged, {} not judged", tally.judged, tally.not_judged);
    }
    let closing = json!({
        "name": "check",
        "seed": null,
        "seconds": (began.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0,
        "violations": findings.len(),
        "kills": counts.kills,
        "takeovers": counts.takeovers,
        "unknowns": counts.unknowns,
        "failing_seed": null,
        "repeated_effects": counts.repeated_effects,
    });
    println!("{closing}");
    Ok(match (findings.is_empty(), counts.grants) {
        (false, _) => VIOLATED,
        (true, 0) => VACUOUS,
        (true, _) => HELD,
    })
}
