//! The command `purge`.
use idempotent_operate::OperateError;

use super::open_for_writing;
use crate::arguments::{Format, GlobalOptions, PurgeArguments};
use crate::output;
use crate::target::Access;

/// The number of records of one request, which a database removes within milliseconds.
const STEP: usize = 100;

/// Removes expired records until none is left, or until the limit.
pub(super) async fn purge(global: &GlobalOptions, arguments: &PurgeArguments) -> anyhow::Result<()> {
    let target = open_for_writing(global, Access::Write).await?;
    let purge = target.store.capabilities().purge;
    let purge = purge.ok_or(OperateError::Unsupported { action: "remove expired records" })?;
    let (limit, mut removed) = (arguments.limit as usize, 0);
    let is_done = loop {
        let step = STEP.min(limit - removed);
        if step == 0 {
            break false;
        }
        let count = purge.purge(step).await.map_err(OperateError::from)?;
        removed += count;
        if count < step {
            break true;
        }
    };
    if output::format(global.output) == Format::Table {
        let more = if is_done { "no expired record is left" } else { "more expired records may be left" };
        println!("removed {removed} records; {more}");
    } else {
        println!("{}", serde_json::json!({ "removed": removed, "done": is_done }));
    }
    Ok(())
}
