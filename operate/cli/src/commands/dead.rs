//! The commands for dead letters.
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context;
use idempotent::mq::Redrive;
use idempotent_operate::{LetterFilter, LetterSummary, RedriveOutcome, Redriver};

use super::{OPENING, open_for_writing, within};
use crate::arguments::{
    DeadCommand, Format, GlobalOptions, LetterArguments, QueueOptions, RedriveArguments, ShowArguments,
};
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::output;
use crate::queue::{self, Queue};
use crate::target::Access;

/// Runs a command for dead letters. Letters that were read and not put back return to their place.
pub(super) async fn run(global: &GlobalOptions, command: &DeadCommand) -> anyhow::Result<()> {
    let options = match command {
        DeadCommand::List(list) => &list.queue,
        DeadCommand::Show(show) => &show.queue,
        DeadCommand::Redrive(redrive) => &redrive.queue,
    };
    let mut queue = open(global, options).await?;
    let ended = match command {
        DeadCommand::List(arguments) => list(global, arguments, &mut queue).await,
        DeadCommand::Show(arguments) => show(global, arguments, &mut queue).await,
        DeadCommand::Redrive(arguments) => redrive(global, arguments, &mut queue).await,
    };
    queue.letters.close().await;
    ended.with_context(|| queue.name.clone())
}

async fn open(global: &GlobalOptions, options: &QueueOptions) -> anyhow::Result<Queue> {
    within(Some(OPENING), queue::open(options, &global.namespace)).await
}

async fn list(global: &GlobalOptions, arguments: &LetterArguments, queue: &mut Queue) -> anyhow::Result<()> {
    let (filter, most) = (arguments.filter.filter(), arguments.limit as usize);
    let there = queue.letters.count().await?;
    let mut found = Vec::new();
    let mut read = 0;
    while read < there && found.len() < most {
        let Some((delivery, letter)) = queue.letters.next().await? else { break };
        read += 1;
        if filter.matches(&delivery, letter.as_ref()) {
            found.push(LetterSummary::new(read, &delivery, letter.as_ref()));
        }
    }
    output::letters(output::format(global.output), found.iter().map(|letter| (letter, None)))?;
    eprintln!("{} letters; read {read} of {there} dead letters of {}", found.len(), queue.name);
    Ok(())
}

async fn show(global: &GlobalOptions, arguments: &ShowArguments, queue: &mut Queue) -> anyhow::Result<()> {
    let mut filter = LetterFilter::default();
    filter.ids.extend(arguments.id.clone());
    let there = queue.letters.count().await?;
    for position in 1..=there {
        let Some((delivery, letter)) = queue.letters.next().await? else { break };
        let letter = letter.as_ref();
        if arguments.position.is_none_or(|asked| asked == position) && filter.matches(&delivery, letter) {
            let summary = LetterSummary::new(position, &delivery, letter);
            let body = arguments.show_body.then_some(delivery.body.as_slice());
            return output::letter(output::format(global.output), &summary, &delivery.headers, body);
        }
    }
    let asked = match (&arguments.id, arguments.position) {
        (Some(id), _) => format!("the id `{id}`"),
        (None, position) => format!("the position {}", position.unwrap_or_default()),
    };
    Err(Failure::NotFound(format!("none of the {there} dead letters has {asked}: see `idempotent dead list`")).into())
}

async fn redrive(global: &GlobalOptions, arguments: &RedriveArguments, queue: &mut Queue) -> anyhow::Result<()> {
    if global.read_only {
        return Err(Failure::Refused("--read-only forbids this command".into()).into());
    }
    let (change, filter) = (&arguments.change, arguments.filter());
    let author = change.author()?;
    let redriver = Redriver::new(change.audit()?, (&author, &change.reason), "cli", &queue.name)?;
    let mut redrive = Redrive::new().limit(arguments.limit.map_or(u64::MAX, u64::from));
    if let Some(rate) = NonZeroU32::new(arguments.rate) {
        redrive = redrive.rate(rate);
    }
    if arguments.let_go {
        let store: Arc<dyn idempotent::Store> = open_for_writing(global, Access::Write).await?.store;
        redrive = redrive.letting_go(store);
    }
    let there = queue.letters.count().await?;
    let selection = selection(arguments, &filter, there);
    if change.dry_run {
        let outcome = Redriver::dry_run(redrive, &filter, &mut *queue.letters).await;
        return report(global, outcome, "would be put back");
    }
    if !change.yes {
        confirm(&format!("Put back {selection} into {}? The handlers of the messages run again.", queue.name))?;
    }
    let is_quiet = global.quiet;
    let progress = move |done: usize| {
        if done.is_multiple_of(PROGRESS) && !is_quiet {
            eprintln!("{done} letters so far");
        }
    };
    let outcome = redriver.run(redrive, (&filter, &selection), &mut *queue.letters, progress).await?;
    report(global, outcome, "put back")
}

/// The number of letters between two lines of progress.
const PROGRESS: usize = 100;

/// Describes the letters of a redrive, for the confirmation and for the audit log.
fn selection(arguments: &RedriveArguments, filter: &LetterFilter, there: u64) -> String {
    let mut text = arguments.limit.map_or_else(String::new, |limit| format!("at most {limit} of "));
    text += &format!("{there} dead letters");
    let ids = filter.ids.iter().cloned().collect::<Vec<_>>().join(", ");
    let mut condition = |name: &str, value: Option<String>| {
        text.extend(value.map(|value| format!(", {name} {value}")));
    };
    condition("id", Some(ids).filter(|ids| !ids.is_empty()));
    condition("cause", filter.cause.clone());
    condition("died before", filter.died_before.map(|time| format!("{} µs", time.0)));
    condition("died after", filter.died_after.map(|time| format!("{} µs", time.0)));
    condition("min attempts", filter.min_attempts.map(|least| least.to_string()));
    condition("min deaths", filter.min_deaths.map(|least| least.to_string()));
    condition("max deaths", filter.max_deaths.map(|most| most.to_string()));
    condition("rate", Some(arguments.rate.to_string()));
    condition("keys", arguments.let_go.then(|| "let go".to_owned()));
    idempotent_operate::escaped(&text)
}

/// Prints the letters and the summary of a redrive. Returns the error that ended it.
fn report(global: &GlobalOptions, outcome: RedriveOutcome, done: &str) -> anyhow::Result<()> {
    let RedriveOutcome { summary, letters, .. } = outcome;
    let format = output::format(global.output);
    output::letters(format, letters.iter().map(|(letter, outcome)| (letter, Some(outcome.as_str()))))?;
    let (put_back, skipped, gone) = (summary.put_back, summary.skipped, summary.gone);
    if format == Format::Jsonl {
        let failed = summary.failed.as_ref().map(ToString::to_string);
        let counts = serde_json::json!({ "put_back": put_back, "skipped": skipped, "gone": gone, "failed": failed });
        writeln!(io::stdout(), "{counts}")?;
    } else {
        writeln!(io::stdout(), "{put_back} {done}, {skipped} skipped by the conditions, {gone} gone")?;
    }
    match summary.failed {
        Some(error) => {
            Err(anyhow::Error::new(error).context("the redrive ended early; the letter is still a dead letter"))
        }
        None => Ok(()),
    }
}
