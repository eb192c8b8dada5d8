//! The program cargo-mutants, and the clone that it works on.
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::areas::{Area, TestSet, test_sets};
use super::page::Figures;
use crate::tools::{capture, cargo, program, ran, root, some_passed, stream, target};

const VERSION: &str = "27.1.0";
/// The time limit for the tests of one mutant, in seconds. They take some seconds, unless the mutant loops forever.
const TESTS: &str = "60";
/// The time limit for the build of one mutant, in seconds.
const BUILD: &str = "1200";

/// The program, the clone, and the checked test sets.
#[derive(Debug)]
pub(super) struct Tool {
    program: PathBuf,
    tree: PathBuf,
    output: PathBuf,
    commit: String,
    /// Test sets that pass without a mutant.
    sound: Vec<&'static TestSet>,
}

impl Tool {
    /// Installs the program, and updates the clone to the last commit.
    ///
    /// # Errors
    /// One of these steps fails.
    pub(super) fn ready() -> Result<Self, Box<dyn Error>> {
        let folder = target()?.join("mutants");
        fs::create_dir_all(&folder)?;
        let program = program("cargo-mutants", VERSION)?;
        let (tree, own) = (folder.join("tree"), root()?);
        if !tree.join(".git").exists() {
            ran(Command::new("git").args(["clone", "--quiet", "--shared"]).arg(&own).arg(&tree))?;
        }
        let git = |words: &[&str]| ran(Command::new("git").arg("-C").arg(&tree).args(words));
        let commit = head(&own)?;
        git(&["fetch", "--quiet", "origin", "HEAD"])?;
        git(&["checkout", "--quiet", "--force", "--detach", &commit])?;
        Ok(Self { program, tree, output: folder, commit, sound: Vec::new() })
    }

    /// Returns the abbreviated commit that is mutated.
    pub(super) fn commit(&self) -> &str {
        &self.commit[..10.min(self.commit.len())]
    }

    /// Tests all mutants of a file with the test sets of its area, or with the unit tests only.
    ///
    /// # Errors
    /// The tests fail without a mutant, or the tool fails.
    pub(super) fn mutate(&mut self, area: &'static Area, file: &str, unit: bool) -> Result<Figures, Box<dyn Error>> {
        let results = self.output.join("mutants.out");
        for old in [&results, &self.output.join("mutants.out.old")] {
            if old.exists() {
                fs::remove_dir_all(old)?;
            }
        }
        let mut figures = Figures::default();
        for (nth, tests) in test_sets(area, file, unit)?.into_iter().enumerate() {
            if nth > 0 && figures.survived == 0 {
                break;
            }
            self.pass_without_a_mutant(tests)?;
            let mut command = self.in_tree(Command::new(&self.program));
            command.args(["mutants", "--in-place", "--no-shuffle", "--baseline=skip", "--colors=never", "--no-times"]);
            command.args(["--timeout", TESTS, "--build-timeout", BUILD]);
            command.arg("--output").arg(&self.output).args(["--package", area.package, "--file", file]);
            command.args(["--test-package", tests.package]);
            if nth > 0 {
                // A mutant that makes the tests of another set loop forever counts as caught.
                let (caught, slow) = (results.join("caught.txt"), results.join("timeout.txt"));
                let both = fs::read_to_string(&caught)? + &fs::read_to_string(slow).unwrap_or_default();
                fs::write(caught, both)?;
                command.arg("--iterate");
            }
            command.arg("--").args(tests.arguments);
            let (status, said) = capture(&mut command)?;
            // Missed mutants and timeouts are results.
            if !matches!(status.code(), Some(0 | 2 | 3)) {
                return Err(format!("cargo-mutants on {file}: {said}").into());
            }
            // A file without mutants has no outcomes.
            if !results.join("outcomes.json").exists() {
                break;
            }
            figures = figures.then(counted(&results)?, nth == 0);
        }
        Ok(figures)
    }

    /// Runs the tests of a set on the unchanged source.
    ///
    /// # Errors
    /// The tests fail. Every mutant would seem to be detected.
    fn pass_without_a_mutant(&mut self, tests: &'static TestSet) -> Result<(), Box<dyn Error>> {
        if self.sound.contains(&tests) {
            return Ok(());
        }
        let mut command = self.in_tree(cargo(&["test", "--package", tests.package])?);
        let mut some = false;
        let status = stream(command.args(tests.arguments), |line| some |= some_passed(line))?;
        let TestSet { package, arguments } = tests;
        let problem = match (status.success(), some) {
            (true, true) => None,
            (true, false) => Some("runs no test"),
            (false, _) => Some("fails without a mutant"),
        };
        if let Some(problem) = problem {
            return Err(format!("cargo test --package {package} {}: {problem}", arguments.join(" ")).into());
        }
        self.sound.push(tests);
        Ok(())
    }

    /// Returns the mutants of the files, as cargo-mutants lists them.
    ///
    /// # Errors
    /// The tool fails, or its list cannot be read.
    pub(super) fn list(&self, area: &Area, files: &[String]) -> Result<Vec<Value>, Box<dyn Error>> {
        let mut command = self.in_tree(Command::new(&self.program));
        command.args(["mutants", "--list", "--json", "--package", area.package]);
        command.args(files.iter().flat_map(|file| ["--file", file]));
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("cargo-mutants --list: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Returns the folder of the clone.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Restores the source in the clone.
    ///
    /// # Errors
    /// Git fails.
    pub(super) fn restore(&self) -> Result<(), Box<dyn Error>> {
        ran(Command::new("git").arg("-C").arg(&self.tree).args(["checkout", "--quiet", "--force", "."]))
    }

    /// Runs a command in the clone, with its target folder.
    pub(super) fn in_tree(&self, mut command: Command) -> Command {
        command.current_dir(&self.tree).env_remove("CARGO_TARGET_DIR");
        // Most of the time of a mutant is its build.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "none");
        command
    }
}

/// Returns the mutants of the last file that no test set has detected.
///
/// # Errors
/// The list of the tool cannot be read.
pub(super) fn missed(tool: &Tool) -> Result<Vec<String>, Box<dyn Error>> {
    let list = tool.output.join("mutants.out/missed.txt");
    if !list.exists() {
        return Ok(Vec::new());
    }
    Ok(fs::read_to_string(list)?.lines().map(str::to_owned).collect())
}

fn counted(results: &Path) -> Result<Figures, Box<dyn Error>> {
    let told: Value = serde_json::from_str(&fs::read_to_string(results.join("outcomes.json"))?)?;
    let number = |name: &str| told[name].as_u64().ok_or_else(|| format!("outcomes.json has no `{name}`"));
    Ok(Figures {
        mutants: number("total_mutants")?,
        caught: number("caught")? + number("timeout")?,
        unviable: number("unviable")?,
        survived: number("missed")?,
    })
}

fn head(root: &Path) -> Result<String, Box<dyn Error>> {
    let (status, said) = capture(Command::new("git").arg("-C").arg(root).args(["rev-parse", "HEAD"]))?;
    if status.success() { Ok(said.trim().to_owned()) } else { Err(said.into()) }
}
