//! Sending what is in the outbox.
mod round;
mod run_loop;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent_core::{AlertLog, AlertSender, Clock, SystemClock};
use idempotent_mq::Publish;

use super::database::OutboxDb;
use super::{Outbox, ResendPolicy};

/// Sends the messages of an [`Outbox`], first and again, until they are confirmed or given up.
///
/// Run as many as you like, in one process or several: a message is leased by one of them at a time. Each looks for what is
/// due, at once after a message was [written](Outbox::enqueue) in its process and else every [poll](Self::poll).
///
/// At least once: one that dies between sending and noting it sends again, under the same id. Messages of one aggregate are
/// sent for the first time in the order they were written; what is sent *again* comes out of turn by nature. One that is given up
/// before it was ever sent holds those behind it back until somebody [resends](Outbox::resend) or [voids](Outbox::void) it.
pub struct Relay<Db: OutboxDb> {
    outbox: Outbox<Db>,
    publisher: Arc<dyn Publish>,
    alerts: Arc<dyn AlertSender>,
    resends: ResendPolicy,
    clock: Arc<dyn Clock>,
    batch: u32,
    lease: Duration,
    poll: Duration,
    totals: RelayTotals,
}

/// After a message was written: its transaction may commit in a moment.
const EAGER_DELAY: Duration = Duration::from_millis(2);
/// The longest lease and poll: a time of day can be told of their ends.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// What rounds have come to so far.
#[derive(Debug, Default)]
struct RelayTotals {
    sent: AtomicU64,
    failed: AtomicU64,
    given_up: AtomicU64,
}

/// What a relay has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Sendings that the broker confirmed.
    pub sent: u64,
    /// Those it did not.
    pub failed: u64,
    /// Messages that were given up, each with an alert.
    pub given_up: u64,
}

/// What one [round](Relay::round) came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RelayRound {
    /// Messages that were due.
    pub looked_at: usize,
    /// Confirmed by the broker.
    pub sent: usize,
    /// Not confirmed: they are sent again.
    pub failed: usize,
    /// Messages among `failed` that were refused, by the broker or by the publisher itself.
    pub refused: usize,
    /// Given up.
    pub given_up: usize,
}

impl<Db: OutboxDb> Relay<Db> {
    /// A relay of this outbox to this broker.
    pub fn new(outbox: &Outbox<Db>, publisher: Arc<dyn Publish>) -> Self {
        Self {
            outbox: outbox.clone(),
            publisher,
            alerts: Arc::new(AlertLog::new().with_details()),
            resends: ResendPolicy::default(),
            clock: Arc::new(SystemClock::new()),
            batch: 100,
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            totals: RelayTotals::default(),
        }
    }

    /// When messages are sent again, and how often.
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
    /// between. The relay waits for it for up to 10 s. An alert that `Alerts` suppresses is counted in memory only: a relay
    /// that is killed loses that count, not the message.
    ///
    /// # Default
    /// [`AlertLog`] with details: the text of the publisher's last error
    #[must_use]
    pub fn alerts(mut self, sender: Arc<dyn AlertSender>) -> Self {
        self.alerts = sender;
        self
    }

    /// How many messages are leased and sent together at most: 1 to 1,000. [`run`](Self::run) has up to three times as many under
    /// way, and in memory.
    ///
    /// # Default
    /// 100
    #[must_use]
    pub fn batch(mut self, messages: u32) -> Self {
        self.batch = messages.clamp(1, 1_000);
        self
    }

    /// How long a relay that died keeps others from sending what it had leased. Two thirds of it are the publisher's to answer
    /// in: what it has not answered by then counts as unconfirmed. 10 ms to 24 h; other values become the nearest of these.
    ///
    /// # Default
    /// 60 s
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(Duration::from_millis(10), LONGEST);
        self
    }

    /// How often it looks for what other processes have written, spread by a fifth up and down. 2 ms to 24 h; other values
    /// become the nearest of these.
    ///
    /// # Default
    /// 1 s
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll.clamp(EAGER_DELAY, LONGEST);
        self
    }

    /// What it waits by between looks; not what is due, which is the outbox's time.
    ///
    /// # Default
    /// [`SystemClock`]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        RelayCounts {
            sent: of(&self.totals.sent),
            failed: of(&self.totals.failed),
            given_up: of(&self.totals.given_up),
        }
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
