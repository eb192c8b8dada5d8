//! Reading of audit files.
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use idempotent_core::Timestamp;

use crate::{AuditEntry, AuditPhase};

/// The outcome of an intent without a result, in [`AuditReader::entries`].
const UNKNOWN: &str = "unknown";

/// A selection of audit entries. The default selects all.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditFilter {
    /// The author.
    pub by: Option<String>,
    /// The action.
    pub action: Option<String>,
    /// The earliest time.
    pub since: Option<Timestamp>,
    /// Selects only intents without a result.
    pub unknown: bool,
}

impl AuditFilter {
    /// Returns whether the filter selects an entry of [`AuditReader::entries`].
    #[must_use]
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        self.by.as_ref().is_none_or(|by| *by == entry.by)
            && self.action.as_ref().is_none_or(|action| *action == entry.action)
            && self.since.is_none_or(|since| time(&entry.at).is_some_and(|at| at >= since))
            && (!self.unknown || entry.phase == AuditPhase::Intent)
    }
}

fn time(text: &str) -> Option<Timestamp> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok().map(Timestamp)
}

/// A reader of a file that an [`AuditFile`](crate::AuditFile) has written.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    /// The ids and subjects of the intents without a result.
    open: HashSet<(String, String)>,
    unreadable: Vec<u64>,
}

impl AuditReader {
    /// Reads a file, and remembers the intents without a result.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let (mut open, mut unreadable) = (HashSet::new(), Vec::new());
        for (number, line) in (1..).zip(lines(&path)?) {
            match entry(&line?) {
                Some(AuditEntry { id, subject, phase: AuditPhase::Intent, .. }) => {
                    open.insert((id, subject));
                }
                Some(AuditEntry { id, subject, phase: AuditPhase::Result, .. }) => {
                    open.remove(&(id, subject));
                }
                None => unreadable.push(number),
            }
        }
        Ok(Self { path, open, unreadable })
    }

    /// Returns the numbers of the lines that contain no entry, from 1 on.
    #[must_use]
    pub fn unreadable(&self) -> &[u64] {
        &self.unreadable
    }

    /// Returns all results, and all intents without a result with the outcome `unknown`, in the order of the file. A change whose
    /// command still runs has no result yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<AuditEntry>>> {
        let entries = lines(&self.path)?.filter_map(|line| line.map(|line| entry(&line)).transpose());
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) if entry.phase == AuditPhase::Result => Some(Ok(entry)),
            Ok(entry) => {
                let is_open = self.open.contains(&(entry.id.clone(), entry.subject.clone()));
                is_open.then(|| Ok(AuditEntry { outcome: Some(UNKNOWN.into()), ..entry }))
            }
            Err(error) => Some(Err(error)),
        }))
    }
}

/// Returns the lines of a file. A line that is not UTF-8 contains no entry.
fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    Ok(lines.filter(|line| !line.as_ref().is_ok_and(Vec::is_empty)))
}

fn entry(line: &[u8]) -> Option<AuditEntry> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{AuditFile, AuditTrail};

    fn read(path: &Path, filter: &AuditFilter) -> Vec<String> {
        let entries = AuditReader::open(path).unwrap().entries().unwrap().map(Result::unwrap).collect::<Vec<_>>();
        let shown = |entry: &AuditEntry| format!("{} {}", entry.subject, entry.outcome.as_deref().unwrap());
        entries.iter().filter(|entry| filter.matches(entry)).map(shown).collect()
    }

    #[test]
    fn intents_without_a_result_are_unknown_and_entries_are_selected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sink = Arc::new(AuditFile::open(file.path()).unwrap());
        let trail = |by: &str| AuditTrail::new(sink.clone(), (by, "why"), "test", "orders").unwrap();
        trail("ann").begin("void", "p-1").unwrap().end("done");
        let lost = trail("bob").begin("resend", "p-2").unwrap();
        trail("bob").begin("void", "p-3").unwrap().end("failed: no connection");
        let all = AuditFilter::default();
        assert_eq!(read(file.path(), &all), ["p-1 done", "p-2 unknown", "p-3 failed: no connection"]);
        let filter = |change: &dyn Fn(&mut AuditFilter)| {
            let mut filter = AuditFilter::default();
            change(&mut filter);
            read(file.path(), &filter)
        };
        assert_eq!(filter(&|filter| filter.by = Some("ann".into())), ["p-1 done"]);
        assert_eq!(filter(&|filter| filter.action = Some("resend".into())), ["p-2 unknown"]);
        assert_eq!(filter(&|filter| filter.unknown = true), ["p-2 unknown"]);
        assert_eq!(filter(&|filter| filter.since = Some(Timestamp(1))).len(), 3);
        assert!(filter(&|filter| filter.since = Some(Timestamp(9_000_000_000_000_000))).is_empty());
        lost.end("done");
        assert!(filter(&|filter| filter.unknown = true).is_empty());
    }

    #[test]
    fn a_line_that_is_no_entry_is_counted_and_hides_no_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sink = Arc::new(AuditFile::open(file.path()).unwrap());
        let trail = AuditTrail::new(sink, ("ann", "why"), "test", "orders").unwrap();
        trail.begin("void", "p-1").unwrap().end("done");
        let text = std::fs::read(file.path()).unwrap();
        std::fs::write(file.path(), [b"{\"id\": \n\xff\n", &text[..], b"{\"id\""].concat()).unwrap();
        assert_eq!(read(file.path(), &AuditFilter::default()), ["p-1 done"]);
        assert_eq!(AuditReader::open(file.path()).unwrap().unreadable(), [1, 2, 5]);
    }
}
