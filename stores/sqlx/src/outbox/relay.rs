//! The relay, which sends the messages of an outbox.
mod round;
mod run_loop;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent_core::{AlertLog, AlertSender, Clock, SystemClock};
use idempotent_mq::Publish;
use tokio::sync::Semaphore;

use super::database::OutboxDb;
use super::{Outbox, ResendPolicy};

/// A relay: sends the messages of an [`Outbox`], and resends them until they are confirmed or given up.
///
/// Run any number of relays, in one process or several: only one relay leases a message at a time. A relay looks for
/// due messages as soon as its process [writes](Outbox::enqueue) one, and otherwise at every [poll](Self::poll).
///
/// Messages are sent at least once: if a relay dies between the send and the update of the row, another relay sends
/// the message again with the same id. The first sends of the messages of an aggregate are in the order of writing;
/// resends are not. A message that is given up before it was ever sent blocks the later messages of its aggregate
/// until an operator [resends](Outbox::resend) or [voids](Outbox::void) it.
pub struct Relay<Db: OutboxDb> {
    outbox: Outbox<Db>,
    publisher: Arc<dyn Publish>,
    alerts: Arc<dyn AlertSender>,
    /// The permits of batches of given-up messages that wait for their alerts.
    alerting: Arc<Semaphore>,
    resends: ResendPolicy,
    clock: Arc<dyn Clock>,
    batch: u32,
    lease: Duration,
    poll: Duration,
    totals: RelayCounters,
}

/// The first delay after a message was written: its transaction may commit at any moment.
const EAGER_DELAY: Duration = Duration::from_millis(2);
/// The maximum number of batches of given-up messages that wait for their alerts.
const MAX_ALERTING: u32 = 8;
/// The maximum lease and poll interval: their ends are representable times.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// A handle on the counts of a relay, valid while the relay runs and afterwards. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct RelayCounters(Arc<RelayTotals>);

/// The totals of all rounds.
#[derive(Debug, Default)]
struct RelayTotals {
    sent: AtomicU64,
    failed: AtomicU64,
    given_up: AtomicU64,
    alerts_failed: AtomicU64,
}

/// The number of messages that a relay has processed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Sends that the broker confirmed.
    pub sent: u64,
    /// Sends that the broker did not confirm.
    pub failed: u64,
    /// Messages that were given up, each with an alert.
    pub given_up: u64,
    /// Alerts of these messages that the sender is not known to have accepted. They are logged, and the messages are marked.
    pub alerts_failed: u64,
}

/// The result of one [round](Relay::round).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RelayRound {
    /// Messages that were due.
    pub looked_at: usize,
    /// Messages that the broker confirmed.
    pub sent: usize,
    /// Messages that the broker did not confirm; the relay sends them again.
    pub failed: usize,
    /// Messages among `failed` that were refused, by the broker or by the publisher itself.
    pub refused: usize,
    /// Messages that were given up. They are marked once their alerts are sent, which may be after the round.
    pub given_up: usize,
}

impl<Db: OutboxDb> Relay<Db> {
    /// Creates a relay that sends the messages of `outbox` with `publisher`.
    pub fn new(outbox: &Outbox<Db>, publisher: Arc<dyn Publish>) -> Self {
        Self {
            outbox: outbox.clone(),
            publisher,
            alerts: Arc::new(AlertLog::new().with_details()),
            alerting: Arc::new(Semaphore::new(MAX_ALERTING as usize)),
            resends: ResendPolicy::default(),
            clock: Arc::new(SystemClock::new()),
            batch: 100,
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            totals: RelayCounters::default(),
        }
    }

    /// Sets when messages are resent, and how often.
    ///
    /// # Default
    /// [`ResendPolicy::default`]
    #[must_use]
    pub fn resends(mut self, resends: ResendPolicy) -> Self {
        self.resends = resends;
        self
    }

    /// Sets the destination of an alert for each message that is given up: [`Alerts`](idempotent_core::Alerts), which groups
    /// them with those of other sources, or any other sender, which gets one alert for each message.
    ///
    /// The alert is sent before the message is marked, so that it is sent twice rather than never if the relay dies in
    /// between. The mark waits for the alert for up to 10 s, and the [round](Self::round) does not wait. An alert that `Alerts`
    /// suppresses, or that its rate holds back, is in memory only: a relay that is killed loses the alert, not the message.
    ///
    /// While eight batches of given-up messages wait for their alerts, further ones are given up in later rounds. An alert that the
    /// sender does not accept in time is logged and [counted](RelayCounts::alerts_failed). A panic of the sender is such a failure.
    ///
    /// # Default
    /// [`AlertLog`] with details: the text of the publisher's last error
    #[must_use]
    pub fn alerts(mut self, sender: Arc<dyn AlertSender>) -> Self {
        self.alerts = sender;
        self
    }

    /// Sets the maximum number of messages that are leased and sent together: 1 to 1,000. [`run`](Self::run)
    /// processes up to three batches at once, and keeps them in memory.
    ///
    /// # Default
    /// 100
    #[must_use]
    pub fn batch(mut self, messages: u32) -> Self {
        self.batch = messages.clamp(1, 1_000);
        self
    }

    /// Sets how long other relays wait for the messages of a relay that died. The publisher has two thirds of this
    /// time to answer; messages without an answer count as unconfirmed. 10 ms to 24 h; other values are clamped.
    ///
    /// # Default
    /// 60 s
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(Duration::from_millis(10), LONGEST);
        self
    }

    /// Sets how often the relay looks for messages that other processes have written, with a jitter of 20 %. 2 ms to
    /// 24 h; other values are clamped.
    ///
    /// # Default
    /// 1 s
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll.clamp(EAGER_DELAY, LONGEST);
        self
    }

    /// Sets the clock for the waits between looks. The outbox's clock still decides which messages are due.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.totals.counts()
    }

    /// Returns a handle on the totals, which also works while the relay runs.
    #[must_use]
    pub fn counters(&self) -> RelayCounters {
        self.totals.clone()
    }
}

impl RelayCounters {
    /// Returns the totals so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        RelayCounts {
            sent: of(&self.0.sent),
            failed: of(&self.0.failed),
            given_up: of(&self.0.given_up),
            alerts_failed: of(&self.0.alerts_failed),
        }
    }

    fn add_failed_alerts(&self, alerts: usize) {
        self.0.alerts_failed.fetch_add(alerts as u64, Ordering::Relaxed);
    }

    fn add(&self, round: &RelayRound) {
        self.0.sent.fetch_add(round.sent as u64, Ordering::Relaxed);
        self.0.failed.fetch_add(round.failed as u64, Ordering::Relaxed);
        self.0.given_up.fetch_add(round.given_up as u64, Ordering::Relaxed);
    }
}

impl<Db: OutboxDb> fmt::Debug for Relay<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("outbox", &self.outbox)
            .field("publisher", &self.publisher)
            .finish_non_exhaustive()
    }
}
