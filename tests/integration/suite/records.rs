//! The stored form of a record: what comes back, and what is refused and left alone.
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Completion, OwnerToken, Record, State};
use idempotent::{FencingToken, Fingerprint, StoreErrorKind, Timestamp};

fn record(state: State) -> Record {
    Record {
        fencing: FencingToken(1_767_225_600_000_001),
        attempt: 3,
        fingerprint: Some(Fingerprint::of_bytes("payload")),
        state,
        expires_at: Timestamp(1_767_225_700_000_000),
        first_seen: Timestamp(1_767_225_600_000_000),
        updated_at: Timestamp(1_767_225_600_000_002),
        display: Some(Arc::from("o-17")),
    }
}

fn states() -> [State; 8] {
    let (owner, error) = (OwnerToken(u128::MAX - 5), Arc::<str>::from("no stöck"));
    [
        State::Vacant { not_before: Timestamp(5), error: error.clone(), taken_over: Some(FencingToken(3)) },
        State::Vacant { not_before: Timestamp(5), error: error.clone(), taken_over: None },
        State::Consuming { owner, until: Timestamp(1_767_225_630_000_002), taken_over: Some(FencingToken(9)) },
        State::Consuming { owner, until: Timestamp(7), taken_over: None },
        State::Consumed { owner, value: Some(Arc::from(&b"\0\xff{}"[..])) },
        State::Consumed { owner, value: None },
        State::Failed { error: error.clone() },
        State::Dead { error },
    ]
}

#[test]
fn every_state_comes_back_as_it_was() {
    for state in states() {
        let mut whole = record(state);
        assert_eq!(Record::from_bytes(&whole.to_bytes()).unwrap(), whole);
        (whole.fingerprint, whole.display) = (None, None);
        assert_eq!(Record::from_bytes(&whole.to_bytes()).unwrap(), whole);
    }
    let empty = record(State::Consumed { owner: OwnerToken(1), value: Some(Arc::from([])) });
    assert_eq!(Record::from_bytes(&empty.to_bytes()).unwrap(), empty, "nothing is not an empty result");
}

/// Written down once: stores hold records for longer than a version lives.
#[test]
fn the_stored_form_never_changes() {
    let bytes = record(State::Failed { error: "e".into() }).to_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, KNOWN);
}
const KNOWN: &str = "69640100030140204648470600030000000021164c484706000040204648470600024020464847060001239f59ed55e737c77147cf55ad0c1b03040000006f2d3137010000006516f152e7";

#[test]
fn records_cut_off_or_changed_are_corrupt_never_a_panic() {
    for state in states() {
        let bytes = record(state).to_bytes();
        for length in 0..bytes.len() {
            let error = Record::from_bytes(&bytes[..length]).unwrap_err();
            let expected = if length < 2 { StoreErrorKind::Foreign } else { StoreErrorKind::Corrupt };
            assert_eq!(error.kind(), expected, "{length}: {error}");
        }
        for at in 4..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x20;
            assert_eq!(Record::from_bytes(&changed).unwrap_err().kind(), StoreErrorKind::Corrupt, "{at}");
        }
    }
    assert_eq!(Record::from_bytes(&[0x5a; 300]).unwrap_err().kind(), StoreErrorKind::Foreign);
}

#[test]
fn a_record_of_a_newer_version_says_so() {
    let mut bytes = record(State::Dead { error: "e".into() }).to_bytes();
    bytes[2] = 99;
    let error = Record::from_bytes(&bytes).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownVersion);
    assert!(error.to_string().contains("found version 99.0, supported is 1.0"), "{error}");
}

/// Seals a body as a writer that knows what it does would, to get past the checksum.
fn sealed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Record, idempotent::StoreError> {
    use sha2::{Digest, Sha256};
    let mut bytes = record(State::Failed { error: "e".into() }).to_bytes();
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let sum = Sha256::digest(&bytes);
    bytes.extend(&sum[..4]);
    Record::from_bytes(&bytes)
}

#[test]
fn each_field_is_checked_and_named() {
    let corrupt = |change: fn(&mut Vec<u8>), field: &str| {
        let error = sealed(change).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("field `{field}`")), "{error}");
    };
    sealed(|_| ()).unwrap();
    corrupt(|bytes| bytes[4] = 9, "state");
    corrupt(|bytes| bytes[4] = 1, "owner");
    corrupt(|bytes| bytes.truncate(9), "fencing");
    corrupt(|bytes| bytes[17..25].fill(0xff), "expires_at");
    corrupt(|bytes| bytes.push(0), "end");
    corrupt(|bytes| *bytes.last_mut().unwrap() = 0xff, "error");
    // A lease that ends in the year 9999, and one that was never given.
    let far =
        record(State::Consuming { owner: OwnerToken(1), until: Timestamp(253_370_764_800_000_000), taken_over: None });
    let error = Record::from_bytes(&far.to_bytes()).unwrap_err();
    assert!(error.kind() == StoreErrorKind::Corrupt && error.to_string().contains("field `until`"), "{error}");
    // A newer minor version may say more; what it adds is skipped.
    let newer = sealed(|bytes| {
        bytes[3] = 1;
        bytes.extend(b"something new");
    });
    assert_eq!(newer.unwrap(), record(State::Failed { error: "e".into() }));
}

#[test]
fn a_foreign_key_is_foreign() {
    for foreign in [&b"consuming"[..], b"", b"{\"state\":1}", b"1"] {
        let error = Record::from_bytes(foreign).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Foreign);
        assert!(error.to_string().contains("left unchanged"), "{error}");
    }
}

#[test]
fn results_and_tokens_are_never_shown() {
    let shown = format!(
        "{:?}",
        record(State::Consumed { owner: OwnerToken(7 << 120), value: Some(Arc::from(&b"secret"[..])) })
    );
    assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    assert!(shown.contains("value_bytes: Some(6)") && shown.contains("OwnerToken(07000000…)"), "{shown}");
    let completion = Completion { value: Some(Arc::from(&b"secret"[..])), retain: Duration::from_secs(1) };
    assert!(!format!("{completion:?}").contains("115, 101"), "{completion:?}");
}

/// A duplicate is answered without a run, also if the stored result cannot be decoded.
#[test]
fn a_result_that_cannot_be_decoded_is_reported_as_consumed_without_a_value() {
    use idempotent::{Codec, Json};
    #[derive(Debug, serde::Deserialize, serde::Serialize)]
    struct Receipt {
        id: u64,
        added_later: String,
    }
    let older = <Json as Codec<Receipt>>::decode(Some(br#"{"id":7}"#)).unwrap_err().to_string();
    assert!(older.contains("Receipt") && older.contains("added_later"), "{older}");
    let deep = "[".repeat(10_000);
    let error = <Json as Codec<serde_json::Value>>::decode(Some(deep.as_bytes())).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
    let receipt = Receipt { id: 1, added_later: String::new() };
    let bytes = <Json as Codec<Receipt>>::encode(&receipt).unwrap();
    let back = <Json as Codec<Receipt>>::decode(bytes.as_deref()).unwrap();
    assert_eq!((back.id, back.added_later), (receipt.id, receipt.added_later));
}
