#![allow(clippy::unwrap_used)]
use super::*;

fn plan(source: &str) -> Result<Plan> {
    Plan::new(syn::parse_str(source)?)
}

#[test]
fn what_cannot_be_meant_says_what_can() {
    for (source, want) in [
        ("scene = mq", "missing `key`: say what makes two calls the same, e.g. `key = order.id`"),
        ("key = \"\"", "key must not be empty"),
        ("key = (a, &\"\")", "key must not be empty"),
        ("key = ()", "key must not be empty"),
        ("key = a, scope = \"\"", "scope must not be empty"),
        ("key = a, prefix = 7", "`prefix` is text in quotes"),
        ("key = a, scene = http", "unknown scene `http`; known: `mq` or `rest`, or a name of your own in quotes"),
        ("key = a, scene = rset", "did you mean `rest`?"),
        ("key = a, scene = \"rest\"", "write `scene = rest` without quotes"),
        ("key = a, scene = 7", "`scene` is `mq` or `rest`, or a name"),
        ("key = a, lease = \"0s\"", "`lease` must be > 0"),
        ("key = a, lease = -1", "`lease` must be > 0"),
        ("key = a, lease = \"7d\", retain = \"7d\"", "the lease must be shorter than retention"),
        ("key = a, lease = \"31d\"", "`lease` must be 1 ms … 30 days"),
        ("key = a, lease = \"10m\", max_run = \"1m\"", "`max_run` must not be shorter than the lease"),
        ("key = a, retain = always", "\"7d\", or `forever`"),
        ("key = a, retain = \"forever\"", "without quotes"),
        ("key = a, max_retries = -1", "must be >= 0"),
        ("key = a, max_retries = 5_000_000_000", "fits 32 bits"),
        ("key = a, max_retries = \"3\"", "is a whole number"),
        ("key = a, on_expiry = steal", "`on_expiry` is `takeover` or `park`"),
        ("key = a, on_expiry = prak", "did you mean `park`?"),
        ("key = a, on_in_flight = ack", "comes with the outbox"),
        ("key = a, on_in_flight = wait", "wait(\"2s\")"),
        ("key = a, on_in_flight = wait(\"2x\")", "unknown unit `x`"),
        ("key = a, by = token", "`by = token` comes with the token part"),
        ("by = param", "today: name the arguments that count: `key = (a, b)`"),
        ("by = luck", "`by` is `key`"),
        ("key = a, permanent = true", "`permanent` is a closure over the error: `permanent = |error| …`"),
        ("key = a, failed_if = true", "`failed_if` is a closure over the value: `failed_if = |value| …`"),
        ("key = a, reject = 503", "`reject = |rejection| …`"),
        ("key = a, max_result = \"0B\"", "`max_result` must be > 0"),
    ] {
        let error = plan(source).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(want), "{source}: {error}");
    }
}

#[test]
fn each_knob_reaches_the_policy_in_its_unit() {
    let plan = plan(
        r#"key = a, by = key, lease = "30s", max_run = "30s", retain = forever, max_retries = LIMIT,
        on_in_flight = wait("2s"), on_lease_lost = finish, on_expiry = park, on_store_error = run_unprotected,
        release_on_cancel, max_result = "1KiB", scene = "billing", scope = SCOPE"#,
    )
    .unwrap();
    let show = |knob: &Knob| {
        let setting = match &knob.setting {
            Setting::Millis(n) | Setting::Wait(n) | Setting::Bytes(n) => n.to_string(),
            Setting::Forever => "forever".into(),
            Setting::Count(_) => "count".into(),
            Setting::Word(of, variant) => format!("{of}::{variant}"),
            Setting::Yes => "yes".into(),
        };
        format!("{}={setting}", knob.setter)
    };
    let shown: Vec<_> = plan.knobs.iter().map(show).collect();
    assert_eq!(
        shown.join(" "),
        "lease=30000 max_run=30000 retain=forever max_retries=count on_in_flight=2000 \
         on_lease_lost=OnLeaseLost::Finish on_expiry=OnExpiry::Park on_store_error=OnStoreError::RunUnprotected \
         release_on_cancel=yes max_result=1024"
    );
}
