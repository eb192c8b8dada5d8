//! Redrives of dead letters, recorded in an audit log.
use std::sync::{Arc, Mutex, PoisonError};

use idempotent_core::Settled;
use idempotent_mq::{DeadLetters, Redrive, RedriveResult, RedriveStep, RedriveSummary};

use crate::audit::write_result;
use crate::{AuditEntry, AuditSink, LetterFilter, LetterSummary, OperateError};

/// The result of a redrive, and what happened to each selected letter.
#[derive(Debug)]
#[non_exhaustive]
#[must_use]
pub struct RedriveOutcome {
    /// The numbers of letters, and the error that ended the redrive early.
    pub summary: RedriveSummary,
    /// The selected letters with their outcomes, in the order of the redrive. A position counts the selected letters.
    pub letters: Vec<(LetterSummary, String)>,
}

/// Puts dead letters of a queue back, and records each redrive in an audit log.
#[derive(Clone, Debug)]
pub struct Redriver {
    audit: Arc<dyn AuditSink>,
    /// The fields that all entries have in common.
    entry: AuditEntry,
}

impl Redriver {
    /// Creates a redriver. `author` is a name and a reason for the audit log. `target` describes the queue there: pass its
    /// URL without passwords, and its name.
    ///
    /// # Errors
    /// [`Author`](OperateError::Author), as for [`Repairer::new`](crate::Repairer::new).
    pub fn new(audit: Arc<dyn AuditSink>, author: (&str, &str), via: &str, target: &str) -> Result<Self, OperateError> {
        Ok(Self { audit, entry: AuditEntry::of_author(author, via, target)? })
    }

    /// Runs a redrive of the letters that the filter selects. `selection` describes the filter and the limit in the audit
    /// log. `observe` gets the number of letters so far.
    ///
    /// The audit log gets one intent for the redrive and one result for each selected letter, with the id of the intent.
    ///
    /// # Errors
    /// [`Audit`](OperateError::Audit) if the intent cannot be recorded: no letter was put back. The error of a broker is in
    /// the [summary](RedriveOutcome::summary).
    ///
    /// # Cancellation
    /// The current letter may be in its queue, among the dead letters, or in both. It has no result in the audit log.
    pub async fn run(
        &self,
        redrive: Redrive,
        (filter, selection): (&LetterFilter, &str),
        letters: &mut dyn DeadLetters,
        observe: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<RedriveOutcome, OperateError> {
        let intent = self.entry.intent("redrive", selection, 0)?;
        self.audit.write(&intent).map_err(OperateError::Audit)?;
        let audit = self.audit.clone();
        let outcome = collect(redrive, filter, letters, move |letter, outcome| {
            let subject = letter.key.as_ref().or(letter.id.as_ref());
            let subject = subject.cloned().unwrap_or_else(|| format!("letter {}", letter.position));
            let fencing = letter.fencing.unwrap_or_default();
            write_result(&*audit, &AuditEntry { subject, fencing, ..intent.result(outcome.to_owned()) });
            observe(usize::try_from(letter.position).unwrap_or(usize::MAX));
        });
        Ok(outcome.await)
    }

    /// Returns the letters that [`run`](Self::run) would put back. Changes nothing and writes no audit entry.
    ///
    /// # Cancellation
    /// The call only reads.
    pub async fn dry_run(redrive: Redrive, filter: &LetterFilter, letters: &mut dyn DeadLetters) -> RedriveOutcome {
        collect(redrive.dry_run(), filter, letters, |_, _| {}).await
    }
}

/// Runs a redrive, and collects the outcome of each selected letter.
async fn collect(
    redrive: Redrive,
    filter: &LetterFilter,
    letters: &mut dyn DeadLetters,
    observe: impl Fn(&LetterSummary, &str) + Send + Sync + 'static,
) -> RedriveOutcome {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let (into, filter) = (collected.clone(), filter.clone());
    let redrive = redrive.only(move |delivery, letter| filter.matches(delivery, letter)).on_each(move |step| {
        let mut collected = into.lock().unwrap_or_else(PoisonError::into_inner);
        let letter = LetterSummary::new(collected.len() as u64 + 1, step.delivery, step.letter);
        let outcome = outcome(step);
        observe(&letter, &outcome);
        collected.push((letter, outcome));
    });
    let summary = redrive.run(letters).await;
    let letters = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    RedriveOutcome { summary, letters }
}

/// Returns the outcome of one letter for the audit log.
fn outcome(step: &RedriveStep<'_>) -> String {
    let result = match step.result {
        RedriveResult::PutBack => "done".to_owned(),
        RedriveResult::WouldPutBack => "dry run".to_owned(),
        RedriveResult::Gone => "gone".to_owned(),
        RedriveResult::Failed(error) => format!("failed: {error}"),
        _ => "unknown".to_owned(),
    };
    match step.key {
        Some(Settled::Done) => format!("{result}, the key can be claimed"),
        Some(Settled::Lost { now }) => format!("{result}, the key has changed: {now}"),
        None => result,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {

    use idempotent_core::Timestamp;
    use idempotent_mq::{DeadLetter, MemoryDeadLetters, MemoryQueue, Received, Settlement, Source};

    use super::*;
    use crate::audit::MemoryAudit;

    /// Returns a queue with two dead letters.
    async fn queue() -> MemoryQueue {
        let queue = MemoryQueue::new("orders");
        let mut source = queue.source();
        for reason in ["no stock", "no customer"] {
            queue.send("{}");
            let Received::Deliveries(taken) = source.receive(1).await.unwrap() else { unreachable!() };
            let letter = Settlement::DeadLetter(DeadLetter::because(reason, Timestamp(9)));
            source.settler().settle(&taken[0].0, &taken[0].1, &letter).await.unwrap();
        }
        queue
    }

    async fn redrive(queue: &MemoryQueue, most: usize) -> (Result<RedriveOutcome, OperateError>, Vec<AuditEntry>) {
        let log = Arc::new(MemoryAudit { entries: Mutex::default(), most });
        let redriver = Redriver::new(log.clone(), ("ann", "stock corrected"), "test", "orders").unwrap();
        let filter = LetterFilter { cause: Some("stock".into()), ..LetterFilter::default() };
        let mut letters = MemoryDeadLetters::new(queue);
        let outcome = redriver.run(Redrive::new(), (&filter, "stock"), &mut letters, |_| {}).await;
        let entries = std::mem::take(&mut *log.entries.lock().unwrap());
        (outcome, entries)
    }

    #[tokio::test]
    async fn a_redrive_has_one_intent_and_a_result_for_each_letter() {
        let queue = queue().await;
        let (outcome, entries) = redrive(&queue, usize::MAX).await;
        let outcome = outcome.unwrap();
        assert_eq!((outcome.summary.put_back, outcome.summary.skipped, queue.dead_letters().len()), (1, 1, 1));
        let outcomes: Vec<_> = entries.iter().map(|entry| entry.outcome.as_deref()).collect();
        assert_eq!((outcomes, entries[0].subject.as_str()), (vec![None, Some("done")], "stock"));
        assert_eq!(entries[0].id, entries[1].id);
    }

    #[tokio::test]
    async fn without_an_intent_in_the_audit_log_no_letter_is_put_back() {
        let queue = queue().await;
        let (refused, _) = redrive(&queue, 0).await;
        assert!(matches!(refused, Err(OperateError::Audit(_))), "{refused:?}");
        assert_eq!(queue.dead_letters().len(), 2);
        // A lost result does not hide the redrive.
        assert_eq!(redrive(&queue, 1).await.0.unwrap().summary.put_back, 1);
    }
}
