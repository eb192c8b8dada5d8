//! The example as it is run, and processes of it that are killed.
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use idempotent::Timestamp;
use idempotent::delay::ScheduledTask;
use idempotent::mq::Scheduled;

use crate::example::{self, Running};
use crate::order_timeout::shop::{RECEIPT, RECEIPT_TIME, Shop};

fn run(args: &[&str]) -> String {
    example::run("order_timeout", args)
}

#[test]
fn the_example_ends_with_one_effect_and_one_notice_for_each_order() {
    ends_once(&run(&["--limit", "300ms"]));
}

/// Checks what the example says when it is run without a command.
pub(super) fn ends_once(said: &str) {
    let ends = |order: &str, how: &str| assert!(said.contains(&format!("{order}: {how}\n")), "{said}");
    let notices = |text: &str| said.matches(&format!("to the customer: {text}\n")).count();
    ends("order-1", "paid, shipped, auto-confirmed; notices: 1");
    assert_eq!(notices("order-1 is auto-confirmed"), 1, "{said}");
    ends("order-3", "cancelled; notices: 1");
    assert_eq!(notices("order-3 is cancelled"), 1, "{said}");
    // Of two that come at the same moment either may be first; both never are.
    let in_time = said.contains("order-2: the payment came in time");
    ends("order-2", if in_time { "paid; notices: 0" } else { "cancelled; notices: 1" });
}

/// Places an order, and kills the process at once. That may be after the order's time.
fn placed_and_killed(file: &str, limit: &str) {
    let mut running = Running::start("order_timeout", &["--database", file, "--limit", limit, "place", "o"]);
    assert_eq!(running.says(1), ["o: placed"]);
}

pub(super) async fn shop(file: &str) -> Shop {
    Shop::open(file, None).await.unwrap()
}

#[tokio::test]
async fn an_order_outlives_the_process_that_is_killed_and_the_next_one_cancels_it() {
    let folder = tempfile::tempdir().unwrap();
    for limit in [2, 10, 60] {
        let path = folder.path().join(format!("{limit}.db"));
        let file = path.to_str().unwrap();
        let start = Instant::now();
        placed_and_killed(file, &format!("{limit}s"));
        if !survived(&path).await {
            // This machine stood still for longer than that.
            continue;
        }
        let left = Duration::from_secs(limit).saturating_sub(start.elapsed());
        tokio::time::sleep(left + Duration::from_millis(10)).await;
        assert_eq!(shop(file).await.status("o").await.unwrap(), "unpaid", "no process runs");
        let said = run(&["--database", file, "work"]);
        assert!(said.contains("o: its time is over, it is cancelled"), "{said}");
        assert_eq!(shop(file).await.effects("o").await.unwrap(), ["cancelled"]);
        assert!(run(&["--database", file, "pay", "o"]).contains("o: too late"));
        assert_eq!(run(&["--database", file, "work"]), "", "nothing is left");
        assert_eq!(shop(file).await.effects("o").await.unwrap(), ["cancelled"]);
        assert_eq!(shop(file).await.notices("o").await.unwrap(), ["o is cancelled"]);
        return;
    }
    panic!("the process was never killed before the time of its order was over");
}

async fn survived(path: &Path) -> bool {
    shop(path.to_str().unwrap()).await.status("o").await.unwrap() == "unpaid"
}

fn now() -> Timestamp {
    Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

#[tokio::test]
async fn a_receipt_waits_seven_days_by_default_and_is_confirmed_by_its_customer_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let file = path.to_str().unwrap();
    placed_and_killed(file, "1h");
    let command = |command: &str| run(&["--database", file, command, "o"]);
    assert_eq!(command("pay"), "o: paid\n");
    let before = now();
    assert_eq!(command("ship"), "o: shipped\n");
    let after = now();
    let shop = shop(file).await;
    let (key, other) = (RECEIPT.key("o"), Duration::from_secs(1));
    let limit = shop.limits.put(&ScheduledTask::after(&*key, other, &*key)).await.unwrap();
    // The clock of SQLite has a resolution of 1 ms.
    let tick = Duration::from_millis(1);
    let Scheduled::Already { at } = limit else { panic!("{limit:?}") };
    assert!((before + RECEIPT_TIME..=after + RECEIPT_TIME + tick).contains(&at), "{before:?} {at:?} {after:?}");
    assert_eq!(command("confirm"), "o: confirmed\n");
    assert_eq!(command("confirm"), "o: too late, or confirmed before\n");
    assert_eq!(run(&["--database", file, "work"]), "", "nothing is left");
    assert_eq!(shop.effects("o").await.unwrap(), ["paid", "shipped", "confirmed"]);
}
