//! The commands for dead letters.
mod change;

use anyhow::Context;
use idempotent::mq::LetterId;
use idempotent_operate::{LetterFilter, LetterSummary};

use super::{OPENING, within};
use crate::arguments::{DeadCommand, GlobalOptions, LetterArguments, PutBackOptions, ShowArguments};
use crate::failure::Failure;
use crate::output;
use crate::queue::{self, Queue};
use crate::stop::StopRequest;

/// Runs a command for dead letters. Letters that were read and not put back return to their place.
pub(super) async fn run(global: &GlobalOptions, command: &DeadCommand, stop: &StopRequest) -> anyhow::Result<()> {
    let unchanged = PutBackOptions::default();
    let (options, back) = match command {
        DeadCommand::List(list) => (&list.queue, &unchanged),
        DeadCommand::Show(show) => (&show.queue, &unchanged),
        DeadCommand::Redrive(redrive) => (&redrive.queue, &redrive.put_back),
        DeadCommand::Discard(discard) => (&discard.queue, &unchanged),
    };
    let mut queue = within(Some(OPENING), queue::open(options, back, &global.namespace)).await?;
    let ended = match command {
        DeadCommand::List(arguments) => list(global, arguments, &mut queue).await,
        DeadCommand::Show(arguments) => show(global, arguments, &mut queue).await,
        DeadCommand::Redrive(arguments) => change::redrive(global, arguments, &mut queue, stop).await,
        DeadCommand::Discard(arguments) => change::discard(global, arguments, &mut queue, stop).await,
    };
    queue.letters.close().await;
    ended.with_context(|| queue.name.clone())
}

async fn list(global: &GlobalOptions, arguments: &LetterArguments, queue: &mut Queue) -> anyhow::Result<()> {
    let (filter, most) = (arguments.filter.filter(), arguments.limit as usize);
    let there = queue.letters.count().await?;
    let mut found = Vec::new();
    let mut read = 0;
    while read != there && found.len() < most {
        let Some(letter) = queue.letters.next().await? else { break };
        read += 1;
        if filter.matches(&letter) {
            found.push(LetterSummary::new(read, &letter));
        }
    }
    output::letters(output::format(global.output), found.iter().map(|letter| (letter, None)))?;
    let name = &queue.name;
    output::note(format_args!("{} found; read {read} of {there} dead letters of {name}", found.len()));
    Ok(())
}

async fn show(global: &GlobalOptions, arguments: &ShowArguments, queue: &mut Queue) -> anyhow::Result<()> {
    let mut filter = LetterFilter::default();
    filter.ids.extend(arguments.id.as_deref().map(LetterId::from));
    let there = queue.letters.count().await?;
    for position in 1..=there {
        let Some(letter) = queue.letters.next().await? else { break };
        if arguments.position.is_none_or(|asked| asked == position) && filter.matches(&letter) {
            let summary = LetterSummary::new(position, &letter);
            let body = arguments.show_body.then_some(letter.delivery.body.as_slice());
            return output::letter(output::format(global.output), &summary, &letter.delivery.headers, body);
        }
    }
    let asked = match (&arguments.id, arguments.position) {
        (Some(id), _) => format!("the id `{id}`"),
        (None, position) => format!("the position {}", position.unwrap_or_default()),
    };
    Err(Failure::NotFound(format!("none of the {there} dead letters has {asked}: see `idempotent dead list`")).into())
}
