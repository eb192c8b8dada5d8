//! The command `cargo xtask mutants`: each mutant of cargo-mutants changes one expression, and some test must fail. The
//! command works on a clone of the last commit, so that the checkout does not change.
//!
//! A build for each mutant takes most of the time of a mutation test. Here, each mutant is a branch of the source in one
//! build, and an environment variable selects one. Each mutant is tested with the tests that reach its branch.
mod areas;
mod build;
mod page;
mod rewrite;
mod runs;
mod tool;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use self::areas::{AREAS, Area, files};
use self::build::{SwitchedBuild, programs};
use self::page::{Figures, Row, page, read};
use self::rewrite::{Id, Mutant};
use self::runs::{RUNS, TestProgram};
use self::tool::Tool;
use crate::tools::{Done, cargo, concurrently, date, root, target};

/// The number of files that a seed picks.
const PICKED: usize = 3;

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Options {
    /// Areas or files; without any, all areas: core, mq, tower, outbox, metrics, otel, rabbitmq, kafka, nats, sqs, pgmq,
    /// redis-streams, tonic, actix, operate, console, cli
    wanted: Vec<String>,
    /// Picks three files
    #[arg(long)]
    seed: Option<u64>,
    /// Writes the figures to docs/mutants.md
    #[arg(long)]
    write: bool,
}

impl Options {
    /// Returns the files to mutate, each with its area.
    fn files(&self) -> Result<Vec<(&'static Area, String)>, Box<dyn Error>> {
        let mut all = Vec::new();
        for area in &AREAS {
            all.extend(files(area)?.into_iter().map(|file| (area, file)));
        }
        for word in &self.wanted {
            if !all.iter().any(|(area, file)| area.name == word || file == word) {
                let names = AREAS.map(|area| area.name).join(", ");
                return Err(format!("`{word}` is neither an area ({names}) nor a source file of one").into());
            }
        }
        if !self.wanted.is_empty() {
            all.retain(|(area, file)| self.wanted.iter().any(|word| area.name == word || file == word));
        }
        if let (Some(seed), false) = (self.seed, all.is_empty()) {
            let first = usize::try_from(seed % all.len() as u64)?;
            all.rotate_left(first);
            // Far apart, so that a few nights cover every area.
            let step = (all.len() / PICKED).max(1);
            all = all.into_iter().step_by(step).take(PICKED).collect();
        }
        Ok(all)
    }
}

/// Mutates each file. Returns false if a mutant survives.
pub(crate) fn run(options: &Options) -> Done {
    let files = options.files()?;
    let tool = Tool::ready()?;
    let (mut mutants, mut survived) = (0, 0);
    for area in &AREAS {
        let files: Vec<_> = files.iter().filter(|(of, _)| of.name == area.name).map(|(_, file)| file.clone()).collect();
        mutate(&tool, area, &files, |file, figures, survivors| {
            println!("xtask mutants: {file}: {figures}");
            survivors.iter().for_each(|survivor| println!("  survived: {survivor}"));
            mutants += figures.mutants;
            survived += figures.survived;
            if options.write { write(file, figures, tool.commit()) } else { Ok(()) }
        })?;
    }
    println!("xtask mutants: {mutants} mutants, {survived} survived");
    Ok(survived == 0)
}

/// Writes the row of a file into the page.
fn write(file: &str, figures: Figures, commit: &str) -> Result<(), Box<dyn Error>> {
    let path = root()?.join("docs/mutants.md");
    let mut rows = fs::read_to_string(&path).map(|page| read(&page)).unwrap_or_default();
    rows.insert(file.to_owned(), Row { figures, date: date()?, commit: commit.to_owned() });
    let areas = AREAS.iter().map(|area| Ok((area.name, files(area)?))).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    Ok(fs::write(&path, page(&rows, &areas))?)
}

/// Tests all mutants of the files, which belong to the area. Passes each file's figures and survivors to `note`.
fn mutate(
    tool: &Tool,
    area: &'static Area,
    files: &[String],
    note: impl FnMut(&str, Figures, &[String]) -> Result<(), Box<dyn Error>> + Send,
) -> Result<(), Box<dyn Error>> {
    if files.is_empty() {
        return Ok(());
    }
    let mutants: Vec<_> = tool.list(area, files)?.iter().filter_map(Mutant::read).collect();
    let mut build = SwitchedBuild { tree: tool.tree(), area, mutants, unviable: [].into() };
    let program = cargo(&[])?.get_program().to_owned();
    let in_tree = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words);
        tool.in_tree(command)
    };
    build.prepare(in_tree)?;
    let mut tests = Vec::new();
    for set in area.test_sets() {
        for (program, folder) in programs(set, in_tree(&["test"]))? {
            tests.push(TestProgram::observe(&program, &folder, set.run_arguments(), &target()?.join("mutants"))?);
        }
    }
    let all: Vec<_> = (1..).zip(&build.mutants).collect();
    let viable = all.iter().filter(|(id, _)| !build.unviable.contains(id));
    // A file is noted with its last mutant, so that the slow mutants of one file do not keep those of the next from running.
    let state = Mutex::new((BTreeMap::new(), note));
    let ended = |file: &str, result: Option<(Id, bool)>| {
        let (caught, note) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
        caught.extend(result);
        let viable = viable.clone().filter(|(_, mutant)| mutant.file == file);
        if viable.clone().any(|(id, _)| !caught.contains_key(id)) {
            return Ok(());
        }
        let survivors: Vec<_> = viable.clone().filter(|(id, _)| !caught[id]).map(|(_, it)| it.name.clone()).collect();
        let (mutants, viable) = (all.iter().filter(|(_, mutant)| mutant.file == file).count(), viable.count());
        let (caught, unviable, survived) = (viable - survivors.len(), mutants - viable, survivors.len());
        let figures = Figures { mutants, caught, unviable, survived };
        note(file, figures, &survivors).map_err(|error| error.to_string())
    };
    files.iter().try_for_each(|file| ended(file, None))?;
    let noted = concurrently(viable.clone(), RUNS, |_, (id, mutant)| {
        ended(&mutant.file, Some((*id, tests.iter().any(|program| program.detects(*id)))))
    });
    noted.into_iter().collect::<Result<(), _>>()?;
    tool.restore()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_picks_files_and_another_seed_picks_others() {
        let picked = |seed| {
            let files = Options { seed: Some(seed), ..Options::default() }.files().unwrap();
            files.into_iter().map(|(_, file)| file).collect::<Vec<_>>()
        };
        assert_eq!(picked(7), picked(7));
        assert_ne!(picked(7), picked(8));
        assert_eq!(picked(7).len(), PICKED);
    }

    #[test]
    fn a_word_that_names_nothing_is_refused() {
        let of = |word: &str| Options { wanted: vec![word.to_owned()], ..Options::default() }.files();
        let refused = of("cores").unwrap_err().to_string();
        assert!(refused.contains("`cores` is neither an area (core, mq, tower, "), "{refused}");
        assert_eq!(of("idempotent-core/src/ordering/order_table.rs").unwrap().len(), 1);
    }
}
