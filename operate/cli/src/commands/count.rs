//! The command `count`.
use std::collections::BTreeMap;

use idempotent_operate::PageLimits;

use super::open;
use crate::arguments::{CountArguments, Format, GlobalOptions};
use crate::output;

/// Counts keys by their state. The counts are lower bounds if the budget ends first.
pub(super) async fn count(global: &GlobalOptions, arguments: &CountArguments) -> anyhow::Result<()> {
    let filter = arguments.filter.filter(&global.namespace);
    let target = open(global).await?;
    let (budget, mut examined, mut after) = (arguments.budget as usize, 0, None);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let is_exact = loop {
        let limits = PageLimits { keys: 1_000, examined: (budget - examined).min(1_000) };
        let page = idempotent_operate::list(&*target.store, &filter, after, limits).await?;
        for (_, record) in &page.keys {
            *counts.entry(output::state(record.state)).or_default() += 1;
        }
        (examined, after) = (examined + page.examined, page.next);
        match after {
            None => break true,
            Some(_) if examined >= budget => break false,
            Some(_) => {}
        }
    };
    if output::format(global.output) == Format::Table {
        for (state, count) in &counts {
            println!("{state:<10}{}{count}", if is_exact { "" } else { "at least " });
        }
        println!("examined  {examined}");
    } else {
        println!("{}", serde_json::json!({ "counts": counts, "exact": is_exact, "examined": examined }));
    }
    Ok(())
}
