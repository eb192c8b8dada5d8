//! The build with all mutants of some files, without the mutants that do not compile.
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::rewrite::{Id, Mutant, Rewritten, rewrite};
use crate::mutants::areas::{Area, TestSet};

/// The lints that reject a mutant after `cargo check`. Such a mutant panics when it runs.
const LINTS: &str = "#![allow(arithmetic_overflow, unconditional_panic)]\n";

/// The selection of a mutant in the mutated crate. If `MUTANTS_REACHED` names a file, the numbers of all mutants in
/// places that were reached are appended to this file.
const SELECTION: &str = r#"
/// Returns the number of the selected mutant.
pub(crate) fn active_mutant(place: &'static [u32]) -> u32 {
    use std::sync::{Mutex, OnceLock, PoisonError};
    type Reached = Mutex<(std::fs::File, std::collections::HashSet<u32>)>;
    static SELECTED: OnceLock<(u32, Option<Reached>)> = OnceLock::new();
    let (active, reached) = SELECTED.get_or_init(|| {
        let active = std::env::var("MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        let file = std::env::var_os("MUTANTS_REACHED").and_then(|path| {
            // The program under test may start others.
            std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
        });
        (active, file.map(|file| Mutex::new((file, std::collections::HashSet::new()))))
    });
    if let Some(reached) = reached {
        let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        if reached.1.insert(place[0]) {
            let text: String = place.iter().map(|id| format!("{id}\n")).collect();
            let _ = std::io::Write::write_all(&mut reached.0, text.as_bytes());
        }
    }
    *active
}
"#;

/// More rounds mean that the errors do not become fewer.
const ROUNDS: usize = 60;

/// The mutated source of one area in a clone.
#[derive(Debug)]
pub(super) struct SwitchedBuild<'a> {
    pub(super) tree: &'a Path,
    pub(super) area: &'static Area,
    pub(super) mutants: Vec<Mutant>,
    /// Mutants that do not compile as branches.
    pub(super) unviable: BTreeSet<Id>,
}

impl SwitchedBuild<'_> {
    /// Writes the mutants into the clone, and leaves out those that do not compile, until the library compiles.
    pub(super) fn prepare(&mut self, command: impl Fn(&[&str]) -> Command) -> Result<(), Box<dyn Error>> {
        let mut sources = BTreeMap::new();
        for mutant in &self.mutants {
            if !sources.contains_key(&mutant.file) {
                sources.insert(mutant.file.clone(), fs::read_to_string(self.tree.join(&mutant.file))?);
            }
        }
        let root = self.tree.join(self.area.crate_root());
        fs::write(&root, format!("{LINTS}{}{SELECTION}", fs::read_to_string(&root)?))?;
        for _ in 0..ROUNDS {
            let files = self.write(&sources)?;
            let mut check = command(&["check", "--message-format=json", "--package", self.area.package]);
            let errors = errors(check.args(self.area.unit_tests()))?;
            if errors.is_empty() {
                println!(
                    "xtask mutants: {}: {} of {} mutants compile",
                    self.area.name,
                    self.mutants.len() - self.unviable.len(),
                    self.mutants.len()
                );
                return Ok(());
            }
            let before = self.unviable.len();
            self.unviable.extend(errors.iter().flat_map(|error| blamed(error, &files)));
            println!(
                "xtask mutants: {}: {} of {} mutants left out",
                self.area.name,
                self.unviable.len(),
                self.mutants.len()
            );
            if self.unviable.len() == before {
                return Err(format!("no mutant causes this error: {}", errors[0]["rendered"]).into());
            }
        }
        Err(format!("mutants of {} do not compile after {ROUNDS} rounds", self.area.name).into())
    }

    /// Writes each file with its mutants, and returns the branches. A mutant without a branch becomes unviable.
    fn write(&mut self, sources: &BTreeMap<String, String>) -> Result<BTreeMap<String, Rewritten>, Box<dyn Error>> {
        let mut files = BTreeMap::new();
        for (file, source) in sources {
            let mutants: Vec<_> = (1..)
                .zip(&self.mutants)
                .filter(|(id, mutant)| mutant.file == *file && !self.unviable.contains(id))
                .collect();
            let rewritten = rewrite(source, &mutants)?;
            let placed: BTreeSet<_> = rewritten.branches.iter().map(|(id, _)| *id).collect();
            self.unviable.extend(mutants.iter().map(|(id, _)| *id).filter(|id| !placed.contains(id)));
            let path = self.tree.join(file);
            if fs::read_to_string(&path)? != rewritten.text {
                fs::write(&path, &rewritten.text)?;
            }
            files.insert(file.clone(), rewritten);
        }
        Ok(files)
    }
}

/// Builds the tests of a set, and returns the paths of their programs, each with the folder of its package.
pub(super) fn programs(tests: TestSet, mut command: Command) -> Result<Vec<(PathBuf, PathBuf)>, Box<dyn Error>> {
    command.args(["--no-run", "--message-format=json", "--package", tests.0]).args(tests.build_arguments());
    let messages = messages(&mut command)?;
    if let Some(error) = messages.iter().find(|message| message["message"]["level"] == "error") {
        return Err(format!("tests of {}: {}", tests.0, error["message"]["rendered"]).into());
    }
    let tests = messages.iter().filter(|message| message["profile"]["test"] == true);
    let path = |message: &Value, field| message[field].as_str().map(PathBuf::from);
    let program = |message| Some((path(message, "executable")?, path(message, "manifest_path")?.parent()?.to_owned()));
    Ok(tests.filter_map(program).collect())
}

/// Returns the errors of the compiler.
fn errors(command: &mut Command) -> Result<Vec<Value>, Box<dyn Error>> {
    let messages = messages(command)?.into_iter().map(|mut message| message["message"].take());
    Ok(messages.filter(|message| message["level"] == "error" && message["spans"] != Value::Array(Vec::new())).collect())
}

fn messages(command: &mut Command) -> Result<Vec<Value>, Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let has_error = messages.iter().any(|message| message["message"]["level"] == "error");
    if !output.status.success() && !has_error {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(messages)
}

/// Returns the mutants that cause an error: those at its primary places, otherwise those at its other places.
fn blamed(error: &Value, files: &BTreeMap<String, Rewritten>) -> Vec<Id> {
    let spans: Vec<_> = error["spans"].as_array().into_iter().flatten().collect();
    let at = |span: &Value| {
        let file = files.get(span["file_name"].as_str()?)?;
        let byte = usize::try_from(span["byte_start"].as_u64()?).ok()?;
        let inside = file.branches.iter().filter(|(_, branch)| branch.contains(&byte));
        inside.min_by_key(|(_, branch)| branch.len()).map(|(id, _)| *id)
    };
    let primary: Vec<_> = spans.iter().filter(|span| span["is_primary"] == true).filter_map(|span| at(span)).collect();
    if !primary.is_empty() {
        return primary;
    }
    let others: Vec<_> = spans.iter().filter_map(|span| at(span)).collect();
    if !others.is_empty() {
        return others;
    }
    // A branch may change what the compiler infers elsewhere in the line's place.
    spans.iter().filter_map(|span| nearest(span, files)).collect()
}

/// Returns the mutant whose branch is the nearest one before the error.
fn nearest(span: &Value, files: &BTreeMap<String, Rewritten>) -> Option<Id> {
    let file = files.get(span["file_name"].as_str()?)?;
    let byte = usize::try_from(span["byte_start"].as_u64()?).ok()?;
    let nearest = file.branches.iter().min_by_key(|(_, branch)| branch.start.abs_diff(byte));
    nearest.map(|(id, _)| *id)
}
