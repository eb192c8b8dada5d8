//! Reading of audit files.
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
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

/// The entries of an audit file that [`AuditReader::newest`] has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewestEntries {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// True if older entries were not read.
    pub is_cut: bool,
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

    /// Returns the newest of the [`entries`](Self::entries) of a file: at most `most` that the filter selects, from the last
    /// `most_bytes` of the file. The rest of the file is not read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn newest(
        path: impl AsRef<Path>,
        filter: &AuditFilter,
        most: usize,
        most_bytes: u64,
    ) -> io::Result<NewestEntries> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(most_bytes);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(most_bytes).read_to_end(&mut bytes)?;
        let mut lines = bytes.rsplit(|byte| *byte == b'\n').peekable();
        let (mut found, mut ended) = (NewestEntries::default(), HashSet::new());
        while let Some(line) = lines.next() {
            // The first line of a part of the file may be the end of a longer line.
            if start > 0 && lines.peek().is_none() {
                found.is_cut = true;
                break;
            }
            let Some(entry) = entry(line) else { continue };
            let place = (entry.id.clone(), entry.subject.clone());
            let entry = match entry.phase {
                AuditPhase::Result => {
                    ended.insert(place);
                    entry
                }
                AuditPhase::Intent if ended.remove(&place) => continue,
                AuditPhase::Intent => unknown(entry),
            };
            if !filter.matches(&entry) {
                continue;
            }
            if found.entries.len() == most {
                found.is_cut = true;
                break;
            }
            found.entries.push(entry);
        }
        Ok(found)
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
                is_open.then(|| Ok(unknown(entry)))
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

/// Returns an intent without a result.
fn unknown(intent: AuditEntry) -> AuditEntry {
    AuditEntry { outcome: Some(UNKNOWN.into()), ..intent }
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

    /// Returns an audit file, and a function that opens the trail of an author.
    fn log() -> (tempfile::NamedTempFile, impl Fn(&str) -> AuditTrail) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sink = Arc::new(AuditFile::open(file.path()).unwrap());
        (file, move |by: &str| AuditTrail::new(sink.clone(), (by, "why"), "test", "orders").unwrap())
    }

    fn read(path: &Path, filter: &AuditFilter) -> Vec<String> {
        let entries = AuditReader::open(path).unwrap().entries().unwrap().map(Result::unwrap).collect::<Vec<_>>();
        let shown = |entry: &AuditEntry| format!("{} {}", entry.subject, entry.outcome.as_deref().unwrap());
        entries.iter().filter(|entry| filter.matches(entry)).map(shown).collect()
    }

    #[test]
    fn intents_without_a_result_are_unknown_and_entries_are_selected() {
        let (file, trail) = log();
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
        let (file, trail) = log();
        let trail = trail("ann");
        trail.begin("void", "p-1").unwrap().end("done");
        let text = std::fs::read(file.path()).unwrap();
        std::fs::write(file.path(), [b"{\"id\": \n\xff\n", &text[..], b"{\"id\""].concat()).unwrap();
        assert_eq!(read(file.path(), &AuditFilter::default()), ["p-1 done"]);
        assert_eq!(AuditReader::open(file.path()).unwrap().unreadable(), [1, 2, 5]);
    }

    #[test]
    fn an_entry_after_a_torn_line_begins_a_line_of_its_own() {
        let (file, trail) = log();
        let trail = trail("ann");
        let open = trail.begin("void", "p-1").unwrap();
        // A crash of another process, while this one has the file open.
        let whole = std::fs::read(file.path()).unwrap();
        std::fs::write(file.path(), [&whole[..], &whole[..20]].concat()).unwrap();
        open.end("done");
        trail.begin("void", "p-2").unwrap().end("done");
        assert_eq!(read(file.path(), &AuditFilter::default()), ["p-1 done", "p-2 done"]);
        assert_eq!(AuditReader::open(file.path()).unwrap().unreadable(), [2]);
        let lines = std::fs::read_to_string(file.path()).unwrap();
        assert!(lines.lines().count() == 5 && !lines.contains("\n\n"), "{lines}");
    }

    #[test]
    fn the_newest_entries_are_those_of_the_end_and_the_rest_is_not_read() {
        let (file, trail) = log();
        let _lost = trail("ann").begin("void", "p-0").unwrap();
        for number in 1..=20 {
            trail(if number == 3 { "bob" } else { "ann" }).begin("void", &format!("p-{number}")).unwrap().end("done");
        }
        let newest = |filter: &AuditFilter, most, most_bytes| {
            let found = AuditReader::newest(file.path(), filter, most, most_bytes).unwrap();
            let shown = |entry: &AuditEntry| format!("{} {}", entry.subject, entry.outcome.as_deref().unwrap());
            (found.entries.iter().map(shown).collect::<Vec<_>>(), found.is_cut)
        };
        let all = AuditFilter::default();
        let mut expected = read(file.path(), &all);
        expected.reverse();
        assert_eq!(expected.last().map(String::as_str), Some("p-0 unknown"));
        let length = file.path().metadata().unwrap().len();
        assert_eq!(newest(&all, usize::MAX, u64::MAX), (expected.clone(), false));
        assert_eq!(newest(&all, 21, length), (expected.clone(), false));
        assert_eq!(newest(&all, 4, length), (expected[..4].to_vec(), true));
        let (part, is_cut) = newest(&all, usize::MAX, length / 4);
        assert!(is_cut && (3..10).contains(&part.len()) && part[..] == expected[..part.len()], "{part:?}");
        let bob = AuditFilter { by: Some("bob".into()), ..AuditFilter::default() };
        assert_eq!(newest(&bob, 10, length), (vec!["p-3 done".to_owned()], false));
        assert_eq!(newest(&bob, 10, length / 4), (Vec::new(), true));
        assert_eq!(newest(&all, 10, 0), (Vec::new(), true));
    }
}
