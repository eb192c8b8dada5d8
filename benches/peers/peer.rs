//! A peer in a process of its own, which answers lines.
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use idempotent_harness::servers::RedisServer;

use crate::slices::{Mode, Slice};

/// A library for the same purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Idempotent2,
    TypeScript,
    Python,
    AxumIdempotent,
}

/// The peers of the executor. The other one is a layer for HTTP.
pub const EXECUTORS: [Kind; 3] = [Kind::Idempotent2, Kind::TypeScript, Kind::Python];

/// The variable with the folder into which `cargo xtask bench peers` installs the peers.
const FOLDER: &str = "IDEMPOTENT_PEERS";

impl Kind {
    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idempotent2 => "idempotent 2",
            Self::TypeScript => "Powertools for TypeScript",
            Self::Python => "Powertools for Python",
            Self::AxumIdempotent => "axum-idempotent",
        }
    }

    fn command(self, folder: &Path, server: &RedisServer) -> Command {
        let rust = |name: &str| {
            let mut command = Command::new(folder.join("rust/release/peers"));
            command.args([name, &server.url()]);
            command
        };
        match self {
            Self::Idempotent2 => rust("idempotent-2"),
            Self::AxumIdempotent => rust("axum-idempotent"),
            Self::TypeScript => {
                let mut command = Command::new("node");
                // Node looks for the packages of this code in the current folder.
                command.args(["--input-type=module", "--eval", include_str!("powertools.mjs"), &server.url()]);
                command.current_dir(folder.join("node"));
                command
            }
            Self::Python => {
                let mut command = Command::new(folder.join("python/bin/python"));
                // The layer has its new name only as an alias of the old one, which warns.
                command.args(["-W", "ignore::DeprecationWarning", "-c", include_str!("powertools.py")]);
                command.args(["127.0.0.1", &server.port().to_string()]);
                command
            }
        }
    }
}

/// A running peer. Clones share the process, which ends with the last of them.
#[derive(Clone)]
pub struct Peer {
    pub kind: Kind,
    process: Arc<Mutex<Process>>,
}

struct Process {
    kind: Kind,
    child: Child,
    lines: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// The answer to a line.
#[derive(Clone, Copy)]
struct Answer {
    operations: u64,
    /// The runs of the handler.
    runs: u64,
}

impl Peer {
    /// Starts the process, and waits until it is connected.
    ///
    /// # Panics
    /// The peer is not installed, or cannot connect. The message names it.
    pub fn start(kind: Kind, server: &RedisServer) -> Self {
        let folder = std::env::var_os(FOLDER).map(PathBuf::from);
        let folder =
            folder.unwrap_or_else(|| panic!("`cargo xtask bench peers` installs the peers, and sets {FOLDER}"));
        let mut command = kind.command(&folder, server);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{}: {e}", kind.name()));
        let lines = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut process = Process { kind, child, lines, answers };
        assert_eq!(process.answer(), "ready", "{}", kind.name());
        Self { kind, process: Arc::new(Mutex::new(process)) }
    }

    /// Returns a mode with a new key for each operation.
    pub fn fresh(&self) -> Mode {
        self.mode(0, |answer| assert_eq!(answer.runs, answer.operations, "each operation has a new key"))
    }

    /// Returns a mode with the keys of [`fill`](Self::fill).
    pub fn duplicates(&self, keys: u64) -> Mode {
        self.mode(keys, |answer| assert_eq!(answer.runs, 0, "each key is consumed"))
    }

    /// Consumes the first keys.
    pub fn fill(&self, keys: u64) {
        let answer = self.process.lock().unwrap().ask(&format!("fill {keys}"));
        assert_eq!((answer.operations, answer.runs), (keys, keys), "{}", self.kind.name());
    }

    fn mode(&self, keys: u64, check: fn(Answer)) -> Mode {
        let peer = self.clone();
        Box::new(move |slice| {
            let peer = peer.clone();
            Box::pin(async move {
                let Slice { tasks, from, length, .. } = slice;
                let line = format!("run {tasks} {} {from} {keys}", length.as_millis());
                let asked = tokio::task::spawn_blocking(move || peer.process.lock().unwrap().ask(&line));
                let answer = asked.await.unwrap();
                check(answer);
                answer.operations
            })
        })
    }
}

impl Process {
    fn ask(&mut self, line: &str) -> Answer {
        let lines = self.lines.as_mut().expect("open until the value is dropped");
        writeln!(lines, "{line}").unwrap_or_else(|e| panic!("{}: {e}", self.kind.name()));
        let answer = self.answer();
        let (operations, runs) = answer.split_once(' ').unwrap_or_else(|| panic!("{}: `{answer}`", self.kind.name()));
        Answer { operations: operations.parse().unwrap(), runs: runs.parse().unwrap() }
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Process {
    /// Ends the process, which reads lines until there are no more.
    fn drop(&mut self) {
        drop(self.lines.take());
        let _ = self.child.wait();
    }
}
