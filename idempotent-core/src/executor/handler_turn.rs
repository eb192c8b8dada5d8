//! The turn of a handler, by which a consumer claims ahead of its handlers.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A consumer's permission for a handler to start, for which a claimed run waits.
///
/// The lease of a waiting run is renewed. If the run is dropped, its key is released, and its attempt is not counted.
pub trait HandlerTurn: fmt::Debug + Send + Sync + 'static {
    /// Takes the turn, unless the handler has to wait for it. Returns true if it was taken.
    fn try_take(&self) -> bool;

    /// Waits for the turn, and takes it.
    ///
    /// # Cancellation
    /// The turn is not taken.
    fn take(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Ends the turn. Called once for each that was taken.
    fn end(&self);
}

/// A taken turn, which ends when it is dropped.
#[derive(Debug)]
pub struct TakenTurn(Arc<dyn HandlerTurn>);

impl TakenTurn {
    /// Takes the turn, if it need not be waited for.
    pub(crate) fn at_once(turn: &Arc<dyn HandlerTurn>) -> Option<Self> {
        turn.try_take().then(|| Self(turn.clone()))
    }

    /// Waits for a turn.
    ///
    /// # Cancellation
    /// The turn is not taken.
    pub async fn when_free(turn: Arc<dyn HandlerTurn>) -> Self {
        turn.take().await;
        Self(turn)
    }
}

impl Drop for TakenTurn {
    fn drop(&mut self) {
        self.0.end();
    }
}
