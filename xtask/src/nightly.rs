//! The command `cargo xtask nightly`: runs every stage in turn, and writes one page.
mod page;
mod stages;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::page::{Entry, Outcome};
use self::stages::Stage;
use crate::setup;
use crate::tools::{Done, capture, cargo, date, root, target};

#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Runs only stages whose name begins with this word
    only: Option<String>,
    /// Begins no stage after this many hours. The stages that ran longest ago run first.
    #[arg(long)]
    hours: Option<u32>,
    /// The seed of the chaos plays and of the simulator. Default: the day
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the stages without running them
    #[arg(long)]
    list: bool,
}

/// Runs the stages that this commit has not passed yet, and writes the page after each of them. A failed stage does not
/// stop the following ones.
pub(crate) fn run(options: &Options) -> Done {
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() / 86_400);
    let stages = stages::all(options.seed.unwrap_or(day));
    let wanted = |stage: &&Stage| options.only.as_ref().is_none_or(|word| stage.name.starts_with(word.as_str()));
    let mut wanted: Vec<_> = stages.iter().filter(wanted).collect();
    if wanted.is_empty() {
        return Err("no stage begins with this word; `cargo xtask nightly --list` lists them".into());
    }
    if options.list {
        wanted.iter().for_each(|stage| println!("{:<40} {}", stage.name, stage.shown()));
        return Ok(true);
    }
    let (folder, commit) = (target()?.join("xtask/nightly"), commit()?);
    fs::create_dir_all(&folder)?;
    let (proof, servers) = (root()?.join("docs/proof.md"), root()?.join("docs/servers.md"));
    let mut entries = page::read(&fs::read_to_string(&proof)?);
    let passed = |entries: &BTreeMap<String, Entry>, stage: &Stage| {
        entries.get(&stage.name).is_some_and(|entry| entry.passed(stage, &commit))
    };
    if !setup::all()? {
        println!("xtask nightly: something is not installed");
    }
    let begun = Instant::now();
    if options.hours.is_some() {
        oldest_first(&mut wanted, &entries);
    }
    for stage in &wanted {
        if passed(&entries, stage) {
            println!("xtask nightly: {}: passed on this commit before", stage.name);
            continue;
        }
        if options.hours.is_some_and(|hours| begun.elapsed() >= Duration::from_secs(3_600) * hours) {
            println!("xtask nightly: {}: left for the next run", stage.name);
            continue;
        }
        println!("xtask nightly: {}: {}", stage.name, stage.shown());
        let entry = once(stage, &commit, &folder.join(format!("{}.log", stage.file())))?;
        println!("xtask nightly: {}: {} after {} s", stage.name, entry.outcome.word(), entry.seconds);
        // Another run of `nightly` may have added rows in the meantime.
        entries = page::read(&fs::read_to_string(&proof)?);
        entries.insert(stage.name.clone(), entry);
        fs::write(&proof, page::page(&stages, &entries))?;
        fs::write(&servers, page::servers(&stages, &entries))?;
    }
    let missing = stages.iter().filter(|stage| !passed(&entries, stage)).count();
    println!("xtask nightly: {} of {} stages passed on {commit}", stages.len() - missing, stages.len());
    // Includes stages that failed in an earlier run, and are not run again because the time is over.
    let failed = wanted.iter().filter_map(|stage| entries.get(&stage.name)).any(|entry| entry.outcome != Outcome::Held);
    Ok(!failed && (missing == 0 || options.only.is_some() || options.hours.is_some()))
}

/// Sorts the stages by their last run, those without a run first. A limited run therefore reaches each stage after some
/// nights, although each commit invalidates the results of the one before.
fn oldest_first(stages: &mut [&Stage], entries: &BTreeMap<String, Entry>) {
    stages.sort_by_key(|stage| entries.get(&stage.name).map(|entry| entry.date.clone()));
}

/// Runs a stage. A stage whose server cannot be installed has failed.
fn once(stage: &Stage, commit: &str, log: &Path) -> Result<Entry, Box<dyn Error>> {
    let start = Instant::now();
    let ran = stage.environment().and_then(|environment| {
        let mut command = cargo(&stage.arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(capture(command.envs(environment))?)
    });
    let (outcome, said) = match ran {
        Ok((status, said)) => (Outcome::of(status.code(), &said, stage.runs_tests), said),
        Err(error) => (Outcome::Failed, error.to_string()),
    };
    fs::write(log, &said)?;
    // There was a commit in the meantime, so the result belongs to neither tree.
    let commit = if self::commit()? == commit {
        commit.to_owned()
    } else {
        format!("{}{CHANGED}", commit.trim_end_matches(CHANGED))
    };
    let find = |wanted: fn(&&str) -> bool| said.lines().rev().find(wanted);
    // After a failed test, cargo writes lines of its own.
    let counts = find(|line| line.starts_with("test result: ")).filter(|_| stage.runs_tests);
    let last = counts.or_else(|| find(|line| !line.trim().is_empty())).unwrap_or_default();
    // A server that could not be installed has no version.
    let versions = stage.versions().ok().flatten().map_or_else(String::new, |versions| format!("{versions}: "));
    Ok(Entry {
        command: stage.shown(),
        commit,
        date: date()?,
        seconds: start.elapsed().as_secs(),
        outcome,
        said: format!("{versions}{last}").chars().take(250).collect(),
    })
}

/// Returns the abbreviated last commit that changed other files than the pages of results, with [`CHANGED`] if the tree has
/// changes.
fn commit() -> Result<String, Box<dyn Error>> {
    let git = |arguments: &[&str]| -> Result<String, Box<dyn Error>> {
        let all_but_the_pages = ["--", ".", ":!docs/proof.md", ":!docs/servers.md", ":!docs/mutants.md"];
        let (status, said) = capture(Command::new("git").args(arguments).args(all_but_the_pages).current_dir(root()?))?;
        if status.success() { Ok(said) } else { Err(format!("git {}: {said}", arguments.join(" ")).into()) }
    };
    let last = git(&["log", "-1", "--format=%h", "--abbrev=10"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Ok(format!("{}{}", last.trim(), if changes.trim().is_empty() { "" } else { CHANGED }))
}

/// The mark of a commit whose tree has changes. A stage never counts as passed there, because later changes are not
/// visible.
pub(super) const CHANGED: &str = "+";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_run_begins_with_the_stages_that_ran_longest_ago() {
        let stages = stages::all(7);
        let entry = |stage, date: &str| Entry { date: date.to_owned(), ..Entry::held(stage, "") };
        let ran =
            [(&stages[0], "2026-11-24 01:00"), (&stages[1], "2026-11-23 22:00"), (&stages[3], "2026-11-24 00:59")];
        let entries = ran.map(|(stage, date)| (stage.name.clone(), entry(stage, date))).into();
        let mut sorted: Vec<_> = stages.iter().take(4).collect();
        oldest_first(&mut sorted, &entries);
        let names: Vec<_> = sorted.iter().map(|stage| &stage.name).collect();
        assert_eq!(names, [2, 1, 3, 0].map(|nth: usize| &stages[nth].name));
    }
}
