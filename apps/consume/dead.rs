//! Dead letters: lines that nothing more can be done for, as they were read.
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;

/// A file of lines.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    path: PathBuf,
    file: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    file: File,
    /// The last line has no end: the input's last line need not.
    open: bool,
}

impl DeadLetters {
    /// Empties the file, or makes it.
    pub(crate) fn create(path: PathBuf) -> anyhow::Result<Self> {
        // Appended to, so that lines of two processes do not overwrite each other.
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.and_then(|file| file.set_len(0).map(|()| file));
        let file = file.map_err(|error| anyhow!("cannot write the dead letters {}: {error}", path.display()))?;
        Ok(Self { path, file: Mutex::new(Lines { file, open: false }) })
    }

    /// Adds a line. It is in the file when this returns.
    pub(crate) fn write(&self, line: &[u8]) -> io::Result<()> {
        self.lines().line(line).map_err(|error| self.failed(&error))
    }

    /// Adds a line of which only the `start` is in memory.
    pub(crate) fn copy_line(&self, start: &[u8], rest: &mut impl BufRead) -> io::Result<()> {
        let mut lines = self.lines();
        lines.line(start).map_err(|error| self.failed(&error))?;
        while lines.open {
            let part = rest.fill_buf()?;
            if part.is_empty() {
                break;
            }
            let length = part.iter().position(|byte| *byte == b'\n').map_or(part.len(), |end| end + 1);
            lines.add(&part[..length]).map_err(|error| self.failed(&error))?;
            rest.consume(length);
        }
        Ok(())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot write the dead letters {}: {error}", self.path.display()))
    }
}

impl Lines {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.open {
            self.add(b"\n")?;
        }
        self.add(line)
    }

    fn add(&mut self, part: &[u8]) -> io::Result<()> {
        self.file.write_all(part)?;
        self.open = !part.ends_with(b"\n");
        Ok(())
    }
}
