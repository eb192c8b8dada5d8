//! The commands that change dead letters: `redrive` and `discard`.
use std::io::{self, Write};
use std::num::NonZeroU32;

use idempotent::mq::{Redrive, RedriveSummary};
use idempotent_operate::{LetterFilter, LetterSummary, RedriveOutcome, Redriver, escaped};

use super::super::{check_writable, open, open_for_writing};
use crate::arguments::{ChangeOptions, DiscardArguments, Format, GlobalOptions, PutBackOptions, RedriveArguments};
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
    /// The description for the audit log, which names all letters that the command names, and where they go if not to their queue.
    text: String,
    /// The word between the description and the name of the queue.
    before_name: &'static str,
}

pub(super) async fn redrive(
    global: &GlobalOptions,
    arguments: &RedriveArguments,
    queue: &mut Queue,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    if !arguments.change.dry_run {
        check_writable(global)?;
    }
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
    let PutBackOptions { to, without_unreadable_headers } = &arguments.put_back;
    let headers = without_unreadable_headers.then(|| "without unreadable ones".to_owned());
    let rate = Some(arguments.rate.to_string());
    let more = [("rate", rate), ("keys", keys), ("headers", headers), ("into", to.clone())];
    let mut selection = select(arguments.filter(), arguments.limit, &more, queue).await?;
    if to.is_some() {
        selection.before_name = "from";
    }
    let redrive = redrive.limit(arguments.limit.map_or(u64::MAX, u64::from));
    change(global, LetterChange::Redrive, (redrive, &selection), &arguments.change, (queue, stop)).await
}

