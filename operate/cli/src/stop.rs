//! The signals that end a command: SIGINT, which Ctrl-C sends, and SIGTERM.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::failure::{Failure, Signal};
use crate::output;

/// A request to end the command. Clones share the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopRequest(Arc<RequestState>);

#[derive(Debug, Default)]
struct RequestState {
    signal: OnceLock<Signal>,
    /// The command ends by itself after its current step.
    ends_itself: AtomicBool,
    /// Wakes the command from a wait.
    wake: Notify,
}

impl StopRequest {
    /// Declares that the command checks this request between its steps, and prints its summary. The first signal then leaves
    /// the current step running. A second signal ends the command at once.
    pub(crate) fn finish_steps(&self) {
        self.0.ends_itself.store(true, Ordering::Relaxed);
    }

    /// Returns whether a signal has arrived.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.signal.get().is_some()
    }

    /// Returns an error if a signal has arrived.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.0.signal.get().map_or(Ok(()), |signal| Err(Failure::Interrupted(*signal)))
    }

    /// Waits for this time, or until a signal arrives. One wait at a time.
    pub(crate) async fn wait(&self, time: std::time::Duration) {
        if !self.is_requested() {
            // A signal before the wait has left its permit.
            let _ = tokio::time::timeout(time, self.0.wake.notified()).await;
        }
    }

    /// Records a signal. Returns whether the command has to end at once.
    pub(crate) fn request(&self, signal: Signal) -> bool {
        let is_second = self.0.signal.set(signal).is_err();
        self.0.wake.notify_one();
        is_second || !self.0.ends_itself.load(Ordering::Relaxed)
    }

    /// Waits for the signal that ends the command at once.
    pub(crate) async fn received(&self) -> Failure {
        let mut signals = Signals::listen();
        loop {
            let signal = signals.next().await;
            if self.request(signal) {
                return Failure::Interrupted(signal);
            }
            output::note("interrupted: the current step ends first; a second signal ends the command at once");
        }
    }
}

/// The signals of this process.
#[cfg(unix)]
struct Signals([Option<tokio::signal::unix::Signal>; 2]);

#[cfg(unix)]
impl Signals {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};

        // Without a listener, the signal ends the process at once.
        Self([SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok()))
    }

    async fn next(&mut self) -> Signal {
        async fn one(listener: &mut Option<tokio::signal::unix::Signal>) {
            let received = match listener {
                Some(listener) => listener.recv().await,
                None => None,
            };
            if received.is_none() {
                std::future::pending::<()>().await;
            }
        }
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            () = one(interrupt) => Signal::Interrupt,
            () = one(terminate) => Signal::Terminate,
        }
    }
}

/// The signals of this process.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_takes_its_time_unless_a_signal_has_arrived() {
        let (stop, start, hour) = (StopRequest::default(), Instant::now(), Duration::from_secs(3600));
        stop.wait(hour).await;
        assert_eq!(start.elapsed(), hour);
        stop.request(Signal::Interrupt);
        stop.wait(hour).await;
        assert_eq!(start.elapsed(), hour);
    }

    #[test]
    fn a_signal_ends_a_command_at_once_unless_its_steps_end_first() {
        assert!(StopRequest::default().request(Signal::Interrupt));
        let stop = StopRequest::default();
        stop.finish_steps();
        assert!(stop.check().is_ok() && !stop.is_requested());
        assert!(!stop.request(Signal::Terminate) && stop.is_requested());
        assert!(matches!(stop.check(), Err(Failure::Interrupted(Signal::Terminate))));
        assert!(stop.request(Signal::Interrupt), "a second signal ends the command at once");
    }
}
