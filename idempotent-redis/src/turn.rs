//! Sends calls over a link, and parts the answers.
use redis::{Pipeline, Value};

use crate::call::{Answer, Call, answers, command};
use crate::failure::{Failure, FailureKind};
use crate::lane::MOST;
use crate::link::{Link, refused};
use crate::script::Scripts;

/// One call as one command.
pub(crate) async fn one(link: &Link, scripts: &Scripts, call: &Call) -> Result<Answer, Failure> {
    let said = match link.one(&command(scripts, &[call], false)).await {
        // The cache of scripts is each server's own, and may be emptied at any time: in full, to the same one.
        Err(failure) if failure.kind == FailureKind::NoScript => link.one(&command(scripts, &[call], true)).await?,
        said => said?,
    };
    let mut all = answers(call.terms.script, 1, said)?;
    all.pop().ok_or_else(|| Failure::ambiguous("an answer without an answer"))
}

/// Calls in their order, those of the same terms that follow each other joined into one command.
pub(crate) async fn send(link: &Link, scripts: &Scripts, joins: bool, calls: &[&Call]) -> Vec<Result<Answer, Failure>> {
    let most = if joins { MOST } else { 1 };
    let alike = calls.chunk_by(|one, next| one.terms == next.terms);
    let groups: Vec<&[&Call]> = alike.flat_map(|group| group.chunks(most)).collect();
    let mut said = trip(link, scripts, &groups, false).await;
    let unknown: Vec<usize> = (0..said.len()).filter(|at| no_script(&said[*at])).collect();
    if !unknown.is_empty() {
        let again: Vec<&[&Call]> = unknown.iter().map(|at| groups[*at]).collect();
        for (at, answer) in unknown.into_iter().zip(trip(link, scripts, &again, true).await) {
            said[at] = answer;
        }
    }
    groups.into_iter().zip(said).flat_map(|(group, said)| parted(group, said)).collect()
}

fn no_script(said: &Result<Value, Failure>) -> bool {
    matches!(said, Err(failure) if failure.kind == FailureKind::NoScript)
}

/// One answer for each group, or the same error for all.
async fn trip(link: &Link, scripts: &Scripts, groups: &[&[&Call]], in_full: bool) -> Vec<Result<Value, Failure>> {
    let said = match groups {
        [] => return Vec::new(),
        [group] => link.one(&command(scripts, group, in_full)).await.map(|value| vec![value]),
        _ => {
            let mut pipeline = Pipeline::with_capacity(groups.len());
            for group in groups {
                pipeline.add_command(command(scripts, group, in_full));
            }
            link.all(&pipeline).await
        }
    };
    match said {
        Ok(values) if values.len() == groups.len() => values.into_iter().map(refused).collect(),
        Ok(_) => {
            vec![Err(Failure::ambiguous("the server gave another number of answers than it was asked")); groups.len()]
        }
        Err(failure) => vec![Err(failure); groups.len()],
    }
}

fn parted(group: &[&Call], said: Result<Value, Failure>) -> Vec<Result<Answer, Failure>> {
    let Some(first) = group.first() else { return Vec::new() };
    match said.and_then(|said| answers(first.terms.script, group.len(), said)) {
        Ok(answers) if answers.len() == group.len() => answers.into_iter().map(Ok).collect(),
        Ok(_) => vec![Err(Failure::ambiguous("the server answered for another number of keys")); group.len()],
        Err(failure) => vec![Err(failure); group.len()],
    }
}
