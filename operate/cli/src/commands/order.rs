//! The commands `order list` and `order show`.
use idempotent::ordering::StreamView;
use idempotent::{Key, Store};
use idempotent_operate::{OperateError, StateName, StreamSummary};

use super::open;
use crate::arguments::{GlobalOptions, KeyArguments, OrderCommand, OrderListArguments};
use crate::failure::Failure;
use crate::output::{self, BlockingCall};

pub(super) async fn run(global: &GlobalOptions, command: &OrderCommand) -> anyhow::Result<()> {
    match command {
        OrderCommand::List(arguments) => list(global, arguments).await,
        OrderCommand::Show(arguments) => show(global, arguments).await,
    }
}

/// The number of streams of one request.
const PAGE: usize = 1_000;

async fn list(global: &GlobalOptions, arguments: &OrderListArguments) -> anyhow::Result<()> {
    let target = open(global).await?;
    let action = "list its streams without reading the keys of all records: name a stream by `idempotent order show`";
    let browse = target.store.capabilities().browse_order.ok_or(OperateError::Unsupported { action })?;
    let (limit, mut left) = (arguments.limit as usize, arguments.budget as usize);
    let (mut streams, mut unreadable, mut after) = (Vec::new(), 0_u64, None);
    let is_cut = loop {
        let page = browse.browse_order(after, PAGE.min(left)).await?;
        left -= page.tables.len().min(left);
        for table in &page.tables {
            match StreamView::decode(table) {
                Ok(view) if arguments.all || view.first_waiting().is_some() => {
                    streams.push(StreamSummary::new(&view, page.now));
                }
                Ok(_) => {}
                Err(_) => unreadable += 1,
            }
        }
        after = page.next;
        match after {
            None => break streams.len() > limit,
            Some(_) if streams.len() >= limit || left == 0 => break true,
            Some(_) => {}
        }
    };
    streams.truncate(limit);
    let mut rows = Vec::with_capacity(streams.len());
    for stream in streams {
        let call = blocking_call(&*target.store, &stream).await?;
        rows.push((stream, call));
    }
    output::streams(output::format(global.output), &rows)?;
    if is_cut {
        output::note("there may be more streams: raise --limit or --budget");
    }
    match unreadable {
        0 => Ok(()),
        _ => Err(Failure::Unfit(format!("{unreadable} streams have no readable order table of this version")).into()),
    }
}

async fn show(global: &GlobalOptions, arguments: &KeyArguments) -> anyhow::Result<()> {
    let stream = arguments.address(&global.namespace)?.key()?;
    let target = open(global).await?;
    let order = target.store.capabilities().order;
    let order = order.ok_or(OperateError::Unsupported { action: "store the order of streams" })?;
    let (view, now) = StreamView::load(order, &stream).await?;
    let absent = || {
        let why = "no number was registered or admitted, or the order has expired";
        Failure::NotFound(format!("the stream `{}` has no order: {why}", stream.as_str()))
    };
    let summary = StreamSummary::new(&view.ok_or_else(absent)?, now);
    let call = blocking_call(&*target.store, &summary).await?;
    output::stream(output::format(global.output), &summary, call.as_ref())?;
    if let Some(next) = summary.next {
        let call = summary.blocked_by.as_deref().zip(call.map(|call| call.state));
        output::note(advice(next, summary.blocked_by_number, call));
    }
    Ok(())
}

/// Reads the record of the call that blocks a stream.
async fn blocking_call(store: &dyn Store, stream: &StreamSummary) -> anyhow::Result<Option<BlockingCall>> {
    let Some(key) = stream.blocked_by.as_deref().and_then(Key::from_text) else { return Ok(None) };
    let call = match idempotent_operate::inspect(store, &key).await? {
        Some(record) => BlockingCall { state: record.state.text(), display: record.display },
        None => BlockingCall { state: "absent", display: None },
    };
    Ok(Some(call))
}

/// Returns the next step for a stream whose number `next` waits: for a number, or for a call with its key and state.
fn advice(next: u64, number: Option<u64>, call: Option<(&str, &str)>) -> String {
    let is = |name: StateName| call.is_some_and(|(_, state)| state == name.text());
    match (number, call) {
        (Some(number), _) => {
            format!("number {next} waits for number {number}, which was not delivered: send its message")
        }
        (None, Some((key, _))) if is(StateName::Failed) || is(StateName::Dead) => {
            format!("`idempotent forget '{key}'` makes the call claimable, so that its next delivery runs")
        }
        (None, Some(_)) if is(StateName::Consuming) => format!("number {next} waits for a call that is running"),
        (None, Some(_)) if !is(StateName::Consumed) => {
            format!("number {next} waits for the next delivery of that call")
        }
        _ => format!("number {next} runs with its next delivery"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_each_state_of_the_blocking_call_is_its_own() {
        let call = |state: StateName| advice(8, None, Some(("k", state.text())));
        assert_eq!(advice(8, Some(7), None), "number 8 waits for number 7, which was not delivered: send its message");
        let forget = "`idempotent forget 'k'` makes the call claimable, so that its next delivery runs";
        assert_eq!([call(StateName::Failed), call(StateName::Dead)], [forget; 2]);
        assert_eq!(call(StateName::Consuming), "number 8 waits for a call that is running");
        assert_eq!(call(StateName::Vacant), "number 8 waits for the next delivery of that call");
        let runs = "number 8 runs with its next delivery";
        assert_eq!([call(StateName::Consumed), advice(8, None, None)], [runs; 2]);
    }
}
