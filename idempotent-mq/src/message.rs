//! What a handler is given.
use std::fmt;
use std::sync::Arc;

use crate::Delivery;

/// A decoded body, and the delivery it came in.
pub struct Message<T> {
    /// The decoded body.
    pub body: T,
    /// The delivery, with the body as it came.
    pub delivery: Arc<Delivery>,
}

/// The body is not shown.
impl<T> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}
