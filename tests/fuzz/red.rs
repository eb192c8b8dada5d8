//! Tests that each body detects a wrong form, reader, maker or judge.
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::HeaderMap;
use idempotent_core::{Identity, Policy, Record, Scene, StoreError, StoreErrorKind};
use idempotent_fuzz_bodies::durations::Reader;
use idempotent_fuzz_bodies::kept::Seen;
use idempotent_fuzz_bodies::keys::{Fields, Maker};
use idempotent_fuzz_bodies::policy::Judge;
use idempotent_fuzz_bodies::record_bytes::Form;
use idempotent_fuzz_bodies::{durations, http_key, kept, keys, policy, record_bytes};
use idempotent_tower::{InvalidKey, KeySyntax};

use super::corpus;
use super::mutate::Mutator;

/// Returns whether the body fails within 20,000 inputs.
fn is_noticed(target: &str, body: impl Fn(&[u8]) -> &'static str) -> bool {
    let corpus = corpus(target);
    let fails = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| body(input))).is_err();
    let mut mutator = Mutator::new(1, corpus.clone());
    corpus.iter().any(|input| fails(input)) || (0..20_000).any(|_| fails(&mutator.next()))
}

#[test]
fn a_wrong_form_of_records_is_noticed() {
    let forgetful = |record: &Record| Record { display: None, ..record.clone() }.to_bytes();
    let swapping = |record: &Record| {
        let (first_seen, updated_at) = (record.updated_at, record.first_seen);
        Record { first_seen, updated_at, ..record.clone() }.to_bytes()
    };
    let leaking = |bytes: &[u8]| {
        Record::from_bytes(bytes)
            .map_err(|_| StoreError::new(StoreErrorKind::Corrupt).because(bytes.escape_ascii().to_string()))
    };
    let lenient = |bytes: &[u8]| match Record::from_bytes(bytes) {
        Err(error) if error.to_string().contains("`end`") => {
            Record::from_bytes(&record_bytes::sealed(&[&bytes[..bytes.len() - 5], &[0; 4]].concat()))
        }
        other => other,
    };
    let trusting = |bytes: &[u8]| {
        let _length = bytes[bytes.len() - 8];
        Record::from_bytes(bytes)
    };
    for form in [
        Form { encode: forgetful, ..Form::REAL },
        Form { encode: swapping, ..Form::REAL },
        Form { decode: leaking, ..Form::REAL },
        Form { decode: lenient, ..Form::REAL },
        Form { decode: trusting, ..Form::REAL },
    ] {
        assert!(is_noticed("record_bytes", |input| record_bytes::hold(&form, input)), "{form:?}");
    }
}

#[test]
fn a_wrong_reader_of_durations_is_noticed() {
    let in_seconds: fn(&str) -> Result<Policy, String> = |text| {
        let policy = (Reader::REAL.lease)(text)?;
        match humantime::parse_duration(text) {
            Ok(duration) => Ok(Policy::new().lease(std::time::Duration::from_secs(duration.as_secs()))),
            Err(_) => Ok(policy),
        }
    };
    let silent: fn(&str) -> Result<Policy, String> = |text| (Reader::REAL.lease)(text).map_err(|_| "bad".to_owned());
    let wrapping: fn(&str) -> Result<Policy, String> =
        |text| (Reader::REAL.lease)(text).or_else(|_| (Reader::REAL.lease)("1s"));
    for lease in [in_seconds, silent, wrapping] {
        assert!(is_noticed("durations", |input| durations::hold(&Reader { lease }, input)));
    }
}

#[test]
fn a_wrong_maker_of_keys_is_noticed() {
    // Joined by a separator instead of prefixed by their lengths.
    let joining = |fields: &Fields| {
        (Maker::REAL.key)(fields)?;
        Identity::new(Scene::Named(fields.scene.clone().into()), fields.scope.clone(), &fields.parts.join(&b':'))
            .tenant(&fields.tenant.as_ref().map(|tenant| tenant.join(&b':')).unwrap_or_else(|| b"none".to_vec()))
            .key(&fields.namespace)
    };
    let cutting = |fields: &Fields| {
        let mut fields = fields.clone();
        fields.parts.iter_mut().for_each(|part| part.truncate(300));
        (Maker::REAL.key)(&fields)
    };
    let folding = |fields: &Fields| {
        let mut fields = fields.clone();
        fields.parts.iter_mut().for_each(|part| part.make_ascii_lowercase());
        fields.scope = fields.scope.trim().to_owned();
        (Maker::REAL.key)(&fields)
    };
    for key in [joining, cutting, folding] {
        assert!(is_noticed("keys", |input| keys::hold(&Maker { key }, input)));
    }
}

