//! The handler of a callback, and the places at which a worker can be stopped in it, so that it can be killed there.
use clap::ValueEnum;
use idempotent::steps::step_key;
use idempotent::{Rejection, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::Transaction;

use crate::database::OrderDatabase;
use crate::services::{CallError, Services};

/// The body of a callback.
#[derive(Clone, Debug, Deserialize, Hash, Serialize)]
pub(crate) struct PaymentResult {
    pub(crate) order: String,
    pub(crate) cents: i64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallbackError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the order does not exist or is already paid")]
    NotUnpaid,
}

/// Marks the order as paid, issues its ticket, and adds points.
///
/// The key is the order: the provider sends a callback several times, with another message id each time. The fingerprint
/// covers the amount, so a callback with another amount is a dead letter instead of a silent duplicate. `tx` contains the
/// claim of the key: a crash or an error rolls back the key and the payment together, and the next delivery runs again. The two
/// services have databases of their own, and no rollback reaches them. Each of them gets a step key, which is the same in
/// every run of this callback, and answers a repeated call from its own record.
#[idempotent(scene = mq, scope = "payment_callback", key = result.order, fingerprint = result, retain = "2h", transaction = tx)]
pub(crate) async fn payment_callback<Db: OrderDatabase>(
    result: &PaymentResult,
    services: &Services,
    stop: StopPoint,
    tx: &mut Transaction<'_, Db>,
) -> Result<(), CallbackError> {
    stop.reach(Place::Claimed, &result.order).await;
    if !Db::pay(tx, &result.order, result.cents).await? {
        return Err(CallbackError::NotUnpaid);
    }
    stop.reach(Place::Paid, &result.order).await;
    services.call("tickets", &result.order, &step_key("issue_ticket")?).await?;
    stop.reach(Place::Ticketed, &result.order).await;
    services.call("points", &result.order, &step_key("add_points")?).await?;
    stop.reach(Place::Credited, &result.order).await;
    println!("{}: paid {} cents", result.order, result.cents);
    Ok(())
}

/// A place in the handling of a callback, in their order.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Place {
    /// The message is delivered, and the key is not claimed
    Received,
    /// The key is claimed
    Claimed,
    /// The order is paid in the transaction
    Paid,
    /// The ticket is issued
    Ticketed,
    /// The points are added
    Credited,
    /// The transaction is committed, and the message is not acknowledged
    Committed,
}

/// The place at which this process stops, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopPoint(Option<Place>);

impl StopPoint {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Self(place)
    }

    /// Waits for ever if the process stops at this place.
    pub(crate) async fn reach(self, place: Place, order: &str) {
        if self.0 == Some(place) {
            println!("{order}: stopped at {place:?}");
            std::future::pending::<()>().await;
        }
    }
}
