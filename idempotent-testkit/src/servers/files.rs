//! A server's folder: its log, its data, its socket.
#![allow(clippy::print_stderr, reason = "a test that fails shows the server's log")]
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;

/// Lines of the log that are shown after a panic.
const TAIL: usize = 40;

/// Removed when dropped; after a panic it stays, and the log's end is shown.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    name: String,
}

impl Folder {
    /// # Errors
    /// Where none can be made.
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir();
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

    /// The log's last lines.
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
            self.folder.disable_cleanup(true);
            eprintln!("--- {}, all of it in {}\n{}\n---", self.name, self.path().display(), self.tail());
        }
    }
}
