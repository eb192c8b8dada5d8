//! The runs of test programs, each with one mutant selected.
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::rewrite::Id;
use crate::tools::{concurrently, target};

/// The time limit between the ends of two tests. A test takes some seconds on an idle machine, unless the mutant waits
/// forever.
const LIMIT: Duration = Duration::from_secs(60);
/// The limits of a run in seconds of processor time, and in kilobytes of memory: some mutants never end, or fill the memory.
const LIMITS: &str = "ulimit -t 60; ulimit -v 8000000";
/// The number of concurrent runs. Runs with a mutant that waits forever need no processor.
pub(super) const RUNS: usize = 6;

/// A test program, and the mutants that each of its tests reaches.
#[derive(Debug)]
pub(super) struct TestProgram {
    path: PathBuf,
    folder: PathBuf,
    /// The target folder of the workspace, which contains servers that `cargo xtask setup` unpacks.
    target: PathBuf,
    tests: Vec<Test>,
}

#[derive(Debug)]
struct Test {
    name: String,
    reaches: BTreeSet<Id>,
}

impl TestProgram {
    /// Runs each test in a process of its own and without a mutant, and notes the mutants that the test reaches. A test that
    /// fails while others run, whose servers slow it down, runs once more by itself.
    pub(super) fn observe(path: &Path, folder: &Path, words: &[&str], notes: &Path) -> Result<Self, Box<dyn Error>> {
        let list = Command::new(path).args(words).args(["--list", "--format", "terse"]).current_dir(folder).output()?;
        let list = String::from_utf8(list.stdout)?;
        let names: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        let mut program =
            Self { path: path.to_owned(), folder: folder.to_owned(), target: target()?, tests: Vec::new() };
        let observe = |nth: usize, name: &str| {
            let note = notes.join(format!("reached-{nth}"));
            let _ = fs::remove_file(&note);
            let mut command = program.command();
            command.env("MUTANTS_REACHED", &note).args(["--exact", name]);
            if !passes(&mut command) {
                return None;
            }
            let reached = fs::read_to_string(&note).unwrap_or_default();
            let reaches = reached.lines().filter_map(|id| id.parse().ok()).collect();
            Some(Test { name: name.to_owned(), reaches })
        };
        let tests = concurrently(names.iter().copied(), RUNS, observe);
        let alone = names.iter().copied().zip(tests).enumerate();
        let tests: Vec<_> = alone.map(|(nth, (name, test))| (name, test.or_else(|| observe(nth, name)))).collect();
        for (name, test) in tests {
            program.tests.push(test.ok_or_else(|| format!("the test {name} fails without a mutant"))?);
        }
        Ok(program)
    }

    /// Returns whether a test that reaches the mutant fails. The six most specific ones run first, since many fail.
    pub(super) fn detects(&self, mutant: Id) -> bool {
        let mut tests: Vec<_> = self.tests.iter().filter(|test| test.reaches.contains(&mutant)).collect();
        tests.sort_by_key(|test| test.reaches.len());
        let (first, rest) = tests.split_at(tests.len().min(6));
        [first, rest].iter().any(|tests| {
            let names = tests.iter().map(|test| &test.name);
            !tests.is_empty() && !passes(self.command().env("MUTANT", mutant.to_string()).arg("--exact").args(names))
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{LIMITS}; exec \"$0\" \"$@\"")]).arg(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_TARGET_DIR", &self.target);
        command
    }
}

/// Returns whether the program ends with success, and each test in time. Ends the program at its first failed test.
fn passes(command: &mut Command) -> bool {
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    let (sender, lines) = channel();
    let output = child.stdout.take();
    thread::spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let passed = loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) if line.ends_with("... FAILED") => break false,
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break child.wait().is_ok_and(|status| status.success()),
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    // An error means that the program has ended. The reader ends with the last process that has the pipe.
    let _ = child.kill();
    let _ = child.wait();
    passed
}
