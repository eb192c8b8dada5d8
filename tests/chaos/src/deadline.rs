//! Waiting: a limit that a busy machine only extends, and connections to a server that may be away.
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Far longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest wait, in multiples of its patience. A play that only creeps is broken, too.
const IN_ALL: u32 = 5;

/// A wait until nothing is left to do. The wait is in vain once what is left has not become less for some time.
#[derive(Debug)]
pub(crate) struct Progress {
    patience: Duration,
    began: Instant,
    least: u64,
    since: Instant,
}

impl Progress {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, began: Instant::now(), least: u64::MAX, since: Instant::now() }
    }

    /// Notes how much is left; `None` where that is not known.
    pub(crate) fn note(&mut self, left: Option<u64>) {
        if let Some(left) = left.filter(|left| *left < self.least) {
            (self.least, self.since) = (left, Instant::now());
        }
    }

    pub(crate) fn is_in_vain(&self) -> bool {
        self.since.elapsed() >= self.patience || self.began.elapsed() >= self.patience * IN_ALL
    }
}

/// Returns the result of the connection once the server can be reached.
pub(crate) async fn connected<T, E: Display, F: Future<Output = Result<T, E>>>(connect: impl Fn() -> F) -> T {
    loop {
        match connect().await {
            Ok(connected) => return connected,
            Err(error) => eprintln!("not connected: {error:#}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_less_than_ever_before_is_progress() {
        let mut progress = Progress::new(Duration::from_secs(10));
        for (left, is_in_vain) in [(Some(5), false), (Some(4), false), (None, false), (Some(4), true), (Some(3), false)]
        {
            tokio::time::advance(Duration::from_secs(6)).await;
            progress.note(left);
            assert_eq!(progress.is_in_vain(), is_in_vain, "{left:?}");
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        progress.note(Some(2));
        assert!(progress.is_in_vain(), "it creeps");
    }
}
