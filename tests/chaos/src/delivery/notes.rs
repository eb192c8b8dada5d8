//! The notes of a process, one line each, in a file that survives the process. Each line is one write, so a killed
//! process truncates at most its last line.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A process's own.
#[derive(Debug)]
pub(super) struct Notes(File);

impl Notes {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(super) fn write(&self, note: &impl Serialize) {
        if let Err(error) = (&self.0).write_all(crate::wire::line(note).as_bytes()) {
            // What is not noted would be judged as if it had not happened.
            eprintln!("notes cannot be written: {error}");
            std::process::abort();
        }
    }
}

/// Returns the file for the notes of an incarnation.
pub(super) fn file(folder: &Path, id: u32) -> PathBuf {
    folder.join(format!("notes-{id}.jsonl"))
}

/// Reads the notes of all incarnations up to this one, each in its order.
pub(super) fn read<N: DeserializeOwned>(folder: &Path, last: u32) -> anyhow::Result<Vec<(u32, N)>> {
    let mut notes = Vec::new();
    for id in 1..=last {
        let path = file(folder, id);
        // Killed before it could begin.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let note = serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))?;
            notes.push((id, note));
        }
    }
    Ok(notes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_in_order_without_torn_lines_and_unknown_processes() {
        let folder = tempfile::tempdir().unwrap();
        for id in [1, 3] {
            let notes = Notes::create(&file(folder.path(), id)).unwrap();
            notes.write(&(id * 10));
            notes.write(&(id * 10 + 1));
        }
        let mut torn = OpenOptions::new().append(true).open(file(folder.path(), 1)).unwrap();
        torn.write_all(b"1").unwrap();
        assert_eq!(read::<u32>(folder.path(), 4).unwrap(), [(1, 10), (1, 11), (3, 30), (3, 31)]);
    }
}
