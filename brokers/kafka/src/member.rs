//! The thread of a group member: reads, pauses and commits, and polls the client at all times.
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use idempotent_mq::{Delivery, MessagePlace, Received, SourceError, SourceErrorKind};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tracing::{debug, warn};

use crate::assignment::{Assignment, names};
use crate::carrier::Names;
use crate::commits::{Commits, INTERVAL};
use crate::error::receive_failure;
use crate::group_events::GroupEvents;
use crate::message::{convert, due};
use crate::partition::{Partition, Reading, Step};
use crate::place::{PartitionName, Place};
use crate::settler::KafkaTag;
use crate::transactions::Transactions;

/// A request of the source for deliveries.
pub(crate) struct Request {
    pub(crate) room: usize,
    pub(crate) reply: oneshot::Sender<Result<Received<KafkaTag>, SourceError>>,
}

/// A member of a consumer group.
pub(crate) struct Member {
    pub(crate) assignment: Arc<Assignment>,
    /// The requests, until the source is closed.
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    waiting: Option<Request>,
    /// The time of the last answer.
    answered: Instant,
    commits: Commits,
    /// An error that no request has received: a permanent one, or one of a transaction.
    broken: Option<SourceError>,
    window: usize,
    /// The retry topic, whose messages have a due time.
    retry: Option<Arc<str>>,
    names: Names,
    /// The transactions that commit the offsets, or `None` if the consumer commits them.
    pub(crate) transactions: Option<Transactions>,
}

/// The time after which a member without a request pauses its partitions. Pausing discards messages that were fetched, so a shorter
/// pause of the consumer does not pause them.
const FULL: Duration = Duration::from_millis(100);
/// The time after a failed change of a partition before the next attempt.
const RETRY: Duration = Duration::from_millis(100);
/// The maximum time of the client's own thread to change the position of a partition.
const SEEK: Duration = Duration::from_secs(1);
/// A wake-up of a member without any other event.
const IDLE: Duration = Duration::from_secs(60);

impl Member {
    pub(crate) fn new(
        assignment: Arc<Assignment>,
        requests: mpsc::UnboundedReceiver<Request>,
        window: usize,
        retry: Option<Arc<str>>,
        names: Names,
    ) -> Self {
        let now = Instant::now();
        Self {
            assignment,
            requests,
            waiting: None,
            answered: now,
            commits: Commits::new(now),
            broken: None,
            window,
            retry,
            names,
            transactions: None,
        }
    }

    /// Runs until the source is closed, all its deliveries are settled or returned, and no commit is under way.
    pub(crate) async fn run(mut self, consumer: &Arc<StreamConsumer<GroupEvents>>) {
        while self.commits.is_running() || !self.assignment.lock().is_done() {
            self.answer_events();
            let is_closing = self.assignment.lock().is_closing;
            let now = Instant::now();
            let is_full = self.waiting.is_none() && now >= self.answered + FULL;
            let wake = self.steer(consumer, now, !is_closing && !is_full).min(self.commit(consumer, now));
            let polls = self.waiting.is_some() || is_full || is_closing;
            let wake = if polls { wake } else { wake.min(self.answered + FULL) };
            let assignment = self.assignment.clone();
            tokio::select! {
                biased;
                is_committed = self.commits.ended() => if !is_committed {
                    self.not_committed();
                },
                request = self.requests.recv(), if !is_closing => match request {
                    Some(request) => self.waiting = Some(request),
                    None => self.assignment.lock().is_closing = true,
                },
                message = consumer.recv(), if polls => self.received(consumer, message),
                () = assignment.changed.notified() => {}
                () = sleep_until(wake.into()) => {}
            }
        }
        self.commit_transaction(consumer);
    }

    /// Answers a request with revoked partitions or an error, if there are any.
    fn answer_events(&mut self) {
        if self.waiting.as_ref().is_some_and(|request| request.reply.is_closed()) {
            self.waiting = None;
        }
        let Some(request) = self.waiting.take() else { return };
        let revoked = std::mem::take(&mut self.assignment.lock().revoked);
        if !revoked.is_empty() {
            self.answer(request, Ok(Received::Revoked(revoked)));
        } else if let Some(broken) = self.broken.take() {
            self.answer(request, Err(broken));
        } else {
            self.waiting = Some(request);
        }
    }

