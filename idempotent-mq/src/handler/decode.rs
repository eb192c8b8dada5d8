//! Decoding of message bodies.
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::{Delivery, Undecodable};

/// A decoder of message bodies.
///
/// Any function from a [`Delivery`] to `Result<T, Undecodable>` implements the trait, and may use the headers. The decoder runs
/// in the consumer's own task, because the order of keys depends on the decoded message: decoding must be fast.
pub trait Decode<T>: Send + Sync + 'static {
    /// Decodes the body of a delivery.
    ///
    /// # Errors
    /// After [`Undecodable`], the consumer dead-letters the delivery at once. A panic counts as [`Undecodable`].
    fn decode(&self, delivery: &Delivery) -> Result<T, Undecodable>;
}

impl<T, F> Decode<T> for F
where
    F: Fn(&Delivery) -> Result<T, Undecodable> + Send + Sync + 'static,
{
    fn decode(&self, delivery: &Delivery) -> Result<T, Undecodable> {
        self(delivery)
    }
}

/// A decoder of JSON, by serde.
pub(crate) struct Json<T>(PhantomData<fn() -> T>);

impl<T> Json<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: DeserializeOwned + 'static> Decode<T> for Json<T> {
    fn decode(&self, delivery: &Delivery) -> Result<T, Undecodable> {
        serde_json::from_slice(&delivery.body).map_err(|error| {
            // Leaves out the text of serde, which quotes values.
            let (kind, line, column) = (error.classify(), error.line(), error.column());
            Undecodable(format!("no JSON of the wanted shape at line {line} column {column} ({kind:?})"))
        })
    }
}
