//! The command `purge`.
use std::io::{self, Write};

use idempotent::store::Purge;
use idempotent_operate::OperateError;

use super::open_for_writing;
use crate::arguments::{Format, GlobalOptions, PurgeArguments};
use crate::output;
use crate::stop::StopRequest;
use crate::target::Access;

/// The number of records of one request, which a database removes within milliseconds.
const STEP: usize = 100;

/// Removes expired records until none is left, until the limit, or until a signal.
pub(super) async fn purge(
    global: &GlobalOptions,
    arguments: &PurgeArguments,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    let target = open_for_writing(global, Access::Write).await?;
    let purge = target.store.capabilities().purge;
    let purge = purge.ok_or(OperateError::Unsupported { action: "remove expired records" })?;
    stop.finish_steps();
    loop {
        let (removed, is_done) = in_steps(purge, arguments.limit as usize, stop).await?;
        print(output::format(global.output), removed, is_done)?;
        let Some(interval) = arguments.every else { break };
        stop.wait(interval).await;
        if stop.is_requested() {
            break;
        }
    }
    Ok(stop.check()?)
}

fn print(format: Format, removed: usize, is_done: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Table {
        let more = if is_done { "no expired record is left" } else { "more expired records may be left" };
        writeln!(out, "removed {removed} records; {more}")
    } else {
        writeln!(out, "{}", serde_json::json!({ "removed": removed, "done": is_done }))
    }
}

/// Returns the number of removed records, and whether no expired record is left.
async fn in_steps(purge: &dyn Purge, limit: usize, stop: &StopRequest) -> Result<(usize, bool), OperateError> {
    let mut removed = 0;
    while !stop.is_requested() {
        let step = STEP.min(limit - removed);
        if step == 0 {
            break;
        }
        let count = purge.purge(step).await?;
        removed += count;
        if count < step {
            return Ok((removed, true));
        }
    }
    Ok((removed, false))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use idempotent::StoreError;

    use super::*;
    use crate::failure::Signal;

    /// A store with many expired records, which requests a stop in one of its steps.
    #[derive(Debug)]
    struct Expired {
        steps: Mutex<Vec<usize>>,
        left: Mutex<usize>,
        stop: (usize, StopRequest),
    }

    #[async_trait]
    impl Purge for Expired {
        async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
            let (mut steps, mut left) = (self.steps.lock().unwrap(), self.left.lock().unwrap());
            let removed = at_most.min(*left);
            *left -= removed;
            steps.push(removed);
            if steps.len() == self.stop.0 {
                self.stop.1.request(Signal::Interrupt);
            }
            Ok(removed)
        }
    }

    async fn purged(left: usize, limit: usize, stop_in: usize) -> ((usize, bool), Vec<usize>) {
        let stop = StopRequest::default();
        let store = Expired { steps: Mutex::default(), left: Mutex::new(left), stop: (stop_in, stop.clone()) };
        let result = in_steps(&store, limit, &stop).await.unwrap();
        (result, store.steps.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_purge_ends_with_the_last_record_at_its_limit_or_after_the_step_of_a_signal() {
        assert_eq!(purged(250, 1_000, 0).await, ((250, true), vec![100, 100, 50]));
        assert_eq!(purged(500, 150, 0).await, ((150, false), vec![100, 50]));
        assert_eq!(purged(500, 1_000, 2).await, ((200, false), vec![100, 100]));
    }
}
