//! The execution of a plan in the background. Each entry has an intent in the audit log before its change.
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use idempotent_core::Store;
use idempotent_mq::{DeadLetters, LetterId, Redrive};
use idempotent_operate::{LetterFilter, OperateError, Redriver, Repair, RepairResult, Repairer};

use super::{Action, Entry, Plan, Task};
use crate::state::Shared;
use crate::targets::Queue;

/// The program in the audit log.
const VIA: &str = "console";

/// The options of an applied plan.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) reason: String,
    /// Letters per second.
    pub(super) rate: NonZeroU32,
    /// Frees the keys of the letters first.
    pub(super) lets_go: bool,
}

/// Runs the task of a plan to its end.
pub(super) async fn run(shared: Arc<Shared>, plan: Arc<Plan>, task: Arc<Task>, order: Order) {
    let ended = match plan.action {
        Action::Forget => keys(&shared, &plan, &task, &order, Repair::Forget).await,
        Action::Release => keys(&shared, &plan, &task, &order, Repair::Release).await,
        Action::Redrive | Action::Discard => letters(&shared, &plan, &task, &order).await,
        #[cfg(feature = "__outbox")]
        Action::Resend => messages(&shared, &plan, &task, &order, idempotent_operate::OutboxChange::Resend).await,
        #[cfg(feature = "__outbox")]
        Action::Void => messages(&shared, &plan, &task, &order, idempotent_operate::OutboxChange::Void).await,
    };
    task.end(ended.err());
}

async fn keys(shared: &Shared, plan: &Plan, task: &Task, order: &Order, repair: Repair) -> Result<(), String> {
    let store = shared.targets.stores.find(&plan.target).map_err(|error| error.to_string())?;
    let author = (plan.by.name.as_str(), order.reason.as_str());
    let repairer = Repairer::new(store.clone(), shared.audit.clone(), author, VIA, &plan.target);
    let repairer = repairer.map_err(|error| error.to_string())?;
    for entry in &plan.entries {
        let Entry::Key(key, fencing) = entry else { continue };
        if task.is_cancelled() {
            return Err("cancelled".into());
        }
        let outcome = match repairer.apply(repair, key, *fencing).await {
            Ok(RepairResult::Done) => "done".to_owned(),
            Ok(RepairResult::Changed { now }) => format!("changed: {now}"),
            Ok(_) => "unknown".to_owned(),
            // An answer of the store: the next key may get another one.
            Err(OperateError::Store(error)) => format!("failed: {error}"),
            Err(error) => return Err(error.to_string()),
        };
        task.add(key.as_str().to_owned(), outcome);
    }
    Ok(())
}

async fn letters(shared: &Shared, plan: &Plan, task: &Arc<Task>, order: &Order) -> Result<(), String> {
    let queue = shared.targets.queues.find(&plan.target).map_err(|error| error.to_string())?;
    let author = (plan.by.name.as_str(), order.reason.as_str());
    let redriver = Redriver::new(shared.audit.clone(), author, VIA, &plan.target).map_err(|error| error.to_string())?;
    let mut letters = queue.letters().await?;
    let ended = redrive(&redriver, queue, plan, task, order, &mut letters).await;
    letters.close().await;
    shared.letters.forget(&plan.target).await;
    ended
}

async fn redrive(
    redriver: &Redriver,
    queue: &Queue,
    plan: &Plan,
    task: &Arc<Task>,
    order: &Order,
    letters: &mut dyn DeadLetters,
) -> Result<(), String> {
    let letter = |entry: &Entry| match entry {
        Entry::Letter(id, text) => Some((id.clone(), text.clone())),
        _ => None,
    };
    let ids: BTreeMap<LetterId, String> = plan.entries.iter().filter_map(letter).collect();
    let mut filter = LetterFilter::default();
    filter.ids = ids.keys().cloned().collect();
    let cancelled = task.clone();
    let mut redrive = Redrive::new().rate(order.rate).limit(ids.len() as u64);
    redrive = redrive.stop_if(move || cancelled.is_cancelled());
    if let Some(store) = queue.store.clone().filter(|_| order.lets_go && plan.action == Action::Redrive) {
        redrive = redrive.letting_go(store as Arc<dyn Store>);
    }
    let seen = task.clone();
    let observe = move |letters: usize| seen.lock().progress = letters;
    let named = ids.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let selection = format!("{} letters: {named}", ids.len());
    let outcome = match plan.action {
        Action::Discard => redriver.discard(redrive, (&filter, &selection), letters, observe).await,
        _ => redriver.run(redrive, (&filter, &selection), letters, observe).await,
    };
    let outcome = outcome.map_err(|error| error.to_string())?;
    let missing = outcome.missing(&filter);
    for (letter, result) in &outcome.letters {
        task.add(letter.subject(), result.clone());
    }
    // A letter that another reader holds is not gone.
    let absent = if outcome.summary.unread > 0 { "not read: another reader may hold it" } else { "gone" };
    missing.iter().filter_map(|id| ids.get(id)).for_each(|letter| task.add(letter.clone(), absent.to_owned()));
    let error = outcome.audit_failed.map(|error| format!("the audit log failed: {error}"));
    let error = error.or_else(|| outcome.summary.failed.as_ref().map(ToString::to_string));
    let error = error.or_else(|| outcome.summary.is_stopped.then(|| "cancelled".to_owned()));
    error.map_or(Ok(()), Err)
}

#[cfg(feature = "__outbox")]
async fn messages(
    shared: &Shared,
    plan: &Plan,
    task: &Task,
    order: &Order,
    change: idempotent_operate::OutboxChange,
) -> Result<(), String> {
    let outbox = shared.targets.outboxes.find(&plan.target).map_err(|error| error.to_string())?;
    let author = (plan.by.name.as_str(), order.reason.as_str());
    let trail = idempotent_operate::AuditTrail::new(shared.audit.clone(), author, VIA, &plan.target);
    let trail = trail.map_err(|error| error.to_string())?;
    for entry in &plan.entries {
        if task.is_cancelled() {
            return Err("cancelled".into());
        }
        let id = entry.subject();
        let intent = trail.begin(change.name(), id).map_err(|error| error.to_string())?;
        let changed = outbox.change(change, id, &plan.by.name, &order.reason).await;
        let outcome = changed.map_or_else(|error| format!("failed: {error}"), |()| "done".to_owned());
        intent.end(outcome.as_str());
        task.add(id.to_owned(), outcome);
    }
    Ok(())
}