    fn answer(&mut self, request: Request, answer: Result<Received<KafkaTag>, SourceError>) {
        self.answered = Instant::now();
        if let Err(Ok(Received::Revoked(revoked))) = request.reply.send(answer) {
            self.assignment.lock().revoked.extend(revoked);
        }
    }

    /// Pauses, resumes and seeks partitions. Returns the time of the next change.
    fn steer(&self, consumer: &StreamConsumer<GroupEvents>, now: Instant, is_reading: bool) -> Instant {
        let (mut wake, mut seeks) = (now + IDLE, Vec::new());
        let (mut pause, mut resume) = (TopicPartitionList::new(), TopicPartitionList::new());
        for (name, partition) in &mut self.assignment.lock().partitions {
            let step = partition.step(now, self.window);
            if let Step::Pause(Some(due)) = step {
                wake = wake.min(due);
            }
            let is_paused = !is_reading || matches!(step, Step::Pause(_));
            if partition.is_paused != Some(is_paused) {
                let list = if is_paused { &mut pause } else { &mut resume };
                list.add_partition(&name.topic, name.number);
                partition.is_paused = Some(is_paused);
            }
            if let (Step::Seek(offset), true) = (step, is_reading) {
                seeks.push((name.clone(), offset));
            }
        }
        for (doing, list, is_paused) in [("pausing", &pause, true), ("resuming", &resume, false)] {
            let done = apply(list, |list| if is_paused { consumer.pause(list) } else { consumer.resume(list) });
            if done.is_err() {
                // Without this, a partition that was not resumed would stay paused.
                names(list).iter().for_each(|name| self.partition(name, |partition| partition.is_paused = None));
                wake = wake.min(now + RETRY);
            }
            log_failure(doing, done);
        }
        for (name, offset) in seeks {
            match consumer.seek(&name.topic, name.number, Offset::Offset(offset), SEEK) {
                Ok(()) => self.partition(&name, |partition| partition.sought(offset)),
                Err(error) => {
                    debug!(target: "idempotent", %error, "kafka: seeking failed; retrying");
                    wake = wake.min(now + RETRY);
                }
            }
        }
        wake
    }

    /// Commits the settled prefixes. Returns the time of the next call. The end of a commit under way wakes the member, too.
    fn commit(&mut self, consumer: &Arc<StreamConsumer<GroupEvents>>, now: Instant) -> Instant {
        let is_dirty = self.assignment.lock().partitions.values().any(Partition::is_dirty);
        let Some(due) = self.commits.due().filter(|_| is_dirty) else { return now + IDLE };
        if due > now {
            return due;
        }
        if self.assignment.is_transactional {
            self.commit_transaction(consumer);
            self.commits.postpone(Instant::now() + INTERVAL);
        } else {
            let offsets = self.assignment.lock().commit();
            self.commits.start(consumer, offsets);
        }
        self.commits.due().unwrap_or(now + IDLE)
    }

    /// Records that a commit failed, so that the next one repeats its offsets.
    fn not_committed(&self) {
        self.assignment.lock().partitions.values_mut().for_each(Partition::uncommitted);
    }

    /// Commits the settled prefixes in a transaction, together with the messages of their deliveries. Blocks the thread. Does nothing
    /// without transactions.
    fn commit_transaction(&mut self, consumer: &StreamConsumer<GroupEvents>) {
        let Some(transactions) = &self.transactions else { return };
        let (offsets, outputs) = self.assignment.lock().transaction();
        if offsets.count() == 0 {
            return;
        }
        match transactions.commit(consumer, &offsets, &outputs) {
            Ok(()) => self.assignment.lock().committed(&offsets),
            Err(error) => {
                self.not_committed();
                if self.waiting.is_none() && self.broken.is_none() {
                    // No other event shows that the transaction is repeated.
                    self.broken = Some(error);
                } else {
                    self.failed(error);
                }
            }
        }
    }

