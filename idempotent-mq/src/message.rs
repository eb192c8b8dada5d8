//! Deliveries and decoded messages: their bodies, ids, headers, keys and positions.
mod delivery;
mod headers;
mod key;
mod position;

use std::fmt;
use std::sync::Arc;

pub use self::delivery::Delivery;
pub use self::headers::{Headers, TRACE_HEADERS};
pub use self::key::KeyFrom;
pub use self::position::Position;

/// A decoded body, and the delivery it came in.
pub struct Message<T> {
    /// The decoded body.
    pub body: T,
    /// The delivery with its original body.
    pub delivery: Arc<Delivery>,
}

/// Shows the delivery, without the body.
impl<T> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}
