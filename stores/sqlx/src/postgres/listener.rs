//! The connection that receives notifications about settled keys. It is open while calls wait.
//!
//! For each waiting call, the connection holds a shared advisory lock of the key, in the lock space of the table. A statement
//! that settles a key tries to take this lock, and sends a notification only if the lock is not available (`sql::tell`). The
//! server releases the locks of a closed connection.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::__private::waiters::Waiters;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::sql::NotificationSettings;

/// The maximum number of keys that the connection holds locks for, as the server has room for some thousands in total. Calls
/// that wait for further keys poll.
const MOST: usize = 256;
/// The time after which an unused connection closes, and the interval of tests of a silent connection.
const IDLE: Duration = Duration::from_secs(2);

const LOCK: &str = "SELECT number FROM unnest($2::int4[]) AS number WHERE pg_try_advisory_lock_shared($1,number)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_shared($1,number) FROM unnest($2::int4[]) AS number";

/// The waiting calls of a store, and the channel to the listener task.
pub(super) struct SettlementListener {
    pub(super) waiters: Arc<Waiters>,
    options: PgConnectOptions,
    notifications: NotificationSettings,
    patience: Duration,
    listener: Mutex<Option<mpsc::UnboundedSender<ListenerRequest>>>,
}

enum ListenerRequest {
    Subscribe { number: i32, confirmed: oneshot::Sender<()> },
    Unsubscribe { number: i32 },
}

/// A subscription to notifications about a key, which ends on drop.
pub(super) struct Subscription {
    number: i32,
    listener: mpsc::UnboundedSender<ListenerRequest>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // A listener that has ended holds no locks.
        let _ = self.listener.send(ListenerRequest::Unsubscribe { number: self.number });
    }
}

impl SettlementListener {
    pub(super) fn new(options: PgConnectOptions, notifications: NotificationSettings, patience: Duration) -> Self {
        // The name shows the purpose of the connection in the server's views.
        let options = options.application_name("idempotent listener");
        Self { waiters: Arc::default(), options, notifications, patience, listener: Mutex::default() }
    }

    /// Subscribes to a key. Returns `None` if this is not possible now. A later settlement of the key sends a notification.
    pub(super) async fn subscribe(&self, hash: u128) -> Option<Subscription> {
        let (confirmed, answer) = oneshot::channel();
        let subscription = Subscription { number: number(hash), listener: self.listener() };
        subscription.listener.send(ListenerRequest::Subscribe { number: subscription.number, confirmed }).ok()?;
        answer.await.ok().map(|()| subscription)
    }

    /// Returns the channel to the running listener task, or starts a task.
    fn listener(&self) -> mpsc::UnboundedSender<ListenerRequest> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        match &*listener {
            Some(there) if !there.is_closed() => there.clone(),
            _ => {
                let (sender, requests) = mpsc::unbounded_channel();
                let (pool, notifications) = (self.pool(), self.notifications.clone());
                let task = ListenerTask {
                    pool,
                    notifications,
                    patience: self.patience,
                    waiters: self.waiters.clone(),
                    requests,
                };
                tokio::spawn(task.run());
                listener.insert(sender).clone()
            }
        }
    }

    /// Creates a pool with one connection, because sqlx listens only on connections of a pool.
    fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(self.patience);
        pool.max_lifetime(None).idle_timeout(None).connect_lazy_with(self.options.clone())
    }
}

// The options contain a password.
impl fmt::Debug for SettlementListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettlementListener")
            .field("waiters", &self.waiters)
            .field("notifications", &self.notifications)
            .finish_non_exhaustive()
    }
}

/// Returns the number of a key's lock, which `sql::tell` computes as well. Keys that share a number receive superfluous
/// notifications.
fn number(hash: u128) -> i32 {
    let [.., a, b, c, d] = hash.to_be_bytes();
    i32::from_be_bytes([a, b, c, d])
}

struct ListenerTask {
    pool: PgPool,
    notifications: NotificationSettings,
    patience: Duration,
    waiters: Arc<Waiters>,
    requests: mpsc::UnboundedReceiver<ListenerRequest>,
}

