//! Policies from configuration: rejected with the setting's name, or judged by the rules.
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use idempotent_core::{Executor, MemoryStore, Policy, PolicyError, Scene};
use serde_json::{Map, Value, json};

/// The functions under test.
#[derive(Debug)]
pub struct Judge {
    /// Reads a policy by `Deserialize`.
    pub read: fn(&[u8]) -> serde_json::Result<Policy>,
    /// Checks a policy, as [`Policy::check`] does.
    pub check: fn(&Policy, &Scene) -> std::result::Result<(), PolicyError>,
}

impl Judge {
    /// The real functions.
    pub const REAL: Self = Self { read: |json| serde_json::from_slice(json), check: Policy::check };
}

/// Checks the input as JSON, as values for known settings, and as times that are judged by independent rules.
pub fn hold(judge: &Judge, input: &[u8]) -> &'static str {
    let from = &mut Unstructured::new(input);
    if let Ok(times) = Times::arbitrary_of(from) {
        judged(judge, &times);
    }
    if let Ok(settings) = settings(&mut Unstructured::new(input)) {
        any(judge, Value::Object(settings).to_string().as_bytes());
    }
    any(judge, input)
}

fn any(judge: &Judge, json: &[u8]) -> &'static str {
    let policy = match (judge.read)(json) {
        Ok(policy) => policy,
        Err(error) => return refused(json, &error.to_string()),
    };
    let settings: Map<String, Value> = serde_json::from_slice(json).expect("a policy is an object");
    assert!(settings.keys().all(|name| NAMES.contains(&name.as_str())), "what is unknown is refused");
    let mut way = "sound";
    for scene in [Scene::Mq, Scene::Rest, Scene::Named("jobs".into())] {
        let checked = (judge.check)(&policy, &scene);
        if let Err(error) = &checked {
            let text = error.to_string();
            assert!(text.starts_with("policy: ") && NAMES.iter().any(|name| text.contains(name)), "{text}");
            way = "unsound";
        }
        // Every error is reported before the first delivery.
        let built = Executor::builder(STORE.clone()).policy(scene, policy).build();
        assert_eq!(built.err(), checked.err());
    }
    way
}

/// One store for all inputs, since creating a store takes longer than everything else.
static STORE: LazyLock<MemoryStore> = LazyLock::new(MemoryStore::new);

/// Checks that the error for an object names one of its settings.
fn refused(json: &[u8], error: &str) -> &'static str {
    match serde_json::from_slice(json) {
        Ok(Value::Object(settings)) => {
            assert!(settings.keys().any(|name| error.contains(&format!("`{name}`"))), "{error}");
            "refused by its setting"
        }
        Ok(_) => {
            assert!(error.contains("a policy: lease, retain, max_retries"), "{error}");
            "not an object"
        }
        Err(_) => "not JSON",
    }
}

const NAMES: [&str; 23] = [
    "lease",
    "heartbeat",
    "max_run",
    "retain",
    "max_retries",
    "retain_failures",
    "in_flight_delay",
    "in_flight_delay_max",
    "retry_delay",
    "retry_delay_max",
    "jitter",
    "on_expiry",
    "on_lease_lost",
    "on_in_flight",
    "on_store_error",
    "release_on_cancel",
    "max_result",
    "display_key",
    "window",
    "settle_timeout",
    "on_consumed",
    "on_broken_order",
    "on_late",
];

/// Creates names and values that are nearly correct.
fn settings(from: &mut Unstructured<'_>) -> Result<Map<String, Value>> {
    let mut settings = Map::new();
    for _ in 0..from.int_in_range(1..=4)? {
        let mut name = (*from.choose(&NAMES)?).to_owned();
        if from.ratio(1, 8)? {
            name.pop();
        }
        settings.insert(name, value(from)?);
    }
    Ok(settings)
}

