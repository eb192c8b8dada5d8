//! Tests of the builder.
use super::*;

fn builder() -> KafkaSourceBuilder {
    KafkaSourceBuilder::new("kafka://a".into(), "orders".into(), "billing".into())
}

#[test]
fn names_of_topics_have_the_form_that_kafka_accepts() {
    let accepts = |name: &str| builder().dead_letters(name).check().is_ok();
    for name in ["a", "...", "a.b_c-D9", &*"a".repeat(249)] {
        assert!(accepts(name), "{name}");
    }
    for name in ["", ".", "..", "a b", "ä", &*"a".repeat(250)] {
        assert!(!accepts(name), "{name}");
    }
}

#[test]
fn each_number_is_at_least_one() {
    assert!(builder().declare(1).check().is_ok());
    for zero in [builder().declare(0), builder().replicas(0), builder().max_in_flight(0)] {
        assert!(zero.check().is_err_and(|error| error.to_string().contains("at least 1")));
    }
}

#[test]
fn a_session_has_fifteen_heartbeats_at_100_ms_to_3_s() {
    for (session, heartbeat) in [(1, "100"), (30, "2000"), (60, "3000")] {
        let config = builder().session_timeout(Duration::from_secs(session)).config().unwrap();
        assert_eq!(config.get("heartbeat.interval.ms"), Some(heartbeat));
    }
}

#[test]
fn a_member_with_a_name_is_a_static_one() {
    let of = |builder: KafkaSourceBuilder| builder.config().unwrap().get("group.instance.id").map(str::to_owned);
    assert_eq!(of(builder().member("billing-0")).as_deref(), Some("billing-0"));
    assert_eq!(of(builder()), None);
}

#[test]
fn a_request_waits_for_a_tenth_of_a_second_unless_a_property_says_otherwise() {
    let wait = |url: &str| {
        let config = KafkaSourceBuilder::new(url.into(), "orders".into(), "billing".into()).config().unwrap();
        config.get(FETCH_WAIT).map(str::to_owned)
    };
    assert_eq!(wait("kafka://a").as_deref(), Some("100"));
    assert_eq!(wait("kafka://a?fetch.wait.max.ms=500").as_deref(), Some("500"));
}
