#![allow(clippy::unwrap_used)]
use super::*;

fn plan(source: &str) -> Result<AttributePlan> {
    AttributePlan::new(syn::parse_str(source)?)
}

#[test]
fn an_invalid_value_is_refused_with_the_valid_ones() {
    for (source, want) in [
        ("scene = mq", "missing `key`: name the value that identifies the call, e.g. `key = order.id`"),
        ("key = \"\"", "key must not be empty"),
        ("key = (a, &\"\")", "key must not be empty"),
        ("key = ()", "key must not be empty"),
        ("key = a, scope = \"\"", "scope must not be empty"),
        ("key = a, prefix = 7", "`prefix` is text in quotes"),
        ("key = a, scene = http", "unknown scene `http`; known: `mq` or `rest`, or a name of your own in quotes"),
        ("key = a, scene = rset", "did you mean `rest`?"),
        ("key = a, scene = \"rest\"", "write `scene = rest` without quotes"),
        ("key = a, scene = \"MQ\"", "did you mean `scene = mq`, without quotes?"),
        ("key = a, scene = \"rset\"", "did you mean `scene = rest`, without quotes?"),
        ("key = a, scene = \" Rest \"", "A scene of your own needs another name"),
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
        ("key = a, scene = rest, on_in_flight = ack", "is for messages"),
        ("key = a, by = token, tenant = b, on_in_flight = ack", "is for messages"),
        ("key = a, on_in_flight = wait", "wait(\"2s\")"),
        ("key = a, on_in_flight = wait(\"2x\")", "unknown unit `x`"),
        ("by = luck", "`by` is `key`, `token` or `param`"),
        ("by = tokn, key = a", "did you mean `token`?"),
        ("by = ByEvent", "missing `key`: name the argument from which the strategy derives the key"),
        ("by = self.strategy, key = a, window = \"5s\"", "`window` requires `by = param`"),
        ("by = ByEvent, key = a, batch = a in b", "leave `by` out"),
        ("by = \"param\"", "`by` is `key`, `token` or `param`"),
        ("by = token, tenant = u", "missing `key`: say where the call's token is, e.g. `key = token`"),
        ("by = token, key = t", "`by = token` needs a `tenant`, the caller that the token was issued to"),
        ("by = token, key = t, tenant = u, scene = mq", "tokens are issued for `scene = rest`"),
        ("by = token, key = t, tenant = u, scene = \"forms\"", "tokens are issued for `scene = rest`"),
        ("by = token, key = t, tenant = u, prefix = \"p\"", "set `ExecutorBuilder::namespace`"),
        ("by = token, key = t, tenant = u, window = \"5s\"", "an unused token expires after its `ttl`"),
        ("by = token, key = t, tenant = u, ttl = \"0s\"", "`ttl` must be > 0"),
        (
            "by = token, key = t, tenant = u, on_store_error = run_unprotected",
            "a token cannot be verified without the store",
        ),
        ("by = param, window = \"0s\"", "`window` must be > 0"),
        ("by = param, window = 5", "`window` is a duration in quotes"),
        ("by = param, ttl = \"5s\"", "for the time of `by = param`, use `window`"),
        ("by = param, retain = \"5s\"", "use `window = \"5s\"` instead of `retain`"),
        ("by = param, fingerprint = a", "name all values that count in `key = (a, b)`"),
        ("by = param, key = ()", "key must not be empty"),
        ("key = a, window = \"5s\"", "for the time that a key is retained, use `retain`"),
        ("key = a, ttl = \"5s\"", "for a key say `lease` (how long a run may hold it) or `retain`"),
        ("key = a, by = key, replay", "a duplicate of a key gets the recorded result anyway"),
        ("key = a, permanent = true", "`permanent` is a closure over the error: `permanent = |error| …`"),
        ("key = a, describe = \"no stock\"", "`describe` is a closure over the error: `describe = |error| …`"),
        ("key = a, failed_if = true", "`failed_if` is a closure over the value: `failed_if = |value| …`"),
        ("key = a, reject = 503", "`reject = |rejection| …`"),
        ("key = a, max_result = \"0B\"", "`max_result` must be > 0"),
    ] {
        let error = plan(source).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(want), "{source}: {error}");
    }
}

