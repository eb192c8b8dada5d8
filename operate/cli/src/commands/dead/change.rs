//! The commands that change dead letters: `redrive` and `discard`.
use std::io::{self, Write};
use std::num::NonZeroU32;

use idempotent::mq::{Redrive, RedriveSummary};
use idempotent_operate::{LetterFilter, LetterSummary, RedriveOutcome, Redriver};

use super::super::{open, open_for_writing};
use crate::arguments::{ChangeOptions, DiscardArguments, Format, GlobalOptions, RedriveArguments};
use crate::confirm::confirm;
use crate::failure::Failure;
use crate::output;
use crate::queue::Queue;
use crate::stop::StopRequest;
use crate::target::Access;

/// A change of dead letters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LetterChange {
    Redrive,
    Discard,
}

/// The letters that a command changes.
struct Selection {
    filter: LetterFilter,
    /// The description for the confirmation and for the audit log.
    text: String,
}

pub(super) async fn redrive(
    global: &GlobalOptions,
    arguments: &RedriveArguments,
    queue: &mut Queue,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    check_writable(global, &arguments.change)?;
    let mut redrive = Redrive::new();
    if let Some(rate) = NonZeroU32::new(arguments.rate) {
        redrive = redrive.rate(rate);
    }
    if arguments.let_go {
        let store = match arguments.change.dry_run {
            true => open(global).await?,
            false => open_for_writing(global, Access::Write).await?,
        };
        redrive = redrive.letting_go(store.store);
    }
    let keys = arguments.let_go.then(|| "let go".to_owned());
    let more = [("rate", Some(arguments.rate.to_string())), ("keys", keys)];
    let selection = select(arguments.filter(), arguments.limit, &more, queue).await?;
    let redrive = redrive.limit(arguments.limit.map_or(u64::MAX, u64::from));
    change(global, LetterChange::Redrive, (redrive, &selection), &arguments.change, (queue, stop)).await
}

pub(super) async fn discard(
    global: &GlobalOptions,
    arguments: &DiscardArguments,
    queue: &mut Queue,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    check_writable(global, &arguments.change)?;
    let selection = select(arguments.filter.filter(), arguments.limit, &[], queue).await?;
    let redrive = Redrive::new().limit(arguments.limit.map_or(u64::MAX, u64::from));
    change(global, LetterChange::Discard, (redrive, &selection), &arguments.change, (queue, stop)).await
}

fn check_writable(global: &GlobalOptions, options: &ChangeOptions) -> Result<(), Failure> {
    match global.read_only && !options.dry_run {
        true => Err(Failure::Refused("--read-only forbids this command".into())),
        false => Ok(()),
    }
}

/// Describes the letters that a command changes.
async fn select(
    filter: LetterFilter,
    limit: Option<u32>,
    more: &[(&str, Option<String>)],
    queue: &mut Queue,
) -> anyhow::Result<Selection> {
    let mut text = limit.map_or_else(String::new, |limit| format!("at most {limit} of "));
    text += &format!("{} dead letters", queue.letters.count().await?);
    let ids = filter.ids.iter().cloned().collect::<Vec<_>>().join(", ");
    let conditions = [
        ("id", Some(ids).filter(|ids| !ids.is_empty())),
        ("cause", filter.cause.clone()),
        ("died before", filter.died_before.map(|time| format!("{} µs", time.0))),
        ("died after", filter.died_after.map(|time| format!("{} µs", time.0))),
        ("min attempts", filter.min_attempts.map(|least| least.to_string())),
        ("min deaths", filter.min_deaths.map(|least| least.to_string())),
        ("max deaths", filter.max_deaths.map(|most| most.to_string())),
    ];
    for (name, value) in conditions.iter().chain(more) {
        text.extend(value.iter().map(|value| format!(", {name} {value}")));
    }
    Ok(Selection { filter, text: idempotent_operate::escaped(&text) })
}

/// The number of letters between two lines of progress.
const PROGRESS: usize = 100;

