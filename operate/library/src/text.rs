//! Texts for operators: untrusted ones without their control characters, and times.
use std::fmt::Write;
use std::time::Duration;

/// The longest text that is printed, in characters.
const LONGEST: usize = 4_096;

/// Escapes everything in a text that could control a terminal or change the order of characters, and truncates a long
/// text.
///
/// Control characters, bidirectional controls, zero-width characters and unassigned code points become `\u{…}`.
///
/// ```
/// use idempotent_operate::escaped;
///
/// assert_eq!(escaped("no stock\u{1b}[2J"), "no stock\\u{1b}[2J");
/// assert_eq!(escaped("naïve – 订单"), "naïve – 订单");
/// ```
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (count, char) in text.chars().enumerate() {
        if count == LONGEST {
            let _ = write!(out, "… ({} bytes)", text.len());
            break;
        }
        push(&mut out, char);
    }
    out
}

/// Escapes a body like [`escaped`], with `\xNN` for each byte that is not UTF-8, and truncates it after `most` bytes.
///
/// ```
/// use idempotent_operate::escaped_bytes;
///
/// assert_eq!(escaped_bytes(b"{\"n\": 17}\n\xff", 100), "{\"n\": 17}\\u{a}\\xff");
/// assert_eq!(escaped_bytes(b"abcdef", 4), "abcd… (6 bytes)");
/// ```
#[must_use]
pub fn escaped_bytes(body: &[u8], most: usize) -> String {
    let mut out = String::new();
    for chunk in body[..body.len().min(most)].utf8_chunks() {
        chunk.valid().chars().for_each(|char| push(&mut out, char));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    if body.len() > most {
        let _ = write!(out, "… ({} bytes)", body.len());
    }
    out
}

/// Formats a time in ms with at most two units, because smaller ones are noise.
///
/// ```
/// use idempotent_operate::short_time;
///
/// assert_eq!(short_time(1_250), "1s 250ms");
/// assert_eq!(short_time(600_000_000), "6days 22h");
/// ```
#[must_use]
pub fn short_time(ms: u64) -> String {
    let ms = if ms < 10_000 { ms } else { ms / 1_000 * 1_000 };
    let text = humantime::format_duration(Duration::from_millis(ms)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Describes the rest of a lease in ms, which is negative after its end.
///
/// ```
/// use idempotent_operate::lease_time;
///
/// assert_eq!([lease_time(-1_500), lease_time(20_000)], ["ended 1s 500ms ago", "ends in 20s"]);
/// ```
#[must_use]
pub fn lease_time(left_ms: i64) -> String {
    let time = short_time(left_ms.unsigned_abs());
    if left_ms < 0 { format!("ended {time} ago") } else { format!("ends in {time}") }
}

fn push(out: &mut String, char: char) {
    if is_plain(char) {
        out.push(char);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
    }
}

/// Returns true for a printable character. `escape_debug` keeps exactly the printable ones, apart from quotes and
/// backslashes.
fn is_plain(char: char) -> bool {
    const INVISIBLE: [std::ops::RangeInclusive<char>; 6] = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{200b}'..='\u{200f}',
        '\u{202a}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
    ];
    let is_printable = matches!(char, '"' | '\'' | '\\') || char.escape_debug().eq([char]);
    is_printable && !INVISIBLE.iter().any(|range| range.contains(&char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_is_printed() {
        for code in (0..0x20).chain(0x7f..0xa0).chain([0xad, 0x61c, 0x200b, 0x200f, 0x202e, 0x2066, 0xfeff, 0x10_ffff])
        {
            let Some(char) = char::from_u32(code) else { continue };
            assert_eq!(escaped(&format!("a{char}b")), format!("a\\u{{{code:x}}}b"));
        }
    }

    #[test]
    fn letters_of_all_scripts_and_quotes_are_kept() {
        for text in ["it's \"open\" \\ 100 %", "订单 заказ"] {
            assert_eq!(escaped(text), text);
        }
    }

    #[test]
    fn a_time_has_at_most_two_units() {
        for (ms, text) in [(0, "0s"), (12_300, "12s"), (3_700_000, "1h 1m"), (86_400_000, "1day")] {
            assert_eq!(short_time(ms), text);
        }
    }

    #[test]
    fn a_long_text_is_truncated_with_its_length() {
        let long = escaped(&"x".repeat(1 << 20));
        assert!(long.len() < 5_000 && long.ends_with("… (1048576 bytes)"), "{}", long.len());
    }
}
