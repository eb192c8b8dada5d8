//! Reading a request body into memory, up to a limit.
use std::future::poll_fn;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use idempotent_core::Fingerprinter;

use crate::buffered_body::BufferedBody;
use crate::request::unread_body::UnreadBody;

/// The reason why a body was not read.
pub(crate) enum ReadError<B> {
    /// The body exceeds the limit.
    TooLarge(UnreadBody<B>),
    /// The client disconnected or sent invalid framing.
    Broken,
}

/// Reads a body of at most `max` bytes, and adds its data to the fingerprint as it arrives.
pub(crate) async fn whole<B>(
    body: B,
    max: u64,
    mut seen: Option<&mut Fingerprinter>,
) -> Result<BufferedBody, ReadError<B>>
where
    B: Body<Data = Bytes>,
{
    if body.size_hint().lower() > max {
        return Err(ReadError::TooLarge(UnreadBody::unread(body)));
    }
    let mut body = Box::pin(body);
    // Most bodies consist of one frame, which needs no copy.
    let (mut first, mut all, mut trailers) = (Bytes::new(), Vec::new(), None::<HeaderMap>);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let piece = match frame.map_err(|_| ReadError::Broken)?.into_data() {
            Ok(piece) => piece,
            Err(other) => {
                trailers = other.into_trailers().ok().or(trailers);
                continue;
            }
        };
        if (first.len() + all.len() + piece.len()) as u64 > max {
            return Err(ReadError::TooLarge(UnreadBody::begun(body)));
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
    Ok(BufferedBody::new(if all.is_empty() { first } else { all.into() }, trailers))
}
