//! The commands for outboxes.
use std::io::{self, Write};

use anyhow::Context;
use idempotent::outbox::{OutboxErrorKind, OutboxStatus};
use idempotent_operate::{AuditTrail, OutboxChange};

use super::{OPENING, check_writable, within};
use crate::arguments::{
    Format, GlobalOptions, OutboxChangeArguments, OutboxCommand, OutboxListArguments, OutboxPurgeArguments,
    OutboxShowArguments, SHORTEST_AGE,
};
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outbox::{self, OutboxTarget};
use crate::output;
use crate::stop::StopRequest;

pub(super) async fn run(global: &GlobalOptions, command: &OutboxCommand, stop: &StopRequest) -> anyhow::Result<()> {
    let is_change = match command {
        OutboxCommand::Resend(change) | OutboxCommand::Void(change) => !change.change.dry_run,
        OutboxCommand::Purge(_) => true,
        OutboxCommand::Status(_) | OutboxCommand::List(_) | OutboxCommand::Show(_) => false,
    };
    if is_change {
        check_writable(global)?;
    }
    let target = within(Some(OPENING), outbox::open(global, command.place())).await?;
    let ended = match command {
        OutboxCommand::Status(_) => status(global, &target).await,
        OutboxCommand::List(arguments) => list(global, arguments, &target).await,
        OutboxCommand::Show(arguments) => show(global, arguments, &target).await,
        OutboxCommand::Resend(arguments) => change(OutboxChange::Resend, arguments, &target, stop).await,
        OutboxCommand::Void(arguments) => change(OutboxChange::Void, arguments, &target, stop).await,
        OutboxCommand::Purge(arguments) => purge(global, arguments, &target, stop).await,
    };
    ended.with_context(|| target.name)
}

/// The largest number that `status` counts.
const CAP: u32 = 10_000;

async fn status(global: &GlobalOptions, target: &OutboxTarget) -> anyhow::Result<()> {
    let backlog = target.outbox.backlog(CAP).await?;
    let counts = [
        ("unsent", backlog.unsent.into()),
        ("unconfirmed", backlog.unconfirmed.into()),
        ("due", backlog.due.into()),
        ("leased", backlog.leased.into()),
        ("held_back", backlog.held_back.into()),
        ("dead", backlog.dead.into()),
    ];
    Ok(output::counts(output::format(global.output), &counts, ("oldest_unsent", backlog.oldest_unsent))?)
}

async fn list(global: &GlobalOptions, arguments: &OutboxListArguments, target: &OutboxTarget) -> anyhow::Result<()> {
    use crate::arguments::OutboxStatusArgument as Status;

    let status = match arguments.status {
        Status::Unconfirmed => OutboxStatus::Unconfirmed,
        Status::Confirmed => OutboxStatus::Confirmed,
        Status::Void => OutboxStatus::Void,
        Status::Dead => OutboxStatus::Dead,
    };
    let entries = target.outbox.list(status, arguments.after, arguments.limit).await?;
    let format = output::format(global.output);
    output::outbox_entries(format, &entries)?;
    // A full page may be followed by another one.
    let is_full = entries.len() == arguments.limit as usize;
    let Some(last) = entries.last().filter(|_| is_full) else { return Ok(()) };
    if format == Format::Jsonl {
        writeln!(io::stdout(), "{}", serde_json::json!({ "next": last.record.seq }))?;
    } else {
        output::note(format_args!("the next page: --after {}", last.record.seq));
    }
    Ok(())
}

async fn show(global: &GlobalOptions, arguments: &OutboxShowArguments, target: &OutboxTarget) -> anyhow::Result<()> {
    let Some((record, message)) = target.outbox.inspect(&arguments.id).await? else {
        return Err(absent(&arguments.id).into());
    };
    let audit = target.outbox.audit(&arguments.id).await?;
    let shown = output::OutboxMessage {
        id: &arguments.id,
        record: &record,
        message: message.as_ref(),
        audit: &audit,
        shows_body: arguments.show_body,
    };
    output::outbox_message(output::format(global.output), &shown)
}

fn absent(id: &str) -> Failure {
    let id = idempotent_operate::escaped(id);
    Failure::NotFound(format!("no message has the id `{id}`: it was never written, or was purged"))
}

