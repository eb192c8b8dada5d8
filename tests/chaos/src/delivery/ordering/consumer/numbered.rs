//! Handlers of links that are numbers of a registered stream.
use idempotent::idempotent;
use sqlx::{Sqlite, Transaction};

use super::{Failed, Worker};
use crate::delivery::ordering::Link;

#[idempotent(
    key = (link.chain, link.number),
    sequence = (link.chain, link.number),
    scope = "streams",
    on_broken_order = skip("5s"),
)]
pub(super) async fn beside(worker: &Worker, link: Link) -> Result<(), Failed> {
    worker.beside(link).await
}

#[idempotent(
    key = (link.chain, link.number),
    sequence = (link.chain, link.number),
    scope = "streams",
    on_broken_order = skip("5s"),
    transaction = leased(tx),
)]
pub(super) async fn within(worker: &Worker, link: Link, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
    worker.within(link, tx).await
}

/// A handler for both stores, in which some links always fail.
#[idempotent(
    key = (link.chain, link.number),
    sequence = (link.chain, link.number),
    scope = "streams",
    on_broken_order = skip("5s"),
)]
pub(super) async fn broken(worker: &Worker, link: Link) -> Result<(), Failed> {
    worker.begins(link);
    Err(Failed::ByItself)
}
