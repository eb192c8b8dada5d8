//! The application `outbox_payment`, tested as a process.
use crate::example;

#[test]
fn whatever_goes_wrong_each_payment_has_its_points_once() {
    let said = example::run("outbox_payment", &[]);
    let mut rest = &*said;
    for line in [
        "1. a payment that is rolled back announces nothing",
        "2. the broker is down",
        "none of its sendings is used up: Some((Unconfirmed, 0))",
        "it is up again",
        "3. a consumer dies",
        "it is gone; 1 message is delivered again",
        "acknowledged as a duplicate",
        "4. the broker accepts the message of order 18, and loses it",
        "points service: 19 points for order 19",
        "sent again, by the same id: Some((Confirmed, ",
        "each payment has its points once: [(\"payment-17\", 17), (\"payment-18\", 18), (\"payment-19\", 19)]",
    ] {
        let (_, behind) = rest.split_once(line).unwrap_or_else(|| panic!("`{line}` is not said, or not here: {said}"));
        rest = behind;
    }
    for order in 17..20 {
        let points = format!("points service: {order} points for order {order}");
        assert_eq!(said.matches(&points).count(), 1, "{said}");
    }
    assert!(!said.contains("order 16"), "{said}");
}
