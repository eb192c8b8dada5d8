//! Connection pools: the store's own pool, or a pool of sqlx.
//!
//! The store does not use sqlx's pool for its own connections. sqlx tests each returned connection on the server. This test is
//! an additional round trip for each statement, and cannot be turned off. The next caller waits for the test, or opens another
//! connection.
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
#[cfg(any(feature = "delay", feature = "outbox"))]
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

#[cfg(any(feature = "delay", feature = "outbox"))]
use super::driver::Driver;

type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// A function that configures a new connection.
pub(crate) type Prepare<DB> =
    Box<dyn for<'c> Fn(&'c mut <DB as Database>::Connection) -> BoxFuture<'c, Result<(), sqlx::Error>> + Send + Sync>;

/// The maximum age of a connection. Reconnecting follows changes of DNS names and load balancers.
const LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The maximum idle time of a connection, after which network devices may drop it.
const IDLE: Duration = Duration::from_secs(10 * 60);

pub(crate) enum Pool<DB: Database> {
    Own(Box<OwnPool<DB>>),
    Shared(SharedPool<DB>),
}

/// A pool of the user's.
pub(crate) struct SharedPool<DB: Database> {
    pool: sqlx::Pool<DB>,
    /// The number of transactions that close the idle connections before they begin, since a server of the pool took no writes.
    renewals: AtomicU32,
}

/// The time of the last answer that the server takes no writes. Connections from before may lead to a primary that was demoted
/// while they were open. New ones follow the address.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRefusal(Arc<Mutex<Option<Instant>>>);

impl LastRefusal {
    /// Returns true if a connection of this age was opened before the last refusal.
    pub(super) fn outdates(&self, age: Duration) -> bool {
        self.last().is_some_and(|last| age > last.elapsed())
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// The options contain a password.
impl<DB: Database> fmt::Debug for Pool<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(own) => f.debug_struct("Own").field("idle", &own.idle().len()).finish_non_exhaustive(),
            Self::Shared(_) => f.write_str("Theirs"),
        }
    }
}

/// The store's own connections, which are opened on demand up to a limit.
pub(crate) struct OwnPool<DB: Database> {
    options: Options<DB>,
    prepare: Option<Prepare<DB>>,
    refused: LastRefusal,
    permits: Semaphore,
    /// The connection that was returned last is at the end, and is used next.
    idle: Mutex<VecDeque<PooledConnection<DB>>>,
}

pub(crate) struct PooledConnection<DB: Database> {
    connection: DB::Connection,
    born: Instant,
    since: Instant,
}

/// A connection for one statement. Dropping the guard closes the connection, as an answer may be outstanding.
pub(crate) enum PoolGuard<'a, DB: Database> {
    Own(Box<PooledConnection<DB>>, &'a OwnPool<DB>, SemaphorePermit<'a>),
    Shared(SqlxConnection<DB>),
}

impl<DB: Database> Pool<DB> {
    pub(crate) fn own(
        options: Options<DB>,
        connections: u32,
        prepare: Option<Prepare<DB>>,
        refused: LastRefusal,
    ) -> Self {
        let permits = Semaphore::new((connections as usize).min(Semaphore::MAX_PERMITS));
        Self::Own(Box::new(OwnPool { options, prepare, refused, permits, idle: Mutex::default() }))
    }

    pub(crate) fn shared(pool: sqlx::Pool<DB>) -> Self {
        Self::Shared(SharedPool { pool, renewals: AtomicU32::new(0) })
    }

    /// Stops the use of all open connections, after an answer that the server takes no writes.
    pub(super) fn refuses_writes(&self) {
        match self {
            Self::Own(own) => *own.refused.last() = Some(Instant::now()),
            Self::Shared(shared) => {
                close_idle(&shared.pool);
                shared.renewals.store(shared.pool.options().get_max_connections().max(2), Ordering::Relaxed);
            }
        }
    }

    /// Closes the idle connections of a pool of the user's after a refusal: the connections of transactions return to their pool only
    /// later. Pools of the store close each connection from before.
    pub(super) fn before_transaction(&self) {
        if let Self::Shared(shared) = self
            && shared.renewals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            close_idle(&shared.pool);
        }
    }

    /// Returns a connection, or `None` if opening one takes longer than `patience`.
    ///
    /// # Errors
    /// `PoolTimedOut` if no connection becomes free within `patience`, as with a pool of sqlx.
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
            Self::Shared(shared) => match timeout(patience, shared.pool.acquire()).await {
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
        if connection.since.elapsed() < IDLE && !self.refused.outdates(connection.born.elapsed()) {
            return Some(connection);
        }
        // The connections before this one have been idle even longer. After a refusal, also newer ones are opened again.
        idle.clear();
        None
    }

    fn keep(&self, connection: PooledConnection<DB>) {
        let mut idle = self.idle();
        if connection.born.elapsed() < LIFETIME && !self.refused.outdates(connection.born.elapsed()) {
            idle.push_back(PooledConnection { since: Instant::now(), ..connection });
        }
        // Closes one connection at a time, so that the pool shrinks after a burst.
        if idle.front().is_some_and(|first| first.since.elapsed() >= IDLE) {
            idle.pop_front();
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<PooledConnection<DB>>> {
        // No code panics while it holds this lock.
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
    /// Returns the connection, or `None` after the connection was returned.
    pub(super) fn connection(&mut self) -> Option<&mut DB::Connection> {
        match self {
            Self::Own(connection, ..) => Some(&mut connection.connection),
            Self::Shared(connection) => connection.0.as_deref_mut(),
        }
    }

    /// Returns the connection to its pool. No answer may be outstanding.
    pub(super) fn give_back(self) {
        match self {
            // The connection is stored before its permit is free: otherwise a waiting caller opens another one.
            Self::Own(connection, own, _place) => own.keep(*connection),
            Self::Shared(mut connection) => drop(connection.0.take()),
        }
    }

    /// Closes the connection after it was lost, and all idle ones, which probably are lost as well.
    pub(super) fn lost(self) {
        if let Self::Own(_, own, _) = &self {
            own.idle().clear();
        }
    }
}

/// Closes the connection and the idle ones of its pool, if the error shows that their server takes no writes.
#[cfg(any(feature = "delay", feature = "outbox"))]
pub(crate) fn close_refused<D: Driver>(
    pool: &sqlx::Pool<D::Db>,
    connection: &mut PoolConnection<D::Db>,
    error: &dyn DatabaseError,
) {
    if D::is_read_only(error) {
        connection.close_on_drop();
        close_idle(pool);
    }
}

/// Closes the idle connections of a pool.
fn close_idle<DB: Database>(pool: &sqlx::Pool<DB>) {
    let mut idle = Vec::new();
    // Each is kept until the end, since a returned connection would be acquired again.
    while let Some(mut connection) = pool.try_acquire() {
        connection.close_on_drop();
        idle.push(connection);
    }
}

/// A connection of an sqlx pool, which is closed on drop unless it is returned.
pub(crate) struct SqlxConnection<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: Database> Drop for SqlxConnection<DB> {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}
