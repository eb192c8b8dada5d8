//! The time of a message that is delivered later, among its stored headers.
use std::borrow::Cow;

use idempotent_core::Timestamp;
use idempotent_mq::{Headers, OutboundMessage};

/// The header with that time, in µs since the Unix epoch. The table has no column for the time.
const HEADER: &str = "idempotent-deliver-at";

/// Returns the headers as they are stored.
pub(super) fn stored(message: &OutboundMessage) -> Cow<'_, Headers> {
    let mut headers = Cow::Borrowed(&message.headers);
    // The handler may have copied the header from another message.
    if headers.first(HEADER).is_some() {
        headers.to_mut().remove(HEADER);
    }
    if let Some(Timestamp(time)) = message.deliver_at {
        headers.to_mut().push(HEADER, time.to_string());
    }
    headers
}

/// Takes the time off stored headers; `None` if it is not as [`stored`] writes it.
pub(super) fn take(headers: &mut Headers) -> Option<Option<Timestamp>> {
    let Some(text) = headers.first(HEADER) else { return Some(None) };
    let time = std::str::from_utf8(text).ok()?.parse().ok()?;
    headers.remove(HEADER);
    Some(Some(Timestamp(time)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_time_reads_back_and_a_copied_header_is_none() {
        let message = OutboundMessage::new("t", "id", "").header("a", "1").header(HEADER, "17");
        let mut headers = stored(&message).into_owned();
        assert_eq!(take(&mut headers), Some(None));
        let mut headers = stored(&message.deliver_at(Timestamp(5))).into_owned();
        assert_eq!(take(&mut headers), Some(Some(Timestamp(5))));
        assert_eq!(headers, [("a", "1")].into_iter().collect());
        headers.push(HEADER, "soon");
        assert_eq!(take(&mut headers), None);
    }
}