/// Resends or voids messages, each in its own transaction with the outbox's audit entry.
async fn change(
    change: OutboxChange,
    arguments: &OutboxChangeArguments,
    target: &OutboxTarget,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    let (options, ids) = (&arguments.change, &arguments.ids);
    let (by, reason) = options.author()?;
    let trail = AuditTrail::new(options.audit()?, (&by, reason), "cli", &target.name)?;
    let action = change.name();
    let warning = match change {
        OutboxChange::Void => "A copy that a consumer has received already may still take effect.",
        _ => "A consumer that has processed a message may receive it once more.",
    };
    for id in ids {
        check(target, id).await?;
    }
    if options.dry_run {
        output::note(format_args!("dry run: `{action}` would change {}", messages(ids.len())));
        return Ok(());
    }
    if !options.yes {
        confirm(&format!("The command `{action}` changes {}. {warning}", messages(ids.len()))).await?;
    }
    stop.finish_steps();
    let mut done = 0;
    for id in ids {
        if stop.is_requested() {
            break;
        }
        let intent = trail.begin(action, id)?;
        let changed = target.outbox.change(change, id, &by, reason).await;
        intent.end(changed.as_ref().map_or_else(|error| format!("failed: {error}"), |()| "done".to_owned()));
        changed.with_context(|| format!("message {} of {}", done + 1, ids.len()))?;
        done += 1;
    }
    output::note(format_args!("done: {action} of {done} of {}", messages(ids.len())));
    Ok(stop.check()?)
}

/// Returns the number with its noun.
fn messages(count: usize) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}

/// Refuses a message that cannot be changed, before any message is changed.
async fn check(target: &OutboxTarget, id: &str) -> anyhow::Result<()> {
    let (record, _) = target.outbox.inspect(id).await?.ok_or_else(|| absent(id))?;
    let status = match record.status {
        OutboxStatus::Unconfirmed | OutboxStatus::Dead => return Ok(()),
        OutboxStatus::Confirmed => "confirmed",
        _ => "void",
    };
    let id = idempotent_operate::escaped(id);
    Err(Failure::Refused(format!("the message `{id}` is {status}, so it is not changed; nothing was changed")).into())
}

/// The number of messages of one request.
const STEP: u32 = 1_000;

async fn purge(
    global: &GlobalOptions,
    arguments: &OutboxPurgeArguments,
    target: &OutboxTarget,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    if arguments.older_than < SHORTEST_AGE && !arguments.allow_resend {
        let why = "--older-than is less than 7 days, so an id may be removed while its message can still be written or delivered \
                   again: pass --allow-resend if that is intended";
        return Err(Failure::Refused(why.into()).into());
    }
    stop.finish_steps();
    let (mut removed, mut is_done) = (0, false);
    while removed < arguments.limit && !is_done && !stop.is_requested() {
        let step = STEP.min(arguments.limit - removed);
        let count = target.outbox.purge(arguments.older_than, step).await?;
        removed += u32::try_from(count).unwrap_or(step);
        is_done = count < step.into();
    }
    let mut out = io::stdout().lock();
    if output::format(global.output) == Format::Table {
        let more = if is_done { "no older message is left" } else { "more messages may be left" };
        writeln!(out, "removed {removed} messages; {more}")?;
    } else {
        writeln!(out, "{}", serde_json::json!({ "removed": removed, "done": is_done }))?;
    }
    Ok(stop.check()?)
}

/// Returns the exit code of an outbox's error.
pub(crate) fn code(kind: OutboxErrorKind) -> Option<Exit> {
    match kind {
        OutboxErrorKind::NotFound => Some(Exit::Absent),
        OutboxErrorKind::Invalid => Some(Exit::Usage),
        OutboxErrorKind::Conflict => Some(Exit::Refused),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_can_correct_has_an_exit_code() {
        for (kind, exit) in [
            (OutboxErrorKind::NotFound, Some(Exit::Absent)),
            (OutboxErrorKind::Invalid, Some(Exit::Usage)),
            (OutboxErrorKind::Conflict, Some(Exit::Refused)),
            (OutboxErrorKind::Database, None),
        ] {
            assert_eq!(code(kind), exit, "{kind:?}");
        }
    }
}
