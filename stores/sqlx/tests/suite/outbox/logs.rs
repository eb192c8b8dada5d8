//! Logs of a relay without a database.
use std::time::Duration;

use idempotent_harness::LogLines;

/// The log of a relay.
#[derive(Clone, Default)]
pub(crate) struct Told(pub(crate) LogLines);

impl Told {
    pub(crate) fn counts(&self) -> (usize, usize) {
        let said = self.0.text();
        let of_warnings = said.lines().filter(|line| line.starts_with("idempotent WARN"));
        let warnings = of_warnings.filter(|line| line.contains("relay round failed")).count();
        (warnings, said.matches("relay recovered").count())
    }

    /// Waits for at least so many outages, of which as many have not ended. A connection that breaks late is one more outage,
    /// with an end of its own.
    pub(crate) async fn comes_to(&self, wanted: (usize, usize)) {
        let so = || {
            let (outages, ends) = self.counts();
            outages >= wanted.0 && outages == ends + (wanted.0 - wanted.1)
        };
        until(async || so(), &format!("{wanted:?}")).await;
    }
}

pub(crate) async fn until(so: impl AsyncFn() -> bool, what: &str) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waiting).await.unwrap_or_else(|_| panic!("still not: {what}"));
}
