//! Reads a request body into memory under a limit.
use std::future::poll_fn;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use idempotent_core::Fingerprinter;

use crate::buffered_body::Whole;
use crate::request::unread_body::Leftover;

/// Why a body was not read.
pub(crate) enum Unread<B> {
    TooLarge(Leftover<B>),
    /// The client went away, or sent nonsense.
    Broken,
}

/// The whole body, if it has at most `max` bytes.
pub(crate) async fn whole<B>(body: B, max: u64, mut seen: Option<&mut Fingerprinter>) -> Result<Whole, Unread<B>>
where
    B: Body<Data = Bytes>,
{
    if body.size_hint().lower() > max {
        return Err(Unread::TooLarge(Leftover::unread(body)));
    }
    let mut body = Box::pin(body);
    // Most bodies come in one piece, which need not be copied.
    let (mut first, mut all, mut trailers) = (Bytes::new(), Vec::new(), None::<HeaderMap>);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let piece = match frame.map_err(|_| Unread::Broken)?.into_data() {
            Ok(piece) => piece,
            Err(other) => {
                trailers = other.into_trailers().ok().or(trailers);
                continue;
            }
        };
        if (first.len() + all.len() + piece.len()) as u64 > max {
            return Err(Unread::TooLarge(Leftover::begun(body)));
        }
        if let Some(seen) = &mut seen {
            seen.push(&piece);
        }
        match (first.is_empty(), all.is_empty()) {
            (true, true) => first = piece,
            (false, _) => {
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&piece);
            }
            (true, false) => all.extend_from_slice(&piece),
        }
    }
    Ok(Whole::new(if all.is_empty() { first } else { all.into() }, trailers))
}
