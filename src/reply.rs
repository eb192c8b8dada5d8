//! Reply strategies for handlers that return other types than `Result` and `Disposition`, codecs for stored results, and the texts for
//! duplicates that get no result.
pub use idempotent_core::{
    Codec, CodecError, DefaultReply, Discard, DuplicateMessages, HandlerOutcome, Json, LocalizedText,
    PreferredLanguages, RejectStrategy, ReplyStrategy, ResponseShape,
};
