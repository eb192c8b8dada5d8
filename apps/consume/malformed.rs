//! Reports about lines without a key: each with its number or id, and at the end their common causes.
use std::sync::{Mutex, PoisonError};

use crate::delivery::{Field, Reason, fields_of};
use crate::screen::Screen;
use crate::tally::Counted;

/// Statistics of malformed lines.
#[derive(Debug, Default)]
pub(crate) struct Malformed(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Objects without the field.
    missing: u64,
    /// The fields of the first malformed lines.
    fields: Vec<String>,
}

/// Names of fields that are listed, and characters of each.
const NAMES: usize = 20;
const LENGTH: usize = 40;

impl Malformed {
    /// Prints a malformed line of the input or queue `what`.
    pub(crate) fn tell(&self, what: &str, reason: &Reason, line: &[u8], screen: &Screen) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(reason, Reason::Missing(_)) {
            seen.missing += 1;
            if seen.missing == 1 {
                seen.fields = fields_of(line).unwrap_or_default();
            }
        }
        screen.say(&format!("{what} is malformed: {reason}"));
    }

    /// Returns the summary of lines that were not printed.
    pub(crate) fn rest(&self, field: &Field, counted: &Counted) -> Option<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One line with another mistake, and the name of the field may be right.
        (seen.missing > 0 && seen.missing == counted.read).then(|| match listed(&seen.fields) {
            Some(names) => format!("no line has `{field}`; the first one has {names}: name the key's with --key"),
            None => format!("no line has `{field}`; the first one has no fields"),
        })
    }
}

fn listed(fields: &[String]) -> Option<String> {
    let short = |name: &String| {
        let name: String = name.chars().take(LENGTH).flat_map(char::escape_debug).collect();
        format!("`{name}`")
    };
    let names: Vec<_> = fields.iter().take(NAMES).map(short).collect();
    let more = if fields.len() > NAMES { ", …" } else { "" };
    (!names.is_empty()).then(|| names.join(", ") + more)
}
