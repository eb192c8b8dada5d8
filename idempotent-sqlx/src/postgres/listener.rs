//! The connection that is told what was settled, open while somebody waits.
//!
//! A waiter leaves word in the server that it waits: its connection holds the shared lock of the key, in a space of locks
//! of the table's. Who settles the key tries for that lock, and tells only where it is not to be had (`sql::tell`). A
//! connection that ends takes its locks with it, so nobody is told in vain for long.
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

/// Keys that one connection holds locks for: the server has room for some thousands in all. Who waits for another one
/// looks again and again instead.
const MOST: usize = 256;
/// How long the connection stays when nobody waits any more, and how often one that is silent is tried.
const IDLE: Duration = Duration::from_secs(2);

const LOCK: &str = "SELECT number FROM unnest($2::int4[]) AS number WHERE pg_try_advisory_lock_shared($1,number)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_shared($1,number) FROM unnest($2::int4[]) AS number";

/// Waiters of a store, and the way to its listener.
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

/// Word was left: whoever settles the key tells. Taken back when dropped.
pub(super) struct Subscription {
    number: i32,
    listener: mpsc::UnboundedSender<ListenerRequest>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // A listener that has ended holds nothing.
        let _ = self.listener.send(ListenerRequest::Unsubscribe { number: self.number });
    }
}

impl SettlementListener {
    pub(super) fn new(options: PgConnectOptions, notifications: NotificationSettings, patience: Duration) -> Self {
        // So that whoever looks at the server knows what it is for.
        let options = options.application_name("idempotent listener");
        Self { waiters: Arc::default(), options, notifications, patience, listener: Mutex::default() }
    }

    /// Leaves word; none where that cannot be done now. Whoever settles the key after that tells.
    pub(super) async fn subscribe(&self, hash: u128) -> Option<Subscription> {
        let (confirmed, answer) = oneshot::channel();
        let subscription = Subscription { number: number(hash), listener: self.listener() };
        subscription.listener.send(ListenerRequest::Subscribe { number: subscription.number, confirmed }).ok()?;
        answer.await.ok().map(|()| subscription)
    }

    /// The one there is, or a new one.
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

    /// Of one connection, since sqlx listens on a pool's only.
    fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(self.patience);
        pool.max_lifetime(None).idle_timeout(None).connect_lazy_with(self.options.clone())
    }
}

/// Its options hold a password.
impl fmt::Debug for SettlementListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears").field("bells", &self.waiters).field("words", &self.notifications).finish()
    }
}

/// The number of a key's lock; `sql::tell` has the same. Keys that share one are told of each other for nothing.
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

/// Those who wait for a key.
#[derive(Default)]
struct KeyLock {
    waiting: usize,
    locked: bool,
}

type KeyLocks = HashMap<i32, KeyLock>;

impl ListenerTask {
    /// Until nobody waits any more, or the connection is lost.
    async fn run(mut self) {
        // An error says that it was lost, whatever it is: whoever still waits looks, and begins anew.
        let _ = self.listen().await;
        self.requests.close();
        // What was told since is not known.
        self.waiters.wake_all();
        let _ = timeout(self.patience, self.pool.close()).await;
    }

    async fn listen(&mut self) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        // A second connection would hold none of the locks.
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

    /// Takes the locks that are asked for, gives back those that nobody needs, and answers.
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

    /// One that is not to be had is that of a key which is being settled right now.
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
