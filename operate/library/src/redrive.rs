//! Redrives and removals of dead letters, recorded in an audit log.
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use idempotent_core::Settled;
use idempotent_mq::{DeadLetters, LetterId, Redrive, RedriveResult, RedriveStep, RedriveSummary};

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
    /// The error of the audit log that ended the redrive early. The last letter has changed, and its result is not recorded.
    pub audit_failed: Option<io::Error>,
}

impl RedriveOutcome {
    /// Returns the ids of the filter that no letter had. Empty if the change ended early: the rest was not read. After
    /// [unread](RedriveSummary::unread) letters, another reader may hold them.
    #[must_use]
    pub fn missing(&self, filter: &LetterFilter) -> BTreeSet<LetterId> {
        let summary = &self.summary;
        if summary.failed.is_some() || summary.is_stopped || self.audit_failed.is_some() {
            return BTreeSet::new();
        }
        let found: BTreeSet<_> = self.letters.iter().map(|(letter, _)| letter.id.as_str().into()).collect();
        filter.ids.difference(&found).cloned().collect()
    }
}

/// Puts dead letters of a queue back or removes them, and records each change in an audit log.
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
    /// The audit log gets one intent for the redrive, one result for each selected letter, and one result for the redrive, all
    /// with the id of the intent.
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
        self.run_as("redrive", redrive, (filter, selection), letters, observe).await
    }

    /// Removes the letters that the filter selects for good. The parameters and the audit entries are those of
    /// [`run`](Self::run), with the action `discard`.
    ///
    /// # Errors
    /// [`Audit`](OperateError::Audit) if the intent cannot be recorded: no letter was removed. The error of a broker is in the
    /// [summary](RedriveOutcome::summary).
    ///
    /// # Cancellation
    /// The current letter may be removed. It has no result in the audit log.
    pub async fn discard(
        &self,
        redrive: Redrive,
        selection: (&LetterFilter, &str),
        letters: &mut dyn DeadLetters,
        observe: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<RedriveOutcome, OperateError> {
        self.run_as("discard", redrive.discarding(), selection, letters, observe).await
    }

    /// Returns the letters that [`run`](Self::run) or [`discard`](Self::discard) would select. Changes nothing and writes no
    /// audit entry.
    ///
    /// # Cancellation
    /// The call only reads.
    pub async fn dry_run(redrive: Redrive, filter: &LetterFilter, letters: &mut dyn DeadLetters) -> RedriveOutcome {
        collect(redrive.dry_run(), filter, letters, |_, _| Ok(())).await
    }

    async fn run_as(
        &self,
        action: &str,
        redrive: Redrive,
        (filter, selection): (&LetterFilter, &str),
        letters: &mut dyn DeadLetters,
        observe: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<RedriveOutcome, OperateError> {
        let intent = self.entry.intent(action, selection, 0)?;
        self.audit.write(&intent).map_err(OperateError::Audit)?;
        let (audit, whole) = (self.audit.clone(), intent.clone());
        let outcome = collect(redrive, filter, letters, move |letter, outcome| {
            let (subject, fencing) = (letter.subject(), letter.fencing.unwrap_or_default());
            observe(usize::try_from(letter.position).unwrap_or(usize::MAX));
            audit.write(&AuditEntry { subject, fencing, ..intent.result(outcome.to_owned()) })
        });
        let outcome = outcome.await;
        write_result(&*self.audit, &whole.result(ending(&outcome.summary)));
        Ok(outcome)
    }
}

/// Runs a redrive, and collects the outcome of each selected letter. An error of `record` ends the redrive.
async fn collect(
    redrive: Redrive,
    filter: &LetterFilter,
    letters: &mut dyn DeadLetters,
    record: impl Fn(&LetterSummary, &str) -> io::Result<()> + Send + Sync + 'static,
) -> RedriveOutcome {
    let collected = Arc::new(Mutex::new((Vec::new(), None)));
    let (into, filter) = (collected.clone(), filter.clone());
    let has_failed = Arc::new(AtomicBool::new(false));
    let stop = has_failed.clone();
    let redrive = redrive
        .stop_if(move || stop.load(Ordering::Relaxed))
        .only(move |letter| filter.matches(letter))
        .on_each(move |step| {
            let mut collected = into.lock().unwrap_or_else(PoisonError::into_inner);
            let letter = LetterSummary::new(collected.0.len() as u64 + 1, step.letter);
            let outcome = outcome(step);
            if let Err(error) = record(&letter, &outcome) {
                has_failed.store(true, Ordering::Relaxed);
                collected.1 = Some(error);
            }
            collected.0.push((letter, outcome));
        });
    let summary = redrive.run(letters).await;
    let (letters, audit_failed) = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    RedriveOutcome { summary, letters, audit_failed }
}

/// Returns the outcome of the whole change for the audit log.
fn ending(summary: &RedriveSummary) -> String {
    let RedriveSummary { put_back, discarded, skipped, gone, passed_by, failed, is_stopped, .. } = summary;
    let end = match failed {
        Some(error) => format!("failed: {error}"),
        None if *is_stopped => "stopped".to_owned(),
        None => "done".to_owned(),
    };
    format!("{end}; {put_back} put back, {discarded} removed, {skipped} skipped, {gone} gone, {passed_by} passed by")
}

/// Returns the outcome of one letter for the audit log.
fn outcome(step: &RedriveStep<'_>) -> String {
    let result = match step.result {
        RedriveResult::PutBack | RedriveResult::Discarded => "done".to_owned(),
        RedriveResult::WouldPutBack | RedriveResult::WouldDiscard => "dry run".to_owned(),
        RedriveResult::Gone => "gone".to_owned(),
        RedriveResult::PassedBy(error) => format!("passed by: {error}"),
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
    use idempotent_mq::{
        DeadLetter, Delivery, MemoryDeadLetters, MemoryQueue, Position, Received, Settlement, Source, SourceError,
        SourceErrorKind, StoredLetter,
    };

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
        change(queue, most, "stock", false).await
    }

    async fn change(
        queue: &MemoryQueue,
        most: usize,
        cause: &str,
        discards: bool,
    ) -> (Result<RedriveOutcome, OperateError>, Vec<AuditEntry>) {
        let log = Arc::new(MemoryAudit { entries: Mutex::default(), most });
        let redriver = Redriver::new(log.clone(), ("ann", "stock corrected"), "test", "orders").unwrap();
        let filter = LetterFilter { cause: Some(cause.into()), ..LetterFilter::default() };
        let mut letters = MemoryDeadLetters::new(queue);
        let outcome = match discards {
            true => redriver.discard(Redrive::new(), (&filter, cause), &mut letters, |_| {}).await,
            false => redriver.run(Redrive::new(), (&filter, cause), &mut letters, |_| {}).await,
        };
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
        let expected = [None, Some("done"), Some("done; 1 put back, 0 removed, 1 skipped, 0 gone, 0 passed by")];
        assert_eq!((&outcomes[..], entries[0].subject.as_str()), (&expected[..], "stock"));
        assert_eq!((&entries[0].id, &entries[0].subject), (&entries[2].id, &entries[2].subject));
        assert_eq!(entries[0].id, entries[1].id);
    }

    #[tokio::test]
    async fn a_removal_has_one_intent_and_a_result_for_each_letter_and_puts_nothing_back() {
        let queue = queue().await;
        let (outcome, entries) = change(&queue, usize::MAX, "stock", true).await;
        let summary = outcome.unwrap().summary;
        assert_eq!((summary.discarded, summary.put_back, summary.skipped), (1, 0, 1));
        assert_eq!((queue.dead_letters().len(), queue.pending()), (1, 0));
        let shown: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.outcome.as_deref())).collect();
        let end = "done; 0 put back, 1 removed, 1 skipped, 0 gone, 0 passed by";
        assert_eq!(shown, [("discard", None), ("discard", Some("done")), ("discard", Some(end))]);
    }

    #[tokio::test]
    async fn a_result_that_cannot_be_recorded_ends_the_change() {
        for discards in [true, false] {
            let queue = queue().await;
            let outcome = change(&queue, 1, "no", discards).await.0.unwrap();
            assert_eq!((outcome.summary.put_back + outcome.summary.discarded, outcome.letters.len()), (1, 1));
            assert!(outcome.summary.is_stopped && outcome.audit_failed.is_some());
            assert_eq!(queue.dead_letters().len(), 1);
            // The intent cannot be recorded.
            assert!(matches!(change(&queue, 0, "no", discards).await.0, Err(OperateError::Audit(_))));
            assert_eq!(queue.dead_letters().len(), 1);
        }
    }

    /// Dead letters of which one is refused.
    struct Refusing(MemoryDeadLetters, Option<LetterId>);

    #[async_trait::async_trait]
    impl DeadLetters for Refusing {
        async fn count(&mut self) -> Result<u64, SourceError> {
            self.0.count().await
        }

        async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
            let next = self.0.next().await?;
            self.1 = next.as_ref().map(|letter| letter.id.clone());
            Ok(next)
        }

        async fn put_back(&mut self) -> Result<bool, SourceError> {
            if self.1 == Some("1@9".into()) {
                return Err(SourceError::new(SourceErrorKind::Refused, "the queue is unknown"));
            }
            self.0.put_back().await
        }

        async fn discard(&mut self) -> Result<bool, SourceError> {
            self.put_back().await
        }
    }

    #[tokio::test]
    async fn a_letter_that_is_passed_by_is_named_with_its_reason_and_the_others_are_changed() {
        let (queue, log) = (queue().await, Arc::new(MemoryAudit { entries: Mutex::default(), most: usize::MAX }));
        let redriver = Redriver::new(log.clone(), ("ann", "why"), "test", "orders").unwrap();
        let ids = ["1@9", "2@9", "3@9"].map(LetterId::from).into();
        let filter = LetterFilter { ids, ..LetterFilter::default() };
        let mut letters = Refusing(MemoryDeadLetters::new(&queue), None);
        let outcome = redriver.run(Redrive::new(), (&filter, "3 letters"), &mut letters, |_| {}).await.unwrap();
        assert_eq!((outcome.summary.put_back, outcome.summary.passed_by, queue.dead_letters().len()), (1, 1, 1));
        assert_eq!(outcome.missing(&filter), BTreeSet::from(["3@9".into()]));
        let log = log.entries.lock().unwrap();
        let shown: Vec<_> = log.iter().map(|entry| (entry.subject.as_str(), entry.outcome.as_deref())).collect();
        let end = "done; 1 put back, 0 removed, 0 skipped, 0 gone, 1 passed by";
        let refused = "passed by: this message is refused: the queue is unknown";
        assert_eq!(
            shown[1..],
            [
                ("1@9 of message orders-1", Some(refused)),
                ("2@9 of message orders-2", Some("done")),
                ("3 letters", Some(end))
            ]
        );
    }

    /// Letters `1`, `2` and so on of a key, of which the second is gone and the third cannot be put back.
    struct Scripted(u32);

    #[async_trait::async_trait]
    impl DeadLetters for Scripted {
        async fn count(&mut self) -> Result<u64, SourceError> {
            Ok(3)
        }

        async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
            self.0 += 1;
            let delivery = Delivery::new(Position::of("orders"), Vec::new());
            let mut letter = DeadLetter::because("no stock", Timestamp(9));
            letter.id = Some("shop:mq:orders:{Pv_mJFCxQoKrWCJDVdincw}:7".to_owned());
            Ok((self.0 <= 3).then(|| StoredLetter::new(self.0.to_string().as_str().into(), delivery, Some(letter))))
        }

        async fn put_back(&mut self) -> Result<bool, SourceError> {
            match self.0 {
                3 => Err(SourceError::new(SourceErrorKind::Transient, "no answer")),
                number => Ok(number != 2),
            }
        }

        async fn discard(&mut self) -> Result<bool, SourceError> {
            self.put_back().await
        }
    }

    #[tokio::test]
    async fn each_outcome_is_recorded_with_the_fencing_token_of_its_letter() {
        let log = Arc::new(MemoryAudit { entries: Mutex::default(), most: usize::MAX });
        let redriver = Redriver::new(log.clone(), ("ann", "why"), "test", "orders").unwrap();
        let filter = LetterFilter::default();
        let outcome = redriver.run(Redrive::new(), (&filter, "all"), &mut Scripted(0), |_| {}).await.unwrap();
        assert!(outcome.summary.failed.is_some() && outcome.summary.gone == 1, "{outcome:?}");
        let log = log.entries.lock().unwrap();
        let shown: Vec<_> = log.iter().map(|entry| (entry.fencing, entry.outcome.as_deref().unwrap_or("-"))).collect();
        assert_eq!(shown[..3], [(0, "-"), (7, "done"), (7, "gone")]);
        assert!(
            shown[3].0 == 7 && shown[3].1.starts_with("failed: ") && shown[4].1.starts_with("failed: "),
            "{shown:?}"
        );
    }

    #[test]
    fn only_a_change_that_was_not_ended_early_misses_letters() {
        let filter = LetterFilter { ids: ["1@9".into()].into(), ..LetterFilter::default() };
        let outcome = |change: fn(&mut RedriveOutcome)| {
            let mut outcome =
                RedriveOutcome { summary: RedriveSummary::default(), letters: Vec::new(), audit_failed: None };
            change(&mut outcome);
            outcome
        };
        assert_eq!(outcome(|_| {}).missing(&filter), filter.ids);
        let ended: [fn(&mut RedriveOutcome); 3] = [
            |outcome| outcome.summary.failed = Some(SourceError::new(SourceErrorKind::Transient, "no answer")),
            |outcome| outcome.summary.is_stopped = true,
            |outcome| outcome.audit_failed = Some(io::Error::other("the disk is full")),
        ];
        for change in ended {
            assert!(outcome(change).missing(&filter).is_empty());
        }
        assert!(ending(&outcome(|outcome| outcome.summary.is_stopped = true).summary).starts_with("stopped; "));
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