    /// Answers the request with a message and with those that are available at once.
    fn received(&mut self, consumer: &StreamConsumer<GroupEvents>, first: KafkaResult<BorrowedMessage<'_>>) {
        let (mut deliveries, mut next) = (Vec::new(), Some(first));
        let room = self.waiting.as_ref().map_or(0, |request| request.room);
        while let Some(message) = next {
            match message {
                Ok(message) => deliveries.extend(self.deliver(&message, room > deliveries.len())),
                Err(error) => {
                    self.failed(receive_failure(error, || consumer.client().fatal_error()));
                    break;
                }
            }
            let is_full = deliveries.len() >= room || !self.assignment.lock().revoked.is_empty();
            next = if is_full { None } else { consumer.recv().now_or_never() };
        }
        if !deliveries.is_empty()
            && let Some(request) = self.waiting.take()
        {
            // The tags of deliveries that cannot be sent return them.
            self.answer(request, Ok(Received::Deliveries(deliveries)));
        }
    }

    /// Converts a message into a delivery, unless the message is not to be delivered now.
    fn deliver(&self, message: &BorrowedMessage<'_>, has_room: bool) -> Option<(Delivery, KafkaTag)> {
        let name = PartitionName { topic: message.topic().into(), number: message.partition() };
        let (offset, now) = (message.offset(), Instant::now());
        let is_retry = self.retry.as_ref() == Some(&name.topic);
        let place = if is_retry { MessagePlace::Retry } else { MessagePlace::Queue };
        let (mut delivery, original, own) = convert(message, &name, place, self.names);
        let due = due(&own);
        let mut assigned = self.assignment.lock();
        let is_refused = !has_room || assigned.is_closing || !assigned.revoked.is_empty();
        let number = assigned.next_number();
        let partition = assigned.partitions.get_mut(&name)?;
        if is_refused {
            partition.ignore(offset);
            return None;
        }
        let Reading::Deliver(mark) = partition.read(offset, due, now, number) else { return None };
        let generation = partition.generation;
        drop(assigned);
        if let Some((attempt, first_at)) = mark {
            (delivery.attempt, delivery.first_at) = (Some(attempt), Some(first_at));
        }
        let place = Place { partition: name, offset, generation, number };
        Some((delivery, KafkaTag { place, original, mark, assignment: self.assignment.clone() }))
    }

    /// Answers the request with an error. Without a request, keeps a permanent error for the next one.
    fn failed(&mut self, error: SourceError) {
        match self.waiting.take() {
            Some(request) => self.answer(request, Err(error)),
            None if error.kind() == SourceErrorKind::Fatal => self.broken = Some(error),
            None => debug!(target: "idempotent", %error, "kafka client"),
        }
    }

    fn partition(&self, name: &PartitionName, act: impl FnOnce(&mut Partition)) {
        if let Some(partition) = self.assignment.lock().partitions.get_mut(name) {
            act(partition);
        }
    }
}

fn apply(list: &TopicPartitionList, act: impl FnOnce(&TopicPartitionList) -> KafkaResult<()>) -> KafkaResult<()> {
    if list.count() == 0 { Ok(()) } else { act(list) }
}

fn log_failure(doing: &str, done: KafkaResult<()>) {
    if let Err(error) = done {
        warn!(target: "idempotent", %error, doing, "kafka: the client failed; retrying");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_request_is_kept_for_the_next_one_if_it_is_permanent() {
        let (ask, requests) = mpsc::unbounded_channel();
        let mut member = Member::new(Assignment::new(false), requests, 1, None, Names::Utf8);
        let mut answer_after = |kind| {
            member.failed(SourceError::new(kind, "why"));
            let (reply, mut answer) = oneshot::channel();
            ask.send(Request { room: 1, reply }).unwrap();
            member.waiting = member.requests.try_recv().ok();
            member.answer_events();
            answer.try_recv().ok().map(|answer| answer.map(drop).unwrap_err().kind())
        };
        assert_eq!(answer_after(SourceErrorKind::Fatal), Some(SourceErrorKind::Fatal));
        assert_eq!(answer_after(SourceErrorKind::Transient), None);
    }

    #[test]
    fn a_change_of_a_partition_is_recorded() {
        let name = PartitionName { topic: "orders".into(), number: 0 };
        let assignment = Assignment::new(false);
        assignment.lock().partitions.insert(name.clone(), Partition::new(1));
        let member = Member::new(assignment.clone(), mpsc::unbounded_channel().1, 1, None, Names::Utf8);
        member.partition(&name, |partition| partition.is_paused = Some(true));
        assert_eq!(assignment.lock().partitions[&name].is_paused, Some(true));
    }
}
