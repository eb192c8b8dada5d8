//! A worker's part of the history, in a file; and all parts together.
//!
//! A line is one write, so a killed worker leaves at most its last line torn. Before each call of the store the line
//! `…_unknown` is written, with the call's number; when the answer is heard, a line with the same number takes its
//! place, or, if the call was surely not applied, takes it away.
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use idempotent_testkit::history::{History, Journal, Line};
use serde::{Deserialize, Serialize};

use crate::time;

#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    calls: AtomicU64,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    #[serde(flatten)]
    line: Option<&'a Line>,
}

/// The fields of a line that the merge needs.
#[derive(Deserialize)]
struct Head {
    call: Option<u64>,
    event: Option<String>,
}

impl Part {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, calls: AtomicU64::new(0) })
    }

    fn write(&self, call: Option<u64>, line: Option<&Line>) {
        let text = crate::wire::line(&Written { call, line });
        if let Err(error) = (&self.file).write_all(text.as_bytes()) {
            // A gap in the history would be judged as if nothing had happened.
            eprintln!("the history cannot be written: {error}");
            std::process::abort();
        }
    }
}

impl Journal for Part {
    fn now(&self) -> u64 {
        time::now()
    }

    fn begin(&self, unheard: &Line) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.write(Some(call), Some(unheard));
        call
    }

    fn end(&self, call: u64, heard: Option<&Line>) {
        self.write(Some(call), heard);
    }

    fn event(&self, line: &Line) {
        self.write(None, Some(line));
    }
}

/// The lines of a part, as a history has them.
fn settle(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut lines: Vec<Option<String>> = Vec::new();
    let mut begun: HashMap<u64, usize> = HashMap::new();
    let mut reader = BufReader::new(File::open(path)?);
    let mut text = String::new();
    while reader.read_line(&mut text)? > 0 {
        let line = std::mem::take(&mut text);
        // Torn: its writer was killed in the middle of it.
        let Some(line) = line.strip_suffix('\n') else { break };
        let head: Head = serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))?;
        let first = head.call.and_then(|call| begun.get(&call));
        if let Some(first) = first {
            lines[*first] = None;
        }
        if let Some(call) = head.call {
            begun.insert(call, lines.len());
        }
        lines.push(head.event.map(|_| line.to_owned()));
    }
    Ok(lines.into_iter().flatten().collect())
}

/// One history of all parts and of what the harness has seen itself.
pub(crate) fn merge<'a>(parts: impl IntoIterator<Item = &'a Path>, own: Vec<Line>) -> anyhow::Result<History> {
    let mut lines = own;
    for part in parts {
        let history: History = settle(part)?.join("\n").parse().with_context(|| part.display().to_string())?;
        lines.extend(history.lines);
    }
    Ok(History::new(lines))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_testkit::history::{Kind, Token};

    use super::*;

    fn line(event: Kind) -> Line {
        let (key, token) = (Some("k".to_owned()), Some(Token(7)));
        Line { key, token, fence: Some(1), ..Line::new(5, 1, event) }
    }

    fn merged(part: &Path) -> Vec<Kind> {
        merge([part], Vec::new()).unwrap().lines.iter().map(|line| line.event).collect()
    }

    #[test]
    fn an_answer_takes_the_place_of_what_was_begun_and_what_was_never_answered_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        let part = Part::create(&path).unwrap();
        let won = part.begin(&line(Kind::ClaimUnknown));
        let refused = part.begin(&line(Kind::RenewUnknown));
        part.begin(&line(Kind::CompleteUnknown));
        part.end(refused, None);
        part.end(won, Some(&line(Kind::ClaimWon)));
        part.event(&line(Kind::Effect));
        assert_eq!(merged(&path), [Kind::CompleteUnknown, Kind::ClaimWon, Kind::Effect]);
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        Part::create(&path).unwrap().event(&line(Kind::Effect));
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"t":6,"t0":6,"wor"#).unwrap();
        assert_eq!(merged(&path), [Kind::Effect]);
    }
}