pub(super) async fn discard(
    global: &GlobalOptions,
    arguments: &DiscardArguments,
    queue: &mut Queue,
    stop: &StopRequest,
) -> anyhow::Result<()> {
    if !arguments.change.dry_run {
        check_writable(global)?;
    }
    let selection = select(arguments.filter.filter(), arguments.limit, &[], queue).await?;
    let redrive = Redrive::new().limit(arguments.limit.map_or(u64::MAX, u64::from));
    change(global, LetterChange::Discard, (redrive, &selection), &arguments.change, (queue, stop)).await
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
    let ids = filter.ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let conditions = [
        ("id", Some(ids).filter(|ids| !ids.is_empty())),
        ("message id", filter.message_id.clone()),
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
    Ok(Selection { filter, text, before_name: "into" })
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
    let Selection { filter, text, before_name } = selection;
    if options.dry_run {
        let redrive = if change == LetterChange::Discard { redrive.discarding() } else { redrive };
        let outcome = Redriver::dry_run(redrive, filter, &mut *queue.letters).await;
        return report(global, change, outcome, filter, true);
    }
    if !options.yes {
        let text = escaped(text);
        let question = match change {
            LetterChange::Redrive => {
                format!("Put back {text} {before_name} {}? The handlers of the messages run again.", queue.name)
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
    report(global, change, outcome, filter, false)?;
    Ok(stop.check()?)
}

/// Returns an error if letters stay that the command names, or that it selects and cannot change.
fn all_changed(change: LetterChange, filter: &LetterFilter, outcome: &RedriveOutcome) -> Result<(), Failure> {
    let passed_by = outcome.summary.passed_by;
    if passed_by > 0 {
        let (what, remedy) = match change {
            LetterChange::Redrive => ("put back", "or remove them by `dead discard`"),
            LetterChange::Discard => ("removed", "and use the broker's own tools"),
        };
        return Err(Failure::Unfit(format!(
            "letters that cannot be {what}: {passed_by}; see their outcomes, {remedy}"
        )));
    }
    match outcome.missing(filter).iter().map(|id| format!("`{}`", escaped(&id.to_string()))).collect::<Vec<_>>() {
        ids if ids.is_empty() || outcome.summary.unread > 0 => Ok(()),
        ids => {
            let ids = ids.join(" or ");
            Err(Failure::NotFound(format!("no dead letter has the id {ids}; `idempotent dead list` prints the ids")))
        }
    }
}

/// Prints the letters and the summary of a change. Returns the error that ended it.
fn report(
    global: &GlobalOptions,
    change: LetterChange,
    outcome: RedriveOutcome,
    filter: &LetterFilter,
    is_dry_run: bool,
) -> anyhow::Result<()> {
    let all_changed = all_changed(change, filter, &outcome);
    let RedriveOutcome { summary, letters, audit_failed, .. } = outcome;
    let printed = print(output::format(global.output), change, &summary, &letters, is_dry_run);
    // A closed stdout does not hide the failure.
    if let Some(error) = audit_failed {
        let why = "the result of the last letter is missing in the audit log, so the command ended early";
        return Err(anyhow::anyhow!("{why}: {error}"));
    }
    let Some(error) = summary.failed else { return printed.and(all_changed.map_err(Into::into)) };
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
    if let Some(note) = unread(summary.unread) {
        output::note(note);
    }
    Ok(writeln!(io::stdout().lock(), "{}", totals(format, change, summary, is_dry_run))?)
}

/// Returns the note about counted letters that could not be read.
fn unread(count: u64) -> Option<String> {
    let why = "another reader holds them; close it, and repeat the command";
    (count > 0).then(|| format!("{count} counted letters could not be read: {why}"))
}

/// Returns the last line of the output.
fn totals(format: Format, change: LetterChange, summary: &RedriveSummary, is_dry_run: bool) -> String {
    let RedriveSummary { skipped, gone, passed_by, .. } = summary;
    let (count, name, done) = match change {
        LetterChange::Redrive if is_dry_run => (summary.put_back, "put_back", "would be put back"),
        LetterChange::Redrive => (summary.put_back, "put_back", "put back"),
        LetterChange::Discard if is_dry_run => (summary.discarded, "discarded", "would be removed"),
        LetterChange::Discard => (summary.discarded, "discarded", "removed"),
    };
    if format == Format::Jsonl {
        let failed = summary.failed.as_ref().map(ToString::to_string);
        let counts = serde_json::json!({
            (name): count, "skipped": skipped, "gone": gone, "passed_by": passed_by, "unread": summary.unread,
            "failed": failed, "stopped": summary.is_stopped,
        });
        return counts.to_string();
    }
    let passed_by = if *passed_by > 0 { format!(", {passed_by} passed by") } else { String::new() };
    format!("{count} {done}, {skipped} skipped by the conditions, {gone} gone{passed_by}")
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use async_trait::async_trait;
    use clap::Parser;
    use idempotent::Timestamp;
    use idempotent::mq::{DeadLetter, DeadLetters, Delivery, Position, SourceError, SourceErrorKind, StoredLetter};

    use super::*;
    use crate::arguments::{Arguments, Command, DeadCommand};

    #[test]
    fn letters_that_could_not_be_read_are_noted() {
        assert_eq!(unread(0), None);
        assert!(unread(2).is_some_and(|note| note.starts_with("2 counted letters")));
    }

    /// Three letters, of which the first one is refused. Another reader holds the last ones.
    struct Letters {
        read: u32,
        readable: u32,
    }

    #[async_trait]
    impl DeadLetters for Letters {
        async fn count(&mut self) -> Result<u64, SourceError> {
            Ok(3)
        }

        async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
            if self.read == self.readable {
                return Ok(None);
            }
            self.read += 1;
            let delivery = Delivery::new(Position::of("orders"), Vec::new());
            Ok(Some(StoredLetter::at(self.read, delivery, Some(DeadLetter::because("no stock", Timestamp(9))))))
        }

        async fn put_back(&mut self) -> Result<bool, SourceError> {
            match self.read {
                1 => Err(SourceError::new(SourceErrorKind::Refused, "the queue is unknown")),
                _ => Ok(true),
            }
        }

        async fn discard(&mut self) -> Result<bool, SourceError> {
            self.put_back().await
        }
    }

    async fn run(readable: u32, arguments: &[&str]) -> anyhow::Result<()> {
        let common = ["--queue", "amqp://localhost", "--name", "orders", "--by", "ann", "--reason", "why", "--yes"];
        let arguments = Arguments::try_parse_from([&["idempotent", "dead"], arguments, &common].concat()).unwrap();
        let mut queue = Queue { letters: Box::new(Letters { read: 0, readable }), name: "orders".to_owned() };
        let stop = StopRequest::default();
        match &arguments.command {
            Command::Dead(DeadCommand::Redrive(command)) => {
                redrive(&arguments.global, command, &mut queue, &stop).await
            }
            Command::Dead(DeadCommand::Discard(command)) => {
                discard(&arguments.global, command, &mut queue, &stop).await
            }
            _ => panic!("another command"),
        }
    }

    #[tokio::test]
    async fn a_letter_that_is_passed_by_ends_the_command_with_an_error_after_the_others() {
        for command in ["redrive", "discard"] {
            let failed = run(3, &[command, "--limit", "3"]).await.unwrap_err();
            let text = failed.downcast_ref::<Failure>();
            assert!(
                matches!(text, Some(Failure::Unfit(text)) if text.starts_with("letters that cannot be ") && text.contains(": 1; ")),
                "{failed}"
            );
            run(3, &[command, "--id", "2@9", "--id", "3@9"]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_letter_that_another_reader_may_hold_is_not_missing() {
        run(2, &["redrive", "--id", "4@9"]).await.unwrap();
        let missing = run(3, &["redrive", "--id", "4@9"]).await.unwrap_err();
        assert!(matches!(missing.downcast_ref(), Some(Failure::NotFound(_))), "{missing}");
    }

    #[test]
    fn the_totals_name_what_was_done_or_would_be_done() {
        let mut summary = RedriveSummary::default();
        (summary.put_back, summary.discarded, summary.skipped, summary.gone) = (4, 5, 6, 7);
        let text = |change, summary: &_, is_dry_run| totals(Format::Table, change, summary, is_dry_run);
        let rest = "6 skipped by the conditions, 7 gone";
        for (change, is_dry_run, done) in [
            (LetterChange::Redrive, true, "4 would be put back"),
            (LetterChange::Redrive, false, "4 put back"),
            (LetterChange::Discard, true, "5 would be removed"),
            (LetterChange::Discard, false, "5 removed"),
        ] {
            assert_eq!(text(change, &summary, is_dry_run), format!("{done}, {rest}"));
        }
        summary.passed_by = 1;
        assert_eq!(text(LetterChange::Redrive, &summary, false), format!("4 put back, {rest}, 1 passed by"));
    }
}