/// Changes the selected letters, or shows them for a dry run.
async fn change(
    global: &GlobalOptions,
    change: LetterChange,
    (redrive, selection): (Redrive, &Selection),
    options: &ChangeOptions,
    (queue, stop): (&mut Queue, &StopRequest),
) -> anyhow::Result<()> {
    let (by, reason) = options.author()?;
    let redriver = Redriver::new(options.audit()?, (&by, reason), "cli", &queue.name)?;
    let Selection { filter, text } = selection;
    if options.dry_run {
        let redrive = if change == LetterChange::Discard { redrive.discarding() } else { redrive };
        let outcome = Redriver::dry_run(redrive, filter, &mut *queue.letters).await;
        let found = some_letter(filter, &outcome);
        report(global, change, outcome, true)?;
        return found;
    }
    if !options.yes {
        let question = match change {
            LetterChange::Redrive => {
                format!("Put back {text} into {}? The handlers of the messages run again.", queue.name)
            }
            LetterChange::Discard => format!("Remove {text} of {} for good? The messages are lost.", queue.name),
        };
        confirm(&question).await?;
    }
    stop.finish_steps();
    let stopping = stop.clone();
    let redrive = redrive.stop_if(move || stopping.is_requested());
    let is_quiet = global.quiet;
    let progress = move |done: usize| {
        if done.is_multiple_of(PROGRESS) && !is_quiet {
            output::note(format_args!("{done} letters so far"));
        }
    };
    let outcome = match change {
        LetterChange::Redrive => redriver.run(redrive, (filter, text), &mut *queue.letters, progress).await?,
        LetterChange::Discard => redriver.discard(redrive, (filter, text), &mut *queue.letters, progress).await?,
    };
    let found = some_letter(filter, &outcome);
    report(global, change, outcome, false)?;
    stop.check()?;
    found
}

/// Returns an error if the command names letters by their ids, and none of them is there.
fn some_letter(filter: &LetterFilter, outcome: &RedriveOutcome) -> anyhow::Result<()> {
    if filter.ids.is_empty() || !outcome.letters.is_empty() || outcome.summary.failed.is_some() {
        return Ok(());
    }
    let ids = filter.ids.iter().map(|id| format!("`{}`", idempotent_operate::escaped(id))).collect::<Vec<_>>();
    let why = format!("no dead letter has the id {}; `idempotent dead list` prints the ids", ids.join(" or "));
    Err(Failure::NotFound(why).into())
}

/// Prints the letters and the summary of a change. Returns the error that ended it.
fn report(
    global: &GlobalOptions,
    change: LetterChange,
    outcome: RedriveOutcome,
    is_dry_run: bool,
) -> anyhow::Result<()> {
    let RedriveOutcome { summary, letters, audit_failed, .. } = outcome;
    let printed = print(output::format(global.output), change, &summary, &letters, is_dry_run);
    // A closed stdout does not hide the failure.
    if let Some(error) = audit_failed {
        let why = "the result of the last letter is missing in the audit log, so the command ended early";
        return Err(anyhow::anyhow!("{why}: {error}"));
    }
    let Some(error) = summary.failed else { return printed };
    let error = anyhow::Error::new(error);
    Err(match change {
        LetterChange::Redrive => error.context("the redrive ended early; the letter is still a dead letter"),
        LetterChange::Discard => error.context("the command ended early; the letter may still be a dead letter"),
    })
}

fn print(
    format: Format,
    change: LetterChange,
    summary: &RedriveSummary,
    letters: &[(LetterSummary, String)],
    is_dry_run: bool,
) -> anyhow::Result<()> {
    output::letters(format, letters.iter().map(|(letter, outcome)| (letter, Some(outcome.as_str()))))?;
    let (skipped, gone) = (summary.skipped, summary.gone);
    if summary.unread > 0 {
        let why = "another reader holds them; close it, and repeat the command";
        output::note(format_args!("{} counted letters could not be read: {why}", summary.unread));
    }
    let (count, name, done) = match change {
        LetterChange::Redrive if is_dry_run => (summary.put_back, "put_back", "would be put back"),
        LetterChange::Redrive => (summary.put_back, "put_back", "put back"),
        LetterChange::Discard if is_dry_run => (summary.discarded, "discarded", "would be removed"),
        LetterChange::Discard => (summary.discarded, "discarded", "removed"),
    };
    let mut out = io::stdout().lock();
    if format == Format::Jsonl {
        let failed = summary.failed.as_ref().map(ToString::to_string);
        let counts = serde_json::json!({
            (name): count, "skipped": skipped, "gone": gone, "unread": summary.unread, "failed": failed,
            "stopped": summary.is_stopped,
        });
        writeln!(out, "{counts}")?;
    } else {
        writeln!(out, "{count} {done}, {skipped} skipped by the conditions, {gone} gone")?;
    }
    Ok(())
}
