//! From bytes to what a handler takes.
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::{Delivery, Undecodable};

/// Turns a delivery's body into a `T`. Runs in the consumer's own task, since the order of keys depends on it: be quick.
///
/// Any function from a [`Delivery`] to `Result<T, Undecodable>` is one; the headers may say how the body is to be read.
pub trait Decode<T>: Send + Sync + 'static {
    /// The value.
    ///
    /// # Errors
    /// [`Undecodable`]: the delivery is put aside at once. A panic counts as one.
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

/// JSON by serde.
pub(crate) struct Json<T>(PhantomData<fn() -> T>);

impl<T> Json<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: DeserializeOwned + 'static> Decode<T> for Json<T> {
    fn decode(&self, delivery: &Delivery) -> Result<T, Undecodable> {
        serde_json::from_slice(&delivery.body).map_err(|error| {
            // Without serde's own words: they quote values.
            let (kind, line, column) = (error.classify(), error.line(), error.column());
            Undecodable(format!("no JSON of the wanted shape at line {line} column {column} ({kind:?})"))
        })
    }
}
