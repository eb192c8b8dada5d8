//! The folder of a server, with its log, data and socket.
#![allow(clippy::print_stderr, reason = "a test that fails shows the server's log")]
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;

/// The number of log lines that are shown after a panic.
const TAIL: usize = 40;

/// The folder for logs of tests that panicked, below the system's folder for temporary files.
const LOGS: &str = "idempotent-logs";

/// The number of logs that are kept. Without a limit, tests that panic on purpose would fill the disk.
const KEPT: usize = 100;

/// A folder that is removed when the value is dropped. After a panic, the log is kept, and its end is printed.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    name: String,
}

impl Folder {
    /// Creates a folder below the system's folder for temporary files.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(super) fn new(name: &str) -> Result<Self, String> {
        Self::new_in(&std::env::temp_dir(), name)
    }

    /// Creates a folder below `place`.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(super) fn new_in(place: &Path, name: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(place);
        Ok(Self { folder: folder.map_err(|e| format!("no temporary folder: {e}"))?, name: name.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// Returns the last lines of the log.
    pub(super) fn tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if thread::panicking() {
            let place = self.keep().map_or_else(|e| format!("not kept: {e}"), |log| format!("all of it in {log}"));
            eprintln!("--- {}, {place}\n{}\n---", self.name, self.tail());
        }
    }
}

impl Folder {
    /// Copies the log out of the folder, and removes the oldest copies.
    fn keep(&self) -> io::Result<String> {
        let logs = std::env::temp_dir().join(LOGS);
        fs::create_dir_all(&logs)?;
        let own = self.path().file_name().unwrap_or_default();
        let kept = logs.join(own).with_extension("log");
        fs::copy(self.log(), &kept)?;
        let age = |file: &fs::DirEntry| file.metadata().and_then(|data| data.modified()).ok();
        let mut all: Vec<_> = fs::read_dir(&logs)?.flatten().collect();
        all.sort_by_key(|file| std::cmp::Reverse(age(file)));
        for old in all.iter().skip(KEPT) {
            // Another test may have removed it first.
            let _ = fs::remove_file(old.path());
        }
        Ok(kept.display().to_string())
    }
}
