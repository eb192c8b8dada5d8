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

use super::sql::Words;

/// Keys that one connection holds locks for: the server has room for some thousands in all. Who waits for another one
/// looks again and again instead.
const MOST: usize = 256;
/// How long the connection stays when nobody waits any more, and how often one that is silent is tried.
const IDLE: Duration = Duration::from_secs(2);

const LOCK: &str = "SELECT number FROM unnest($2::int4[]) AS number WHERE pg_try_advisory_lock_shared($1,number)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_shared($1,number) FROM unnest($2::int4[]) AS number";

/// Waiters of a store, and the way to its listener.
pub(super) struct Ears {
    pub(super) bells: Arc<Waiters>,
    options: PgConnectOptions,
    words: Words,
    patience: Duration,
    listener: Mutex<Option<mpsc::UnboundedSender<Ask>>>,
}

enum Ask {
    Hear { number: i32, told: oneshot::Sender<()> },
    Leave { number: i32 },
}

/// Word was left: whoever settles the key tells. Taken back when dropped.
pub(super) struct Heard {
    number: i32,
    listener: mpsc::UnboundedSender<Ask>,
}

impl Drop for Heard {
    fn drop(&mut self) {
        // A listener that has ended holds nothing.
        let _ = self.listener.send(Ask::Leave { number: self.number });
    }
}

impl Ears {
    pub(super) fn new(options: PgConnectOptions, words: Words, patience: Duration) -> Self {
        // So that whoever looks at the server knows what it is for.
        let options = options.application_name("idempotent listener");
        Self { bells: Arc::default(), options, words, patience, listener: Mutex::default() }
    }

    /// Leaves word; none where that cannot be done now. Whoever settles the key after that tells.
    pub(super) async fn hear(&self, hash: u128) -> Option<Heard> {
        let (told, answer) = oneshot::channel();
        let heard = Heard { number: number(hash), listener: self.listener() };
        heard.listener.send(Ask::Hear { number: heard.number, told }).ok()?;
        answer.await.ok().map(|()| heard)
    }

    /// The one there is, or a new one.
    fn listener(&self) -> mpsc::UnboundedSender<Ask> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        match &*listener {
            Some(there) if !there.is_closed() => there.clone(),
            _ => {
                let (sender, asks) = mpsc::unbounded_channel();
                let (pool, words) = (self.pool(), self.words.clone());
                let task = Task { pool, words, patience: self.patience, bells: self.bells.clone(), asks };
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
impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears").field("bells", &self.bells).field("words", &self.words).finish()
    }
}

/// The number of a key's lock; `sql::tell` has the same. Keys that share one are told of each other for nothing.
fn number(hash: u128) -> i32 {
    let [.., a, b, c, d] = hash.to_be_bytes();
    i32::from_be_bytes([a, b, c, d])
}

struct Task {
    pool: PgPool,
    words: Words,
    patience: Duration,
    bells: Arc<Waiters>,
    asks: mpsc::UnboundedReceiver<Ask>,
}

/// Those who wait for a key.
#[derive(Default)]
struct Place {
    waiting: usize,
    locked: bool,
}

type Places = HashMap<i32, Place>;

impl Task {
    /// Until nobody waits any more, or the connection is lost.
    async fn run(mut self) {
        // An error says that it was lost, whatever it is: whoever still waits looks, and begins anew.
        let _ = self.listen().await;
        self.asks.close();
        // What was told since is not known.
        self.bells.wake_all();
        let _ = timeout(self.patience, self.pool.close()).await;
    }

    async fn listen(&mut self) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        // A second connection would hold none of the locks.
        listener.eager_reconnect(false);
        let silent = |_| sqlx::Error::PoolTimedOut;
        timeout(self.patience, listener.listen(&self.words.channel)).await.map_err(silent)??;
        let (mut places, mut asks) = (Places::new(), Vec::new());
        loop {
            tokio::select! {
                some = self.asks.recv_many(&mut asks, MOST) => {
                    if some == 0 {
                        // The store is gone.
                        return Ok(());
                    }
                    let change = self.change(&mut listener, &mut places, asks.drain(..));
                    timeout(self.patience, change).await.map_err(silent)??;
                }
                word = listener.try_recv() => match word? {
                    Some(word) => self.bells.wake(u128::from_str_radix(word.payload(), 16).unwrap_or_default()),
                    None => return Ok(()),
                },
                () = sleep(IDLE) => {
                    if places.is_empty() {
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
        places: &mut Places,
        asks: impl Iterator<Item = Ask>,
    ) -> Result<(), sqlx::Error> {
        let mut answers = Vec::new();
        for ask in asks {
            match ask {
                Ask::Hear { number, told } => {
                    places.entry(number).or_default().waiting += 1;
                    answers.push((number, told));
                }
                Ask::Leave { number } => {
                    if let Some(place) = places.get_mut(&number) {
                        place.waiting -= 1;
                    }
                }
            }
        }
        self.unlock(listener, places).await?;
        self.lock(listener, places).await?;
        for (number, told) in answers {
            if places.get(&number).is_some_and(|place| place.locked) {
                let _ = told.send(());
            }
        }
        Ok(())
    }

    async fn unlock(&self, listener: &mut PgListener, places: &mut Places) -> Result<(), sqlx::Error> {
        let left = places.extract_if(|_, place| place.waiting == 0);
        let numbers: Vec<i32> = left.filter(|(_, place)| place.locked).map(|(number, _)| number).collect();
        if !numbers.is_empty() {
            sqlx::query(UNLOCK).bind(self.words.space).bind(numbers).execute(listener).await?;
        }
        Ok(())
    }

    /// One that is not to be had is that of a key which is being settled right now.
    async fn lock(&self, listener: &mut PgListener, places: &mut Places) -> Result<(), sqlx::Error> {
        let room = MOST.saturating_sub(places.values().filter(|place| place.locked).count());
        let wanted = places.iter().filter(|(_, place)| !place.locked).map(|(number, _)| *number);
        let numbers: Vec<i32> = wanted.take(room).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let locked = sqlx::query_scalar::<_, i32>(LOCK).bind(self.words.space).bind(numbers);
        for number in locked.fetch_all(listener).await? {
            places.entry(number).or_default().locked = true;
        }
        Ok(())
    }
}
