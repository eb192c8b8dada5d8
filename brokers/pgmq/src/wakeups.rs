//! The times at which an idle source looks for messages.
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::connections::ANSWER;

/// The first pause of a source that has found no message. The pause doubles up to the polling interval.
const FIRST: Duration = Duration::from_millis(10);

/// The pauses of a source, which a notification ends.
#[derive(Debug)]
pub(crate) struct Wakeups {
    listener: Option<Listener>,
    poll: Duration,
    pause: Duration,
}

/// A task with a connection that receives notifications.
#[derive(Debug)]
struct Listener {
    notified: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Wakeups {
    pub(crate) fn new(poll: Duration) -> Self {
        Self { listener: None, poll, pause: FIRST.min(poll) }
    }

    /// Listens on a channel of PGMQ, which has a message for each new message or less often.
    pub(crate) fn listen(&mut self, options: PgConnectOptions, channel: String) {
        let notified = Arc::<Notify>::default();
        let task = tokio::spawn(listen(options, channel, notified.clone()));
        self.listener = Some(Listener { notified, task });
    }

    /// Returns true if a notification ends a pause.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some()
    }

    /// Waits until the source should look for messages.
    ///
    /// # Cancellation
    /// The pause is cut short.
    pub(crate) async fn wait(&mut self) {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.poll);
        match &self.listener {
            Some(listener) => tokio::select! {
                () = listener.notified.notified() => self.found(),
                () = sleep(pause) => {}
            },
            None => sleep(pause).await,
        }
    }

    /// Begins with short pauses again, because the source has found a message.
    pub(crate) fn found(&mut self) {
        self.pause = FIRST.min(self.poll);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens, and connects again after an error. Without a connection, the source polls.
async fn listen(options: PgConnectOptions, channel: String, notified: Arc<Notify>) {
    // sqlx listens only on connections of a pool.
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER).max_lifetime(None).idle_timeout(None);
    let pool = pool.connect_lazy_with(options.application_name("idempotent listener"));
    loop {
        if let Err(error) = listen_until_lost(&pool, &channel, &notified).await {
            tracing::debug!(target: "idempotent", %error, "pgmq: no notifications; the source polls");
        }
        sleep(Duration::from_secs(1)).await;
    }
}

async fn listen_until_lost(pool: &sqlx::PgPool, channel: &str, notified: &Notify) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    // Messages may have arrived before.
    notified.notify_one();
    while listener.try_recv().await?.is_some() {
        notified.notify_one();
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::str::FromStr;

    use idempotent_harness::servers::PostgresServer;

    use super::*;

    #[tokio::test]
    async fn a_notification_ends_a_pause() {
        let server = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap();
        let mut wakeups = Wakeups::new(Duration::from_secs(3600));
        wakeups.pause = wakeups.poll;
        wakeups.listen(PgConnectOptions::from_str(&server.url()).unwrap(), "pgmq.q_orders.INSERT".to_owned());
        for _ in 0..2 {
            // The first one is about the messages before the subscription.
            tokio::time::timeout(Duration::from_secs(60), wakeups.wait()).await.unwrap();
            wakeups.pause = wakeups.poll;
            server.psql("postgres", "NOTIFY \"pgmq.q_orders.INSERT\"");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_polling_interval_and_begin_again_after_a_message() {
        let mut wakeups = Wakeups::new(Duration::from_millis(30));
        for expected in [10, 20, 30, 30] {
            let start = tokio::time::Instant::now();
            wakeups.wait().await;
            assert_eq!(start.elapsed(), Duration::from_millis(expected));
        }
        wakeups.found();
        assert_eq!(wakeups.pause, FIRST);
    }
}
