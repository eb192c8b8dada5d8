//! The command `cargo xtask mutants`: cargo-mutants changes one expression at a time, and some test must fail. The
//! command works on a clone of the last commit, so that the checkout does not change.
mod areas;
mod page;
mod switched;
mod tool;

use std::error::Error;
use std::fs;

use self::areas::{AREAS, Area, files};
use self::page::{Figures, Row, Tests, page, read};
use self::tool::{Tool, missed};
use crate::tools::{Done, date, root};

/// The number of files that a seed picks.
const PICKED: usize = 3;

/// The options of `mutants`.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The names of areas, or files. If empty, all areas.
    wanted: Vec<String>,
    seed: Option<u64>,
    /// True if the figures are written to the page.
    write: bool,
    list: bool,
    /// True if only the first test set of each area runs, the unit tests.
    unit: bool,
    /// True if all mutants of an area are compiled into one build.
    switched: bool,
}

impl Options {
    /// Reads the words after `mutants`.
    ///
    /// # Errors
    /// A word is not an option, or its number is missing.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--write" => options.write = true,
                "--list" => options.list = true,
                "--unit" => options.unit = true,
                "--switched" => options.switched = true,
                "--seed" => {
                    let seed = words.next().and_then(|seed| seed.parse().ok());
                    options.seed = Some(seed.ok_or("--seed wants a number, e.g. --seed 7")?);
                }
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "`mutants` has no option `{flag}`; it has --seed N, --unit, --switched, --write and --list"
                    ));
                }
                wanted => options.wanted.push(wanted.to_owned()),
            }
        }
        Ok(options)
    }

    /// Returns the files to mutate, each with its area.
    ///
    /// # Errors
    /// A word is neither an area nor a file of one.
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
    if options.list {
        files.iter().for_each(|(area, file)| println!("{}: {file}", area.name));
        return Ok(true);
    }
    let mut tool = Tool::ready()?;
    let mut total = Total::default();
    if options.switched {
        for area in &AREAS {
            let files: Vec<_> =
                files.iter().filter(|(of, _)| of.name == area.name).map(|(_, file)| file.clone()).collect();
            let note = |file: &str, figures, survivors: &[String]| {
                total.note(options, file, Tests::Switched, figures, survivors, tool.commit())
            };
            switched::mutate(&tool, area, &files, note)?;
        }
    } else {
        for (area, file) in files {
            let figures = tool.mutate(area, &file, options.unit)?;
            let tests = if options.unit { Tests::Unit } else { Tests::All };
            total.note(options, &file, tests, figures, &missed(&tool)?, tool.commit())?;
        }
    }
    println!("xtask mutants: {} mutants, {} survived", total.mutants, total.survived);
    Ok(total.survived == 0)
}

/// The sums of all files.
#[derive(Debug, Default)]
struct Total {
    mutants: u64,
    survived: u64,
}

impl Total {
    /// Adds the figures of a file, prints them, and writes its row if wanted.
    ///
    /// # Errors
    /// The page cannot be written.
    fn note(
        &mut self,
        options: &Options,
        file: &str,
        tests: Tests,
        figures: Figures,
        survivors: &[String],
        commit: &str,
    ) -> Result<(), Box<dyn Error>> {
        println!("xtask mutants: {file}: {figures}");
        survivors.iter().for_each(|survivor| println!("  survived: {survivor}"));
        self.mutants += figures.mutants;
        self.survived += figures.survived;
        if options.write {
            let path = root()?.join("docs/mutants.md");
            let mut rows = fs::read_to_string(&path).map(|page| read(&page)).unwrap_or_default();
            rows.insert(file.to_owned(), Row { figures, tests, date: date()?, commit: commit.to_owned() });
            let areas: Result<Vec<_>, _> = AREAS.iter().map(|area| Ok((area.name, files(area)?))).collect();
            fs::write(&path, page(&rows, &areas.map_err(|error: Box<dyn Error>| error)?))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_picks_files_and_another_seed_picks_others() {
        let picked = |seed: &str| {
            let files = Options::parse(&["--seed", seed]).unwrap().files().unwrap();
            files.into_iter().map(|(_, file)| file).collect::<Vec<_>>()
        };
        assert_eq!(picked("7"), picked("7"));
        assert_ne!(picked("7"), picked("8"));
        assert_eq!(picked("7").len(), PICKED);
    }

    #[test]
    fn a_word_that_names_nothing_is_refused() {
        let refused = Options::parse(&["cores"]).unwrap().files().unwrap_err().to_string();
        assert!(refused.contains("`cores` is neither an area (core, mq, tower, "), "{refused}");
        assert!(Options::parse(&["--seed", "x"]).is_err() && Options::parse(&["--sede"]).is_err());
        assert_eq!(Options::parse(&["idempotent-core/src/ordering/order_table.rs"]).unwrap().files().unwrap().len(), 1);
    }
}
