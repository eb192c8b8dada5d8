//! The command `count`.
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZeroU32;

use idempotent_operate::PageLimits;

use super::open;
use crate::arguments::{CountArguments, Format, GlobalOptions};
use crate::output;

/// The counts of keys by their state.
#[derive(Debug, Default)]
struct StateCounts {
    counts: BTreeMap<&'static str, u64>,
    examined: usize,
    /// False if the counts are lower bounds.
    is_exact: bool,
}

/// The number of examined records between two lines of progress: 10 seconds at the default rate.
const PROGRESS: usize = 50_000;

/// Counts keys by their state. The counts are lower bounds if the budget ends first.
pub(super) async fn count(global: &GlobalOptions, arguments: &CountArguments) -> anyhow::Result<()> {
    let filter = arguments.filter.filter(&global.namespace);
    let target = open(global).await?;
    let (budget, rate, mut after) = (arguments.budget as usize, NonZeroU32::new(arguments.rate), None);
    let (mut counted, mut noted) = (StateCounts::default(), PROGRESS);
    while counted.examined < budget {
        let limits = PageLimits { keys: PageLimits::MOST_KEYS, examined: (budget - counted.examined).min(PROGRESS) };
        let page = idempotent_operate::list_paced(&*target.store, &filter, after, limits, rate).await?;
        for (_, record) in &page.keys {
            *counted.counts.entry(record.state.text()).or_default() += 1;
        }
        if !page.unreadable.is_empty() {
            *counted.counts.entry("unreadable").or_default() += page.unreadable.len() as u64;
        }
        (counted.examined, after) = (counted.examined + page.examined, page.next);
        if after.is_none() {
            counted.is_exact = true;
            break;
        }
        if counted.examined >= noted && !global.quiet {
            output::note(format_args!("{} records so far", counted.examined));
            noted = counted.examined + PROGRESS;
        }
    }
    Ok(print(output::format(global.output), &counted)?)
}

fn print(format: Format, counted: &StateCounts) -> io::Result<()> {
    let StateCounts { counts, examined, is_exact } = counted;
    let mut out = io::stdout().lock();
    if format != Format::Table {
        return writeln!(out, "{}", serde_json::json!({ "counts": counts, "exact": is_exact, "examined": examined }));
    }
    for (state, count) in counts {
        writeln!(out, "{state:<11}{}{count}", if *is_exact { "" } else { "at least " })?;
    }
    writeln!(out, "{:<11}{examined}", "examined")
}
