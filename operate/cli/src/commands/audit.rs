//! The command `audit`.
use std::io::{self, Write};

use anyhow::Context;
use idempotent_operate::{AuditReader, escaped};

use crate::arguments::{AuditArguments, Format, GlobalOptions};
use crate::failure::Failure;
use crate::output;

/// Prints the changes in an audit file, with `unknown` as the outcome of an intent without a result.
pub(super) fn audit(global: &GlobalOptions, arguments: &AuditArguments) -> anyhow::Result<()> {
    let shown = arguments.audit.display().to_string();
    let reader = AuditReader::open(&arguments.audit).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(format!("the audit file `{shown}` does not exist")).into(),
        _ => anyhow::Error::new(error).context(format!("cannot read the audit file `{shown}`")),
    })?;
    let (filter, format) = (arguments.filter(), output::format(global.output));
    let mut out = io::stdout().lock();
    for entry in reader.entries().with_context(|| format!("cannot read the audit file `{shown}`"))? {
        let entry = entry?;
        if !filter.matches(&entry) {
            continue;
        }
        if format == Format::Table {
            let outcome = entry.outcome.as_deref().unwrap_or_default();
            let [by, subject, outcome, reason] =
                [entry.by.as_str(), entry.subject.as_str(), outcome, entry.reason.as_str()].map(escaped);
            writeln!(
                out,
                "{}  {:<8} {by}  {subject}  {outcome}  ({reason})",
                escaped(&entry.at),
                escaped(&entry.action)
            )?;
        } else if format == Format::Key {
            writeln!(out, "{}", escaped(&entry.subject))?;
        } else {
            writeln!(out, "{}", serde_json::to_string(&entry)?)?;
        }
    }
    match reader.unreadable() {
        [] => Ok(()),
        [first, ..] => {
            let lines = reader.unreadable().len();
            let why =
                format!("{lines} lines of `{shown}` contain no entry, such as line {first}; the others are complete");
            Err(Failure::Unfit(why).into())
        }
    }
}
