//! Sends calls over a link, and parts the answers.
use redis::{Cmd, Pipeline, Value};

use crate::batching::call::{Answer, Call, MOST, answers, command};
use crate::connection::{Link, refused};
use crate::durability::{Durability, Missing};
use crate::failure::{Failure, FailureKind};
use crate::scripts::Scripts;

/// How calls are sent.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) scripts: Scripts,
    /// A script may name keys of several slots.
    pub(crate) joins: bool,
    pub(crate) durability: Durability,
}

/// One trip: how its commands are written.
#[derive(Clone, Copy)]
struct Form {
    /// Scripts in full.
    in_full: bool,
    /// To a node that does not own the slot yet.
    asking: bool,
}

/// What a command was answered, and whether it is as durable as it should be.
type Told = Result<(Value, Option<Missing>), Failure>;

/// One call that waits for nothing but its answer, as one command.
pub(crate) async fn one(link: &Link, manner: &Manner, call: &Call) -> Result<Answer, Failure> {
    let scripts = &manner.scripts;
    let said = match link.one(&command(scripts, &[call], false)).await {
        // The cache of scripts is each server's own, and may be emptied at any time: in full, to the same one.
        Err(failure) if failure.kind == FailureKind::NoScript => {
            Box::pin(link.one(&command(scripts, &[call], true))).await?
        }
        said => said?,
    };
    answers(call.terms.script, 1, said)?.pop().ok_or_else(unanswered)?.judged()
}

/// Calls in their order, those of the same terms that follow each other joined into one command. `asking`: to a node that
/// a slot is being moved to; each command needs its own `ASKING` just before it.
pub(crate) async fn send(link: &Link, manner: &Manner, calls: &[&Call], asking: bool) -> Vec<Result<Answer, Failure>> {
    let most = if manner.joins { MOST } else { 1 };
    let alike = calls.chunk_by(|one, next| one.terms == next.terms);
    let groups: Vec<&[&Call]> = alike.flat_map(|group| group.chunks(most)).collect();
    let mut said = trip(link, manner, &groups, Form { in_full: false, asking }).await;
    let unknown: Vec<usize> = (0..said.len()).filter(|at| no_script(&said[*at])).collect();
    if !unknown.is_empty() {
        let again: Vec<&[&Call]> = unknown.iter().map(|at| groups[*at]).collect();
        for (at, answer) in unknown.into_iter().zip(trip(link, manner, &again, Form { in_full: true, asking }).await) {
            said[at] = answer;
        }
    }
    groups.into_iter().zip(said).flat_map(|(group, said)| parted(group, said)).collect()
}

fn no_script(said: &Told) -> bool {
    matches!(said, Err(failure) if failure.kind == FailureKind::NoScript)
}

/// One answer for each group, or the same error for all.
async fn trip(link: &Link, manner: &Manner, groups: &[&[&Call]], form: Form) -> Vec<Told> {
    let wait = if groups.iter().any(|group| waits(group)) { manner.durability.command() } else { None };
    let write = |group: &&[&Call]| command(&manner.scripts, group, form.in_full);
    let said = match groups {
        [] => return Vec::new(),
        [group] if wait.is_none() && !form.asking => link.one(&write(group)).await.map(|value| vec![value]),
        _ => {
            let mut pipeline = Pipeline::with_capacity(groups.len() * 2 + 1);
            for group in groups {
                if form.asking {
                    pipeline.add_command(Cmd::new().arg("ASKING").to_owned());
                }
                pipeline.add_command(write(group));
            }
            if let Some(wait) = &wait {
                pipeline.add_command(wait.clone());
            }
            link.all(&pipeline).await
        }
    };
    match said {
        Ok(mut values) => {
            let missing = wait.and_then(|_| manner.durability.missing(&values.pop().unwrap_or_default()));
            let step = if form.asking { 2 } else { 1 };
            if values.len() != groups.len() * step {
                let odd = Failure::ambiguous("the server gave another number of answers than it was asked");
                return vec![Err(odd); groups.len()];
            }
            values.into_iter().skip(step - 1).step_by(step).map(|value| Ok((refused(value)?, missing))).collect()
        }
        Err(failure) => vec![Err(failure); groups.len()],
    }
}

fn waits(group: &[&Call]) -> bool {
    group.first().is_some_and(|call| call.terms.waits)
}

fn parted(group: &[&Call], said: Told) -> Vec<Result<Answer, Failure>> {
    let Some(first) = group.first() else { return Vec::new() };
    let told = said.and_then(|(said, missing)| Ok((answers(first.terms.script, group.len(), said)?, missing)));
    match told {
        Ok((answers, missing)) if answers.len() == group.len() => {
            answers.into_iter().map(|answer| Answer { missing, ..answer }.judged()).collect()
        }
        Ok(_) => vec![Err(Failure::ambiguous("the server answered for another number of keys")); group.len()],
        Err(failure) => vec![Err(failure); group.len()],
    }
}

/// The answer where one was asked for.
pub(crate) fn only(mut all: Vec<Result<Answer, Failure>>) -> Result<Answer, Failure> {
    all.pop().unwrap_or_else(|| Err(unanswered()))
}

fn unanswered() -> Failure {
    Failure::ambiguous("an answer without an answer")
}
