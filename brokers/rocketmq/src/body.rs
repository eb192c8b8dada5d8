//! The body of a stored message, which this crate decompresses instead of the client.
//!
//! The client drops a message that it cannot decompress, and all later messages of the same response, and then continues after
//! them. See `decode` and `decodes_batch` in `common/message/message_decoder.rs` of `rocketmq-protocol`.
use std::io::Read;

use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::sys_flag::message_sys_flag::MessageSysFlag as Flag;

use crate::producer::MAX_BODY;
use crate::properties::{COMPRESSED, Properties};

/// Position of the number of a compression among the flags of a message.
const COMPRESSION_SHIFT: u32 = Flag::COMPRESSION_TYPE_COMPARATOR.trailing_zeros();
/// The numbers of the compressions. Messages of old clients have no number, and zlib.
const LZ4: i32 = 1;
const ZSTD: i32 = 2;
const ZLIB: i32 = 3;
const UNNUMBERED: i32 = 0;
/// The largest number that the flags can hold.
const LAST: i32 = 7;
/// The first bytes of a frame of LZ4, which clients in Java write. The client in Rust writes a block after its length.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
/// The most bytes that a block of LZ4 has for each of its compressed bytes.
const LZ4_RATIO: usize = 255;

/// Returns the decompressed body. If that is impossible, returns the bytes that the broker stored, and sets the property
/// [`COMPRESSED`]. A copy of such a message has this property instead of the broker's flag.
pub(crate) fn read_body(message: &MessageExt, properties: &mut Properties) -> Vec<u8> {
    let mut body = message.body().map(|body| body.to_vec()).unwrap_or_default();
    let flags = message.sys_flag();
    let of_copy = properties.remove(COMPRESSED).and_then(|number| number.parse().ok());
    let of_copy = of_copy.filter(|number| (UNNUMBERED..=LAST).contains(number));
    let of_flags = (flags & Flag::COMPRESSED_FLAG != 0 && !body.is_empty())
        .then_some((flags & Flag::COMPRESSION_TYPE_COMPARATOR) >> COMPRESSION_SHIFT);
    for number in of_flags.into_iter().chain(of_copy) {
        match decompress(&body, number, MAX_BODY as usize) {
            Some(decompressed) => body = decompressed,
            None => {
                properties.insert(COMPRESSED.to_owned(), number.to_string());
                break;
            }
        }
    }
    body
}

/// Decompresses a body, if it then has at most this number of bytes: a small message must not fill the memory.
fn decompress(body: &[u8], number: i32, most: usize) -> Option<Vec<u8>> {
    let reader: Box<dyn Read + '_> = match number {
        UNNUMBERED | ZLIB => Box::new(flate2::read::ZlibDecoder::new(body)),
        ZSTD => Box::new(zstd::Decoder::new(body).ok()?),
        LZ4 if body.starts_with(&LZ4_FRAME) => Box::new(lz4_flex::frame::FrameDecoder::new(body)),
        LZ4 => return lz4_block(body, most),
        _ => return None,
    };
    let mut decompressed = Vec::new();
    reader.take(most as u64 + 1).read_to_end(&mut decompressed).ok()?;
    (decompressed.len() <= most).then_some(decompressed)
}

fn lz4_block(body: &[u8], most: usize) -> Option<Vec<u8>> {
    let (length, block) = body.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    // The decompression reserves this length at once.
    let possible = length <= most.min(block.len().saturating_mul(LZ4_RATIO));
    possible.then(|| lz4_flex::block::decompress(block, length).ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use rocketmq_model::common::compression::compression_type::CompressionType;

    use super::*;

    fn message(flags: i32, body: &[u8]) -> MessageExt {
        let mut message = MessageExt::default();
        message.set_sys_flag(flags);
        message.set_body(Some(body.to_vec().into()));
        message
    }

    fn in_a_frame(body: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_body_is_decompressed_by_its_flag_or_by_the_property_of_a_copy() {
        let compressed = [CompressionType::LZ4, CompressionType::Zstd, CompressionType::Zlib]
            .map(|compression| (compression.get_compression_flag(), compression.try_compression(b"body").unwrap()));
        let frame = (CompressionType::LZ4.get_compression_flag(), in_a_frame(b"body").into());
        for (flag, compressed) in compressed.into_iter().chain([frame]) {
            let flags = Flag::COMPRESSED_FLAG | flag;
            let mut properties = Properties::new();
            assert_eq!(read_body(&message(flags, &compressed), &mut properties), b"body");
            let number = (flags >> COMPRESSION_SHIFT).to_string();
            properties.insert(COMPRESSED.to_owned(), number);
            assert_eq!(read_body(&message(0, &compressed), &mut properties), b"body");
            assert!(properties.is_empty());
        }
        assert_eq!(read_body(&message(0, b"plain"), &mut Properties::new()), b"plain");
        assert!(read_body(&message(Flag::COMPRESSED_FLAG, b""), &mut Properties::new()).is_empty());
        // What a producer wrote is no number of a compression.
        for forged in ["", "x", "8", "-1"] {
            let mut properties = Properties::from([(COMPRESSED.to_owned(), forged.to_owned())]);
            assert_eq!(read_body(&message(0, b"plain"), &mut properties), b"plain");
            assert!(properties.is_empty(), "{forged}");
        }
    }

    #[test]
    fn a_body_that_cannot_be_decompressed_is_unchanged_and_marked() {
        for (compression, body) in
            [(7, &b"unknown"[..]), (3, b"damaged"), (1, b"damaged"), (1, b"abc"), (2, b"damaged")]
        {
            let flags = Flag::COMPRESSED_FLAG | compression << COMPRESSION_SHIFT;
            let mut properties = Properties::new();
            assert_eq!(read_body(&message(flags, body), &mut properties), body);
            assert_eq!(properties[COMPRESSED], compression.to_string());
            // A copy has no flag.
            assert_eq!(read_body(&message(0, body), &mut properties), body);
            assert_eq!(properties[COMPRESSED], compression.to_string());
        }
    }

    #[test]
    fn a_body_that_becomes_too_large_is_not_decompressed() {
        let body = [7; 1_000];
        let by = |compression: CompressionType| compression.try_compression(&body).unwrap().to_vec();
        for (number, compressed) in [
            (LZ4, by(CompressionType::LZ4)),
            (LZ4, in_a_frame(&body)),
            (ZSTD, by(CompressionType::Zstd)),
            (ZLIB, by(CompressionType::Zlib)),
        ] {
            assert_eq!(decompress(&compressed, number, 1_000).as_deref(), Some(&body[..]), "{number}");
            assert_eq!(decompress(&compressed, number, 999), None, "{number}");
        }
        // The length of a block is not believed.
        assert_eq!(decompress(&[255; 8], LZ4, usize::MAX), None);
    }
}
