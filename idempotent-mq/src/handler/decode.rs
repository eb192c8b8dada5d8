//! Decoding of message bodies.
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

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
        serde_json::from_slice(&delivery.body).map_err(|error| Undecodable(problem(&error)))
    }
}

/// Returns the problem of a body, without its values. The text of serde quotes values, except where it names a field of the
/// target type.
fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let names_field = ["missing field `", "duplicate field `"].iter().any(|start| text.starts_with(start));
    let (line, column) = (error.line(), error.column());
    let what = match error.classify() {
        Category::Data if names_field => return text,
        Category::Data => "a value of another type",
        Category::Syntax => "invalid JSON",
        Category::Eof => "the JSON is incomplete",
        Category::Io => "the body cannot be read",
    };
    format!("{what} at line {line} column {column}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::Position;

    #[derive(Debug, Deserialize)]
    struct Order {
        #[allow(dead_code, reason = "only decoded")]
        cents: u64,
    }

    #[test]
    fn the_problem_names_a_field_of_the_type_and_no_value_of_the_body() {
        let problem = |body: &str| {
            let delivery = Delivery::new(Position::of("orders"), body.into());
            Json::<Order>::new().decode(&delivery).unwrap_err().0
        };
        assert_eq!(problem("{\"secret\": 1}"), "missing field `cents` at line 1 column 13");
        assert_eq!(problem("{\"cents\": 1, \"cents\": 2}"), "duplicate field `cents` at line 1 column 20");
        assert_eq!(problem("{\"cents\": \"secret\"}"), "a value of another type at line 1 column 18");
        assert_eq!(problem("secret"), "invalid JSON at line 1 column 1");
        assert_eq!(problem("{\"cents\":"), "the JSON is incomplete at line 1 column 9");
    }
}
