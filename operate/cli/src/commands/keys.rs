//! Commands that show keys.
use std::io::{self, Write};
use std::num::NonZeroU32;

use idempotent_operate::{PageLimits, RecordSummary};

use super::open;
use crate::arguments::{Format, GlobalOptions, KeyArguments, ListArguments};
use crate::failure::Failure;
use crate::output;

pub(super) async fn inspect(global: &GlobalOptions, arguments: &KeyArguments) -> anyhow::Result<()> {
    let key = arguments.address(&global.namespace)?.key()?;
    let target = open(global).await?;
    match idempotent_operate::inspect(&*target.store, &key).await? {
        Some(record) => Ok(output::record(output::format(global.output), &record)?),
        None => Err(absent(key.as_str())),
    }
}

/// Creates the error for an absent key.
pub(super) fn absent(key: &str) -> anyhow::Error {
    let why = "absent: the key was never claimed, has expired, or was deleted after a failure";
    Failure::NotFound(format!("`{key}` is {why}")).into()
}

pub(super) async fn list(global: &GlobalOptions, arguments: &ListArguments) -> anyhow::Result<()> {
    let filter = arguments.filter.filter(&global.namespace);
    let target = open(global).await?;
    let format = output::format(global.output);
    let limits = PageLimits { keys: arguments.limit as usize, examined: arguments.budget as usize };
    let rate = NonZeroU32::new(arguments.rate).filter(|_| arguments.all);
    let mut after = arguments.after;
    loop {
        let page = idempotent_operate::list_paced(&*target.store, &filter, after, limits, rate).await?;
        let records: Vec<RecordSummary> = page.keys.into_iter().map(|(_, record)| record).collect();
        output::records(format, &records, &page.unreadable)?;
        after = page.next;
        match after {
            Some(_) if arguments.all => {}
            Some(cursor) => return Ok(print_cursor(format, cursor, page.examined)?),
            None => return Ok(()),
        }
    }
}

/// Prints the cursor of the next page: in JSON as the last object, otherwise on stderr.
fn print_cursor(format: Format, cursor: u128, examined: usize) -> io::Result<()> {
    let cursor = format!("{cursor:032x}");
    if format == Format::Jsonl {
        writeln!(io::stdout(), "{}", serde_json::json!({ "next": cursor, "examined": examined }))
    } else {
        writeln!(io::stderr(), "examined {examined} records; the next page: --after {cursor}")
    }
}