#[test]
fn each_setting_reaches_the_policy_in_its_unit() {
    let plan = plan(
        r#"key = a, by = key, lease = "30s", max_run = "30s", retain = forever, max_retries = LIMIT,
        on_in_flight = wait("2s"), on_lease_lost = finish, on_expiry = park, on_store_error = run_unprotected,
        release_on_cancel, max_result = "1KiB", scene = "billing", scope = SCOPE"#,
    )
    .unwrap();
    assert_eq!(
        policy_settings(&plan),
        "lease=30000 max_run=30000 retain=forever max_retries=count on_in_flight=2000 \
         on_lease_lost=OnLeaseLost::Finish on_expiry=OnExpiry::Park on_store_error=OnStoreError::RunUnprotected \
         release_on_cancel=yes max_result=1024"
    );
}

fn policy_settings(plan: &AttributePlan) -> String {
    let show = |knob: &PolicySetter| {
        let setting = match &knob.setting {
            SettingValue::Millis(n) | SettingValue::Wait(n) | SettingValue::Bytes(n) => n.to_string(),
            SettingValue::Forever => "forever".into(),
            SettingValue::Window => "usual".into(),
            SettingValue::Count(_) => "count".into(),
            SettingValue::Word(of, variant) => format!("{of}::{variant}"),
            SettingValue::BrokenOrder(variant, millis) => format!("{variant}({millis})"),
            SettingValue::Yes => "yes".into(),
        };
        format!("{}={setting}", knob.setter)
    };
    let shown: Vec<_> = plan.policy_settings.iter().map(show).collect();
    shown.join(" ")
}

#[test]
fn after_and_its_rule_for_a_broken_order_are_resolved() {
    for (source, want) in [
        ("key = a, after = b", ""),
        ("key = a, after = b, on_broken_order = hold(\"1m\")", "on_broken_order=Hold(60000)"),
        ("key = a, after = b, on_broken_order = skip(\"1s\")", "on_broken_order=Skip(1000)"),
        ("key = a, after = b, on_broken_order = halt(\"1h\")", "on_broken_order=Halt(3600000)"),
    ] {
        let plan = plan(source).unwrap();
        assert!(matches!(plan.order, Some(OrderPosition::After(_))));
        assert_eq!(policy_settings(&plan), want, "{source}");
    }
}

#[test]
fn a_sequence_is_a_stream_and_a_number_with_a_rule_for_late_ones() {
    for (source, want) in [
        ("key = a, sequence = (b, c)", ""),
        ("key = a, sequence = ((b, c), d.number), on_late = refuse", "on_late=OnLate::Refuse"),
        (
            "key = a, sequence = (b, c), on_broken_order = skip(\"1s\"), on_late = run",
            "on_broken_order=Skip(1000) on_late=OnLate::Run",
        ),
    ] {
        let plan = plan(source).unwrap();
        assert!(matches!(plan.order, Some(OrderPosition::Sequence(..))));
        assert_eq!(policy_settings(&plan), want, "{source}");
    }
}

#[test]
fn calls_by_token_and_param_are_requests_and_refuse_duplicates_by_default() {
    for (source, want) in [
        ("by = token, key = t, tenant = u", "on_consumed=OnConsumed::Refuse"),
        ("by = token, key = t, tenant = u, replay, scene = rest", "on_consumed=OnConsumed::Replay"),
        ("by = param", "on_consumed=OnConsumed::Refuse window=usual"),
        ("by = param, window = \"1m\", replay", "on_consumed=OnConsumed::Replay window=60000"),
    ] {
        let plan = plan(source).unwrap();
        assert!(matches!(plan.scene, Scene::Rest), "{source}");
        assert_eq!(policy_settings(&plan), want, "{source}");
    }
    assert!(matches!(plan("by = param, scene = mq").unwrap().scene, Scene::Mq));
    assert!(matches!(
        plan("by = token, key = t, tenant = u, ttl = \"1m\"").unwrap().by,
        KeySource::Token(Some(60_000))
    ));
    assert!(matches!(plan("key = a, by = key").unwrap().scene, Scene::Mq));
}
