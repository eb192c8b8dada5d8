//! A body in memory.
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

/// A body that is entirely in memory, with its trailers.
pub(crate) struct BufferedBody {
    pub(crate) bytes: Bytes,
    // Boxed because most bodies have no trailers and should not carry the space for them.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl BufferedBody {
    pub(crate) fn new(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { bytes, trailers: trailers.map(Box::new) }
    }

    /// Returns the next frame: first the data, then the trailers.
    pub(crate) fn next(&mut self) -> Option<Frame<Bytes>> {
        match std::mem::take(&mut self.bytes) {
            bytes if !bytes.is_empty() => Some(Frame::data(bytes)),
            _ => self.trailers.take().map(|trailers| Frame::trailers(*trailers)),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let length = self.bytes.len() as u64;
        match self.trailers {
            None => SizeHint::with_exact(length),
            // HTTP/1.1 cannot send trailers after a body of known length.
            Some(_) => {
                let mut hint = SizeHint::new();
                hint.set_lower(length);
                hint
            }
        }
    }
}
