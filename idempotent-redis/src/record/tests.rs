//! Encoding and decoding without a server. `tests/suite/records` covers the records that the scripts write.
#![allow(clippy::unwrap_used)]
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const OWNER: OwnerToken = OwnerToken(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const FENCING: FencingToken = FencingToken(1_767_225_600_000_005);

/// Examples of every form, with and without optional parts, as fixed bytes: records in Redis outlive a version of the
/// library. Fencing numbers are 2026-01-01 00:00:00.000005 and a little later.
const FORMS: [&str; 9] = [
    "8150 31373637323235363030303030303035303032 0102030405060708090a0b0c0d0e0f10 03 01239f59ed55e737c77147cf55ad0c1b03 \
     000000046f2d3137 06474846204005 06474846204006 06474847ea0386 000000d693a400 06474846203ffc 30303030303031",
    "8150 31373637323235363030303030303035303031 0102030405060708090a0b0c0d0e0f10 04 06474846204005 06474846204005 \
     06474847ea0385 00000000000000 00000000000000 30303030303030",
    "8156 31373637323235363030303030303035303032 00000000000000000000000000000000 01 01239f59ed55e737c77147cf55ad0c1b03 \
     6e6f2073746f636b 06474846204005 06474846204007 06474846204007 000000d693a400 00000000000000 30303030303030",
    "8146 31373637323235363030303030303035303033 00000000000000000000000000000000 02 000000046f2d3137 \
     6e6f207374c3b6636b 06474846204005 06474846204008 06474846204008 000000d693a400 00000000000000 30303030303030",
    "8144 31373637323235363030303030303035323935 00000000000000000000000000000000 00 63726173686564 06474846204005 \
     06474846204009 06474846204009 000000d693a400 00000000000000 34323934393637",
    "31373637323235363030303030303035303037",
    "8160 06474846204005 03e8",
    "8165 06474846204005 0001 01239f59ed55e737c77147cf55ad0c1b03 00ff7b7d",
    "816e 06474846204005 00010000 0102030405060708090a0b0c0d0e0f10 7b7d",
];

/// Returns the records that `FORMS` encode.
fn reply() -> [Record; 9] {
    let payload = Some(Fingerprint::of_bytes("payload"));
    let after = |micros| Timestamp(FENCING.0 + micros);
    let hour = 3_600_000_000;
    let standing = |attempt, state, at, expires_at| Record {
        fencing: FENCING,
        attempt,
        fingerprint: None,
        state,
        expires_at: after(expires_at),
        first_seen: after(0),
        updated_at: after(at),
        display: None,
    };
    let held = |until, over| State::Consuming { owner: OWNER, until: after(until), taken_over: over };
    let vacant = State::Vacant { not_before: after(2), error: "no stock".into(), taken_over: None };
    let done = |attempt, owner, value: Option<&[u8]>| {
        let state = State::Consumed { owner, value: value.map(Arc::from) };
        Record { expires_at: EXPIRES, ..standing(attempt, state, 0, 0) }
    };
    let nobody = OwnerToken::NOT_KEPT;
    let display = Some(Arc::from("o-17"));
    [
        Record {
            fingerprint: payload,
            display: display.clone(),
            ..standing(1_002, held(30_000_001, Some(FencingToken(FENCING.0 - 9))), 1, 30_000_001 + hour)
        },
        standing(1, held(30_000_000, None), 0, 30_000_000),
        Record { fingerprint: payload, ..standing(2, vacant, 2, 2 + hour) },
        Record { display, ..standing(3, State::Failed { error: "no stöck".into() }, 3, 3 + hour) },
        standing(u32::MAX, State::Dead { error: "crashed".into() }, 4, 4 + hour),
        done(7, nobody, None),
        done(1_000, nobody, None),
        Record { fingerprint: payload, ..done(1, nobody, Some(b"\0\xff{}")) },
        done(65_536, OWNER, Some(b"{}")),
    ]
}

/// Expiry time of the key, which the server knows.
const EXPIRES: Timestamp = Timestamp(1_767_830_400_000_000);

fn sample(state: u8, flags: u8, middle: &[u8]) -> Vec<u8> {
    let mut out = vec![VERSION, state];
    out.extend(digits(FENCING));
    out.extend(b"001");
    out.extend(OWNER.0.to_be_bytes());
    out.push(flags);
    out.extend(middle);
    for time in [FENCING.0, FENCING.0, FENCING.0 + 30_000_000, 3_600_000_000, 0] {
        out.extend(&time.to_be_bytes()[1..]);
    }
    out.extend(b"0000000");
    out
}

#[test]
fn every_fencing_number_has_sixteen_digits() {
    assert_eq!(&digits(FencingToken(0)), b"0000000000000000");
    assert_eq!(&digits(FencingToken(7)), b"0000000000000007");
    assert_eq!(&digits(FencingToken((1 << 53) - 1)), b"9007199254740991");
}

#[test]
fn durations_are_rounded_up_and_bounded() {
    assert_eq!(
        [micros(Duration::ZERO), micros(Duration::from_nanos(1)), micros(Duration::from_nanos(1_001))],
        [0, 1, 2]
    );
    assert_eq!(
        [millis(Duration::ZERO), millis(Duration::from_nanos(1)), millis(Duration::from_micros(1_001))],
        [1, 1, 2]
    );
    assert_eq!(millis(Duration::from_millis(30_000)), 30_000);
    assert_eq!(micros(Duration::MAX), micros(LONGEST));
    assert_eq!(millis(Duration::MAX), 3_153_600_000_000);
    // Added to the current time, this is still a number that scripts represent exactly.
    assert!(micros(LONGEST) + FENCING.0 < 1 << 53);
}

#[test]
fn a_truncated_record_is_rejected_and_the_field_is_named() {
    let whole =
        sample(b'P', SEEN | SHOWN, &[&Fingerprint::of_bytes("payload").to_bytes()[..], &[0, 0, 0, 1, b'o']].concat());
    decode(&whole, Timestamp::FOREVER).unwrap();
    for length in 0..whole.len() {
        let error = decode(&whole[..length], Timestamp::FOREVER).unwrap_err();
        let expected = if length == 0 { StoreErrorKind::Foreign } else { StoreErrorKind::Corrupt };
        assert_eq!(error.kind(), expected, "{length}: {error}");
        assert!(length == 0 || error.to_string().contains("field `"), "{length}: {error}");
    }
}

#[test]
fn records_of_every_version_remain_readable() {
    for (form, reply) in FORMS.iter().zip(reply()) {
        assert_eq!(decode(&bytes(form), EXPIRES).unwrap(), reply, "{form}");
    }
}

/// A xorshift generator, which yields the same strings in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// Decodes 20,000 strings that resemble records and as many that do not. Each is decoded to its end or rejected with
/// the name of a field.
#[test]
fn no_bytes_make_decoding_panic() {
    let mut noise = Noise(0x1dea_11ce);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut changed = bytes(FORMS[noise.below(FORMS.len())]);
        for _ in 0..=noise.below(4) {
            match (noise.below(4), noise.below(changed.len().max(1))) {
                (0, at) => changed.truncate(at),
                (1, at) => changed.insert(at, noise.next().to_be_bytes()[0]),
                (_, at) if at < changed.len() => changed[at] ^= 1 << noise.below(8),
                _ => {}
            }
        }
        let random: Vec<u8> = (0..noise.below(120)).map(|_| noise.next().to_be_bytes()[0]).collect();
        for bytes in [&changed, &random] {
            match decode(bytes, EXPIRES) {
                Ok(record) => {
                    record.check().unwrap();
                    read += 1;
                }
                Err(error) => {
                    let kinds = [StoreErrorKind::Corrupt, StoreErrorKind::UnknownVersion, StoreErrorKind::Foreign];
                    assert!(kinds.contains(&error.kind()), "{error}");
                }
            }
        }
    }
    assert!((1_000..30_000).contains(&read), "{read} of 40,000 were read: the strings are no test");
}