fn value(from: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match from.int_in_range(0..=7)? {
        0 => json!(format!("{}{}", u16::arbitrary(from)?, from.choose(&["ms", "s", "m", "d", "y", "", "KiB"])?)),
        1 => json!(i64::arbitrary(from)?),
        2 => json!(u8::arbitrary(from)?),
        3 => json!(from.choose(&["forever", "takeover", "park", "abort", "ack", "retry", "fail", "full", "hash"])?),
        4 => json!({ *from.choose(&["wait", "mask"])?: format!("{}s", u8::arbitrary(from)?) }),
        5 => json!(from.arbitrary::<bool>()?),
        6 => json!(<&str>::arbitrary(from)?),
        _ => json!([null, f64::arbitrary(from)?]),
    })
}

/// The settings with rules.
#[derive(Debug)]
struct Times {
    times: [Option<Duration>; 9],
    wait: Option<Duration>,
    jitter: Option<u8>,
}

const TIMES: [&str; 9] = [
    "lease",
    "heartbeat",
    "max_run",
    "retain",
    "retain_failures",
    "in_flight_delay",
    "in_flight_delay_max",
    "retry_delay",
    "retry_delay_max",
];

impl Times {
    fn arbitrary_of(from: &mut Unstructured<'_>) -> Result<Self> {
        let mut times = [None; 9];
        for time in &mut times {
            *time = Self::time(from)?;
        }
        Ok(Self { times, wait: Self::time(from)?, jitter: from.arbitrary()? })
    }

    /// Returns a time, with some round values, so that limits are hit.
    fn time(from: &mut Unstructured<'_>) -> Result<Option<Duration>> {
        Ok(match from.int_in_range(0..=6)? {
            0..=2 => None,
            3 => Some(Duration::from_secs(*from.choose(&[0, 1, 10, 30, 60, 86_400, 30 * 86_400])?)),
            4 => Some(Duration::from_millis(from.int_in_range(0..=3)?)),
            5 => Some(Duration::from_micros(from.int_in_range(0..=5_000)?)),
            _ => Some(Duration::from_secs(from.int_in_range(0..=10_000_000)?)),
        })
    }

    fn to_json(&self) -> Value {
        let text = |time: Duration| json!(humantime::format_duration(time).to_string());
        let named = TIMES.into_iter().zip(self.times).filter_map(|(name, time)| Some((name.to_owned(), text(time?))));
        let mut settings: Map<String, Value> = named.collect();
        if let Some(wait) = self.wait {
            settings.insert("on_in_flight".to_owned(), json!({ "wait": text(wait) }));
        }
        if let Some(jitter) = self.jitter {
            settings.insert("jitter".to_owned(), json!(jitter));
        }
        Value::Object(settings)
    }

    /// Returns whether the times follow the documented rules, with the defaults of `mq`.
    fn are_sound(&self) -> bool {
        let second = Duration::from_secs;
        let [lease, heartbeat, max_run, retain, memory, in_flight, in_flight_max, retry, retry_max] = self.times;
        // A time that is too short for a store counts as 1 ms.
        let kept = |time: Option<Duration>, default: Duration| match time {
            Some(time) if !time.is_zero() => time.max(Duration::from_millis(1)),
            Some(zero) => zero,
            None => default,
        };
        let month = second(30 * 86_400);
        let lease = kept(lease, second(30));
        let heartbeat = Some(kept(heartbeat, Duration::ZERO)).filter(|time| !time.is_zero()).unwrap_or(lease / 3);
        let below = |first: Option<Duration>, most: Option<Duration>, default| {
            let first = first.unwrap_or(second(1));
            !first.is_zero() && first <= most.unwrap_or(default)
        };
        !lease.is_zero()
            && lease <= month
            && heartbeat < lease / 2
            && kept(max_run, second(600).max(lease)) >= lease
            && kept(retain, second(7 * 86_400)) > lease
            && kept(memory, second(7 * 86_400)) >= lease
            && below(in_flight, in_flight_max, second(10))
            && below(retry, retry_max, second(300))
            && self.jitter.is_none_or(|percent| percent <= 100)
            && self.wait.is_none_or(|wait| !wait.is_zero() && wait <= month)
    }
}

fn judged(judge: &Judge, times: &Times) {
    let json = times.to_json().to_string();
    let policy = (judge.read)(json.as_bytes()).unwrap_or_else(|e| panic!("{json}: {e}"));
    let checked = (judge.check)(&policy, &Scene::Mq);
    assert_eq!(checked.is_ok(), times.are_sound(), "{json}: {checked:?}");
}
