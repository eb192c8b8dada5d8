//! Alerts out of the events of runs.
use super::{Alert, AlertKind, Alerts};
use crate::{Event, Observer, RunInfo};

/// An observer that raises alerts of held and broken order, parked steps, blocked runtimes and lost leases.
///
/// ```
/// use idempotent_core::{AlertObserver, Alerts, Executor, MemoryStore, Tracing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let alerts = Alerts::builder().start()?;
/// let executor = Executor::builder(MemoryStore::new()).observer((Tracing, AlertObserver::new(&alerts))).build()?;
/// # drop(executor);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AlertObserver {
    alerts: Alerts,
}

impl AlertObserver {
    /// Returns an observer that raises its alerts here.
    #[must_use]
    pub fn new(alerts: &Alerts) -> Self {
        Self { alerts: alerts.clone() }
    }
}

impl Observer for AlertObserver {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let (kind, cause, detail) = match event {
            Event::OrderBroken { why, skipped: false } => (AlertKind::OrderHeld, Some(why.text()), None),
            Event::OrderBroken { why, skipped: true } => (AlertKind::OrderBroken, Some(why.text()), None),
            Event::StepsParked { error } => (AlertKind::StepsParked, None, Some((*error).to_owned())),
            Event::RuntimeBlocked { .. } => (AlertKind::RuntimeBlocked, None, None),
            Event::LeaseLost => (AlertKind::LeaseLost, None, None),
            _ => return,
        };
        let mut alert = Alert::new(kind, run.scope.to_owned(), self.alerts.now());
        alert.cause = cause;
        self.alerts.raise(match detail {
            Some(detail) => alert.with_detail(detail),
            None => alert,
        });
    }
}
