//! A sender that keeps what it gets, and alerts that go to it, on a virtual clock.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use idempotent_core::{Alert, AlertError, AlertKind, AlertSender, Alerts, AlertsBuilder, Clock};
use idempotent_testkit::VirtualClock;

pub const GATHER: Duration = Duration::from_secs(1);
pub const WINDOW: Duration = Duration::from_secs(300);

/// The behaviour of a sender at one call.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Fail,
    Panic,
    Hang,
}

#[derive(Clone, Debug, Default)]
pub struct Inbox(Arc<Mutex<Vec<Alert>>>, Arc<Mutex<VecDeque<Act>>>);

impl Inbox {
    pub fn alerts(&self) -> Vec<Alert> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the kind's name and the count of each alert.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.alerts().iter().map(|alert| (alert.kind.name(), alert.count)).collect()
    }

    pub fn will(&self, acts: &[Act]) {
        self.1.lock().unwrap().extend(acts);
    }
}

#[async_trait::async_trait]
impl AlertSender for Inbox {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        let act = self.1.lock().unwrap().pop_front();
        match act {
            Some(Act::Fail) => return Err(AlertError::new("503")),
            Some(Act::Panic) => panic!("a sender that panics"),
            Some(Act::Hang) => std::future::pending().await,
            None => {}
        }
        self.0.lock().unwrap().push(alert.clone());
        Ok(())
    }
}

/// Returns alerts on the system clock that are sent at once, and a channel with the kind of each.
pub fn into_channel() -> (Alerts, mpsc::Receiver<AlertKind>) {
    #[derive(Debug)]
    struct Kinds(mpsc::Sender<AlertKind>);

    #[async_trait::async_trait]
    impl AlertSender for Kinds {
        async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
            self.0.send(alert.kind).map_err(|_| AlertError::new("gone"))
        }
    }

    let (kinds, received) = mpsc::channel();
    (Alerts::builder().gather(Duration::ZERO).sender(Kinds(kinds)).start().unwrap(), received)
}

pub struct World {
    pub clock: VirtualClock,
    pub inbox: Inbox,
    pub alerts: Alerts,
}

impl World {
    pub fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub fn with(more: impl FnOnce(AlertsBuilder) -> AlertsBuilder) -> Self {
        let (clock, inbox) = (VirtualClock::new(), Inbox::default());
        let clock_of: Arc<dyn Clock> = Arc::new(clock.clone());
        let builder = Alerts::builder().clock(clock_of).gather(GATHER).window(WINDOW).sender(inbox.clone());
        Self { alerts: more(builder).start().unwrap(), clock, inbox }
    }
}
