//! Where connections come from: the store's own, or a pool of sqlx's.
//!
//! Not sqlx's pool for the store's own. That asks the server how a connection is each time it gets one back, which is one more
//! trip for each statement, and cannot be turned off; whoever comes next waits for it, or opens another connection.
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// Sets a connection up that was just made.
pub(crate) type Prepare<DB> =
    Box<dyn for<'c> Fn(&'c mut <DB as Database>::Connection) -> BoxFuture<'c, Result<(), sqlx::Error>> + Send + Sync>;

/// An older one is closed, so that what moves, a name or a balancer behind it, is followed.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// One that nobody needed for so long is closed, before somebody between here and the server forgets it.
const IDLE: Duration = Duration::from_secs(10 * 60);

pub(crate) enum Pool<DB: Database> {
    Own(Box<OwnPool<DB>>),
    Shared(sqlx::Pool<DB>),
}

/// Its options hold a password.
impl<DB: Database> fmt::Debug for Pool<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(own) => f.debug_struct("Own").field("idle", &own.idle().len()).finish_non_exhaustive(),
            Self::Shared(_) => f.write_str("Theirs"),
        }
    }
}

/// Up to so many connections, made when needed.
pub(crate) struct OwnPool<DB: Database> {
    options: Options<DB>,
    prepare: Option<Prepare<DB>>,
    permits: Semaphore,
    /// The one that came back last is at the end, and is the next to go.
    idle: Mutex<VecDeque<PooledConnection<DB>>>,
}

pub(crate) struct PooledConnection<DB: Database> {
    connection: DB::Connection,
    born: Instant,
    since: Instant,
}

/// A connection for one statement. Closed when dropped: whoever got it next would wait for an answer that is outstanding.
pub(crate) enum PoolGuard<'a, DB: Database> {
    Own(Box<PooledConnection<DB>>, &'a OwnPool<DB>, SemaphorePermit<'a>),
    Shared(SqlxConnection<DB>),
}

impl<DB: Database> Pool<DB> {
    pub(crate) fn own(options: Options<DB>, connections: u32, prepare: Option<Prepare<DB>>) -> Self {
        let permits = Semaphore::new((connections as usize).min(Semaphore::MAX_PERMITS));
        Self::Own(Box::new(OwnPool { options, prepare, permits, idle: Mutex::default() }))
    }

    /// None: no connection within `patience`. That none was free is an error, as it is of a pool of sqlx.
    pub(super) async fn acquire(&self, patience: Duration) -> Result<Option<PoolGuard<'_, DB>>, sqlx::Error> {
        match self {
            Self::Own(own) => {
                let place = timeout(patience, own.permits.acquire()).await.map_err(|_| sqlx::Error::PoolTimedOut)?;
                let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
                let connection = match own.take() {
                    Some(connection) => connection,
                    None => match timeout(patience, PooledConnection::new(own)).await {
                        Ok(made) => made?,
                        Err(_) => return Ok(None),
                    },
                };
                Ok(Some(PoolGuard::Own(Box::new(connection), own, place)))
            }
            Self::Shared(pool) => match timeout(patience, pool.acquire()).await {
                Ok(connection) => Ok(Some(PoolGuard::Shared(SqlxConnection(Some(connection?))))),
                Err(_) => Ok(None),
            },
        }
    }
}

impl<DB: Database> OwnPool<DB> {
    fn take(&self) -> Option<PooledConnection<DB>> {
        let mut idle = self.idle();
        let connection = idle.pop_back()?;
        if connection.since.elapsed() < IDLE {
            return Some(connection);
        }
        // Those before it have waited longer still.
        idle.clear();
        None
    }

    fn keep(&self, connection: PooledConnection<DB>) {
        let mut idle = self.idle();
        if connection.born.elapsed() < LIFETIME {
            idle.push_back(PooledConnection { since: Instant::now(), ..connection });
        }
        // One at a time: what a burst needed goes away.
        if idle.front().is_some_and(|first| first.since.elapsed() >= IDLE) {
            idle.pop_front();
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<PooledConnection<DB>>> {
        // Nothing under this lock panics halfway.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Database> PooledConnection<DB> {
    async fn new(own: &OwnPool<DB>) -> Result<Self, sqlx::Error> {
        let mut connection = DB::Connection::connect_with(&own.options).await?;
        if let Some(prepare) = &own.prepare {
            prepare(&mut connection).await?;
        }
        let now = Instant::now();
        Ok(Self { connection, born: now, since: now })
    }
}

impl<DB: Database> PoolGuard<'_, DB> {
    /// None only behind its end.
    pub(super) fn connection(&mut self) -> Option<&mut DB::Connection> {
        match self {
            Self::Own(connection, ..) => Some(&mut connection.connection),
            Self::Shared(connection) => connection.0.as_deref_mut(),
        }
    }

    /// Nothing is outstanding on it.
    pub(super) fn give_back(self) {
        match self {
            // Kept before its place is free, or whoever waits for that would open another one.
            Self::Own(connection, own, _place) => own.keep(*connection),
            Self::Shared(mut connection) => drop(connection.0.take()),
        }
    }

    /// The server ended it, or it broke; so, most likely, it is with those that are idle.
    pub(super) fn lost(self) {
        if let Self::Own(_, own, _) = &self {
            own.idle().clear();
        }
    }
}

/// One of sqlx's pool, closed unless it is given back.
pub(crate) struct SqlxConnection<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: Database> Drop for SqlxConnection<DB> {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}