#[test]
fn a_wrong_reader_of_keys_in_headers_is_noticed() {
    type Read = fn(KeySyntax, &HeaderMap) -> Result<Option<String>, InvalidKey>;
    let first: Read = |syntax, headers| {
        let line = headers.get("idempotency-key").cloned().map(|line| (IDEMPOTENCY_KEY, line));
        (http_key::Reader::REAL.read)(syntax, &HeaderMap::from_iter(line))
    };
    let raw: Read = |syntax, headers| {
        let key = (http_key::Reader::REAL.read)(syntax, headers)?;
        Ok(key.map(|_| String::from_utf8_lossy(headers["idempotency-key"].as_bytes()).into_owned()))
    };
    let shouting: Read =
        |syntax, headers| Ok((http_key::Reader::REAL.read)(syntax, headers)?.map(|key| key.to_ascii_lowercase()));
    let taking: Read = |syntax, headers| {
        let any = || headers["idempotency-key"].to_str().ok().map(str::to_owned);
        (http_key::Reader::REAL.read)(syntax, headers).or_else(|why| any().map(Some).ok_or(why))
    };
    let strict: Read = |_, headers| (http_key::Reader::REAL.read)(KeySyntax::Structured, headers);
    for read in [first, raw, shouting, taking, strict] {
        assert!(is_noticed("http_key", |input| http_key::hold(&http_key::Reader { read }, input)));
    }
}

#[test]
fn a_wrong_form_of_answers_is_noticed() {
    let sorting: fn(&[u8]) -> Result<Seen, String> = |bytes| {
        let mut seen = (kept::Form::REAL.decode)(bytes)?;
        seen.body.iter_mut().for_each(|body| body.sort_unstable());
        Ok(seen)
    };
    let leaking: fn(&[u8]) -> Result<Seen, String> =
        |bytes| (kept::Form::REAL.decode)(bytes).map_err(|why| format!("{why}: {}", bytes.escape_ascii()));
    let trusting: fn(&[u8]) -> Result<Seen, String> = |bytes| {
        let _length = bytes[bytes.len() - 1];
        (kept::Form::REAL.decode)(bytes)
    };
    for decode in [sorting, leaking, trusting] {
        assert!(is_noticed("kept", |input| kept::hold(&kept::Form { decode, ..kept::Form::REAL }, input)));
    }
    let with_cookies: fn(&Seen) -> Seen = Seen::clone;
    let single: fn(&Seen) -> Seen = |answer| {
        let mut seen = (kept::Form::REAL.replay)(answer);
        seen.headers.dedup_by(|one, other| one.0 == other.0);
        seen
    };
    let text: fn(&Seen) -> Seen = |answer| {
        let mut seen = (kept::Form::REAL.replay)(answer);
        seen.body = seen.body.map(|body| String::from_utf8_lossy(&body).into_owned().into_bytes());
        seen
    };
    let shown: fn(&Seen) -> Seen = |answer| {
        let mut seen = (kept::Form::REAL.replay)(answer);
        seen.headers.iter_mut().for_each(|(.., sensitive)| *sensitive = false);
        seen
    };
    for replay in [with_cookies, single, text, shown] {
        assert!(is_noticed("kept", |input| kept::hold(&kept::Form { replay, ..kept::Form::REAL }, input)));
    }
}

const IDEMPOTENCY_KEY: http::HeaderName = http::HeaderName::from_static("idempotency-key");

#[test]
fn a_wrong_judge_of_policies_is_noticed() {
    let agreeing = Judge { check: |_, _| Ok(()), ..Judge::REAL };
    let deaf = Judge { read: |json| Ok(serde_json::from_slice(json).unwrap_or_default()), ..Judge::REAL };
    for judge in [agreeing, deaf] {
        assert!(is_noticed("policy", |input| policy::hold(&judge, input)), "{judge:?}");
    }
}
