//! Logs of a relay without a database.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A subscriber that counts log events.
#[derive(Clone, Default)]
pub(crate) struct Told {
    warnings: Arc<AtomicUsize>,
    recoveries: Arc<AtomicUsize>,
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "idempotent"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        if *event.metadata().level() == Level::WARN && text.0.contains("relay round failed") {
            self.warnings.fetch_add(1, Ordering::SeqCst);
        }
        if text.0.contains("relay recovered") {
            self.recoveries.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Told {
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.warnings.load(Ordering::SeqCst), self.recoveries.load(Ordering::SeqCst))
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
