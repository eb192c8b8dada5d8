//! Orders that are sent more than once, in the ways people do it.
use crate::browser::chromium::{Browser, Counted};
use crate::wait::until;

/// The longest handler that the form permits. Its process ends earlier.
const LONG: u64 = 60_000;

#[test]
fn a_double_click_places_one_order_and_both_get_its_number() {
    let browser = Browser::order("double", 500);
    browser.find("#order").click(2);
    until("both are answered", || browser.said("placed, order") == 1 && browser.said("replayed") == 1);
    let numbers: Vec<String> = browser
        .answers()
        .iter()
        .filter_map(|answer| answer.split_once("order ").map(|(_, number)| number[number.len() - 8..].to_owned()))
        .collect();
    assert_eq!(numbers.len(), 2);
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(browser.service.executions("double"), 1);
    until("the page shows it", || {
        browser.counted().is_some_and(|counted| (counted.executions, counted.replays) == (1, 1))
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn while_an_order_runs_a_second_click_is_a_conflict_and_is_counted_live() {
    let browser = Browser::order("running", LONG);
    browser.find("#retry").click(1);
    browser.find("#order").click(2);
    until("the second is answered", || browser.said("409 Request in progress: come back in ") == 1);
    until("the page shows it", || {
        browser.counted() == Some(Counted { executions: 1, replays: 0, conflicts: 1, mismatches: 0 })
    });
    browser.find("#many").click(1);
    until("the page shows five more", || {
        browser.counted() == Some(Counted { executions: 1, replays: 0, conflicts: 6, mismatches: 0 })
    });
    assert_eq!(browser.service.executions("running"), 1);
}

#[test]
fn a_reload_in_the_middle_stops_nothing_and_the_next_click_gets_the_answer() {
    let browser = Browser::order("reload", 1_000);
    let key = browser.key();
    browser.find("#order").click(1);
    until("it runs", || browser.service.executions("reload") == 1);
    browser.reload();
    assert_eq!((browser.key(), browser.answers().len()), (key, 0));
    browser.find("#order").click(2);
    until("both are answered", || browser.said("replayed: this order was placed before") == 2);
    assert_eq!((browser.said("placed, order"), browser.service.executions("reload")), (0, 1));
}

#[test]
fn a_returning_customer_orders_the_same_order() {
    let browser = Browser::order("back", 0);
    let key = browser.key();
    browser.find("#order").click(1);
    until("it is placed", || browser.said("placed, order") == 1);
    browser.script("location.href = '/code'");
    until("it is away", || browser.script("return location.pathname") == "/code");
    browser.back();
    assert_eq!(browser.script("return location.pathname"), "/");
    assert_eq!(browser.key(), key);
    browser.find("#order").click(1);
    until("a replay", || browser.said("replayed: this order was placed before") == 1);
    assert_eq!(browser.service.executions("back"), 1);
}

#[test]
fn a_new_key_is_a_new_order_and_another_order_needs_one() {
    let browser = Browser::order("new", 0);
    browser.find("#order").click(1);
    until("it is placed", || browser.said("placed, order") == 1);
    browser.find("#qty").fill("7");
    browser.find("#order").click(1);
    until("it is refused", || browser.said("422 Idempotency key used before") == 1);
    until("the page shows it", || browser.counted().is_some_and(|counted| counted.mismatches == 1));
    assert_eq!(browser.service.executions("new"), 1);
    browser.find("#fresh").click(1);
    browser.find("#order").click(1);
    until("it is placed", || browser.said("placed, order") == 2);
    assert_eq!(browser.service.executions("new"), 2);
    until("both keys are shown", || {
        browser.script("return document.querySelectorAll('#numbers tbody tr').length") == 2
    });
}

#[test]
fn a_failure_is_shown_and_frees_the_key() {
    let browser = Browser::order("fail", 0);
    browser.find("#fail").type_in("a panic");
    browser.find("#order").click(1);
    until("it failed", || browser.said("500 Internal error") == 1);
    browser.find("#fail").type_in("an order");
    browser.find("#order").click(1);
    until("it is placed", || browser.said("placed, order") == 1);
    assert_eq!(browser.service.executions("fail"), 2);
}
