//! Reply strategies for handlers that return other types than `Result` and `Disposition`, and codecs for stored results.
pub use idempotent_core::{
    Codec, CodecError, DefaultReply, Discard, HandlerOutcome, Json, RejectStrategy, ReplyStrategy, ResponseShape,
};
