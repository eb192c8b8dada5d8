//! The body of a stored message, which this crate decompresses instead of the client.
//!
//! The client drops a message that it cannot decompress, and all later messages of the same response, and then continues after
//! them. See `decode` and `decodes_batch` in `common/message/message_decoder.rs` of `rocketmq-protocol`.
use rocketmq_model::common::compression::compression_type::CompressionType;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::sys_flag::message_sys_flag::MessageSysFlag as Flag;

use crate::properties::{COMPRESSED, Properties};

/// Position of the number of a compression among the flags of a message.
const COMPRESSION_SHIFT: u32 = Flag::COMPRESSION_TYPE_COMPARATOR.trailing_zeros();

/// Returns the decompressed body. If that is impossible, returns the bytes that the broker stored, and sets the property
/// [`COMPRESSED`]. A copy of such a message has this property instead of the broker's flag.
pub(crate) fn read_body(message: &MessageExt, properties: &mut Properties) -> Vec<u8> {
    let mut body = message.body().map(|body| body.to_vec()).unwrap_or_default();
    let flags = message.sys_flag();
    if flags & Flag::COMPRESSED_FLAG != 0 && !body.is_empty() {
        let number = (flags & Flag::COMPRESSION_TYPE_COMPARATOR) >> COMPRESSION_SHIFT;
        let Some(decompressed) = decompress(&body, number) else {
            properties.insert(COMPRESSED.to_owned(), number.to_string());
            return body;
        };
        body = decompressed;
    }
    let number = properties.get(COMPRESSED).and_then(|number| number.parse().ok());
    if let Some(decompressed) = number.and_then(|number| decompress(&body, number)) {
        properties.remove(COMPRESSED);
        body = decompressed;
    }
    body
}

fn decompress(body: &[u8], number: i32) -> Option<Vec<u8>> {
    let compression = CompressionType::find_by_value(number).ok()?;
    compression.try_decompression(body).ok().map(|body| body.to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(flags: i32, body: &[u8]) -> MessageExt {
        let mut message = MessageExt::default();
        message.set_sys_flag(flags);
        message.set_body(Some(body.to_vec().into()));
        message
    }

    #[test]
    fn a_body_is_decompressed_by_its_flag_or_by_the_property_of_a_copy() {
        for compression in [CompressionType::LZ4, CompressionType::Zstd, CompressionType::Zlib] {
            let flags = Flag::COMPRESSED_FLAG | compression.get_compression_flag();
            let compressed = compression.try_compression(b"body").unwrap();
            let mut properties = Properties::new();
            assert_eq!(read_body(&message(flags, &compressed), &mut properties), b"body");
            let number = (flags >> COMPRESSION_SHIFT).to_string();
            properties.insert(COMPRESSED.to_owned(), number);
            assert_eq!(read_body(&message(0, &compressed), &mut properties), b"body");
            assert!(properties.is_empty());
        }
        assert_eq!(read_body(&message(0, b"plain"), &mut Properties::new()), b"plain");
        assert!(read_body(&message(Flag::COMPRESSED_FLAG, b""), &mut Properties::new()).is_empty());
    }

    #[test]
    fn a_body_that_cannot_be_decompressed_is_unchanged_and_marked() {
        for (compression, body) in [(7, &b"unknown"[..]), (3, b"damaged"), (1, b"damaged"), (2, b"damaged")] {
            let flags = Flag::COMPRESSED_FLAG | compression << COMPRESSION_SHIFT;
            let mut properties = Properties::new();
            assert_eq!(read_body(&message(flags, body), &mut properties), body);
            assert_eq!(properties[COMPRESSED], compression.to_string());
            // A copy has no flag.
            assert_eq!(read_body(&message(0, body), &mut properties), body);
            assert_eq!(properties[COMPRESSED], compression.to_string());
        }
    }
}