/// The waiting calls and the lock of a key.
#[derive(Default)]
struct KeyLock {
    waiting: usize,
    locked: bool,
}

type KeyLocks = HashMap<i32, KeyLock>;

impl ListenerTask {
    /// Runs until no call waits, or the connection is lost.
    async fn run(mut self) {
        // Every error means that the connection is lost. Waiting calls poll, and subscribe again.
        let _ = self.listen().await;
        self.requests.close();
        // Notifications may have been lost.
        self.waiters.wake_all();
        let _ = timeout(self.patience, self.pool.close()).await;
    }

    async fn listen(&mut self) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        // A new connection would not hold the locks.
        listener.eager_reconnect(false);
        let silent = |_| sqlx::Error::PoolTimedOut;
        timeout(self.patience, listener.listen(&self.notifications.channel)).await.map_err(silent)??;
        let (mut locks, mut requests) = (KeyLocks::new(), Vec::new());
        loop {
            tokio::select! {
                some = self.requests.recv_many(&mut requests, MOST) => {
                    if some == 0 {
                        // The store is gone.
                        return Ok(());
                    }
                    let change = self.change(&mut listener, &mut locks, requests.drain(..));
                    timeout(self.patience, change).await.map_err(silent)??;
                }
                notification = listener.try_recv() => match notification? {
                    Some(notification) => self.waiters.wake(u128::from_str_radix(notification.payload(), 16).unwrap_or_default()),
                    None => return Ok(()),
                },
                () = sleep(IDLE) => {
                    if locks.is_empty() {
                        return Ok(());
                    }
                    // Still there?
                    let tried = sqlx::query("SELECT 1").execute(&mut listener);
                    timeout(self.patience, tried).await.map_err(silent)??;
                }
            }
        }
    }

    /// Takes requested locks, releases unused locks, and confirms subscriptions.
    async fn change(
        &self,
        listener: &mut PgListener,
        locks: &mut KeyLocks,
        requests: impl Iterator<Item = ListenerRequest>,
    ) -> Result<(), sqlx::Error> {
        let mut confirmations = Vec::new();
        for request in requests {
            match request {
                ListenerRequest::Subscribe { number, confirmed } => {
                    locks.entry(number).or_default().waiting += 1;
                    confirmations.push((number, confirmed));
                }
                ListenerRequest::Unsubscribe { number } => {
                    if let Some(lock) = locks.get_mut(&number) {
                        lock.waiting -= 1;
                    }
                }
            }
        }
        self.unlock(listener, locks).await?;
        self.lock(listener, locks).await?;
        for (number, confirmed) in confirmations {
            if locks.get(&number).is_some_and(|lock| lock.locked) {
                let _ = confirmed.send(());
            }
        }
        Ok(())
    }

    async fn unlock(&self, listener: &mut PgListener, locks: &mut KeyLocks) -> Result<(), sqlx::Error> {
        let left = locks.extract_if(|_, lock| lock.waiting == 0);
        let numbers: Vec<i32> = left.filter(|(_, lock)| lock.locked).map(|(number, _)| number).collect();
        if !numbers.is_empty() {
            sqlx::query(UNLOCK).bind(self.notifications.space).bind(numbers).execute(listener).await?;
        }
        Ok(())
    }

    /// Takes locks. The lock of a key that is being settled is not available.
    async fn lock(&self, listener: &mut PgListener, locks: &mut KeyLocks) -> Result<(), sqlx::Error> {
        let room = MOST.saturating_sub(locks.values().filter(|lock| lock.locked).count());
        let wanted = locks.iter().filter(|(_, lock)| !lock.locked).map(|(number, _)| *number);
        let numbers: Vec<i32> = wanted.take(room).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let locked = sqlx::query_scalar::<_, i32>(LOCK).bind(self.notifications.space).bind(numbers);
        for number in locked.fetch_all(listener).await? {
            locks.entry(number).or_default().locked = true;
        }
        Ok(())
    }
}
