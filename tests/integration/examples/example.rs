//! Programs of `examples` and `apps`, in the build of the tests. `IDEMPOTENT_EXAMPLES` names the folder of the examples
//! of another build, such as a release build; its applications are in the folder above.
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};

/// The longest time between two lines of a program that a test waits for.
const SILENCE: Duration = Duration::from_secs(120);

/// Returns the program of an example or an application, which is no older than its sources.
pub(crate) fn binary(name: &str) -> PathBuf {
    let app = checkout().join("apps").join(name);
    let examples = std::env::var_os("IDEMPOTENT_EXAMPLES").map_or_else(beside_the_tests, PathBuf::from);
    let folder = if app.exists() { examples.parent().unwrap() } else { &*examples };
    let binary = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let built = binary
        .metadata()
        .and_then(|about| about.modified())
        .unwrap_or_else(|error| panic!("{}: {error}: `cargo xtask test` builds the examples", binary.display()));
    let source = if app.exists() { app } else { checkout().join("examples").join(format!("{name}.rs")) };
    assert!(
        newest(&source) <= built,
        "{} is older than {}: `cargo xtask test` builds the examples first",
        binary.display(),
        source.display()
    );
    binary
}

/// Runs it to its good end, and returns what it says.
pub(crate) fn run(name: &str, args: &[&str]) -> String {
    let run = Command::new(binary(name)).args(args).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{complained}");
    said.into_owned()
}

/// An example that runs, and what it says; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Running {
    pub(crate) fn start(name: &str, args: &[&str]) -> Self {
        Self::spawn(Command::new(binary(name)).args(args))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let next = move || match lines.recv_timeout(SILENCE) {
            Err(RecvTimeoutError::Timeout) => panic!("no line within {SILENCE:?}"),
            line => line.ok(),
        };
        Self { child, lines: Box::new(std::iter::from_fn(next)) }
    }

    /// Sends a line to the program.
    pub(crate) fn enter(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn says(&mut self, lines: usize) -> Vec<String> {
        self.lines.by_ref().take(lines).collect()
    }

    /// Reads lines up to this one.
    ///
    /// # Panics
    /// If the program ends first.
    pub(crate) fn says_at_last(&mut self, line: &str) {
        assert!(self.lines.any(|said| said == line), "never said: {line}");
    }

    /// Returns the output after the program has ended successfully.
    pub(crate) fn ends(mut self) -> Vec<String> {
        let rest: Vec<_> = self.lines.by_ref().collect();
        assert!(self.child.wait().unwrap().success(), "{rest:?}");
        rest
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the folder of the checkout.
pub(crate) fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn beside_the_tests() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples")
}

/// Returns the latest modification time of a file, or of all files in a folder.
fn newest(path: &Path) -> SystemTime {
    if path.is_dir() {
        let parts = std::fs::read_dir(path).unwrap().map(|part| newest(&part.unwrap().path()));
        return parts.max().unwrap_or(SystemTime::UNIX_EPOCH);
    }
    path.metadata().unwrap().modified().unwrap()
}
