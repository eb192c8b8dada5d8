//! The example as it is run, and processes of it that are killed.
use std::path::Path;
use std::time::{Duration, Instant};

use crate::example::{self, Running};
use crate::order_timeout::shop::Shop;

fn run(args: &[&str]) -> String {
    example::run("order_timeout", args)
}

#[test]
fn the_example_ends_with_one_effect_for_each_order() {
    let said = run(&["--limit", "300ms"]);
    let ends = |order: &str, status: &str| said.contains(&format!("{order}: {status}, by 1 effect\n"));
    assert!(ends("order-1", "paid"), "{said}");
    assert!(ends("order-3", "cancelled"), "{said}");
    // Of two that come at the same moment either may be first; both never are.
    let in_time = said.contains("order-2: the payment came in time");
    assert!(ends("order-2", if in_time { "paid" } else { "cancelled" }), "{said}");
}

/// Places an order, and kills the process at once. That may be after the order's time.
fn placed_and_killed(file: &str, limit: &str) {
    let mut running = Running::start("order_timeout", &["--database", file, "--limit", limit, "place", "o"]);
    assert_eq!(running.says(1), ["o: placed"]);
}

async fn shop(file: &str) -> Shop {
    Shop::open(file, |limits| limits).await.unwrap()
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
        assert_eq!(shop(file).await.status("o").await.unwrap(), "unpaid", "nobody runs");
        let said = run(&["--database", file, "work"]);
        assert!(said.contains("o: its time is over, it is cancelled"), "{said}");
        assert_eq!(shop(file).await.effects("o").await.unwrap(), ["cancelled"]);
        assert!(run(&["--database", file, "pay", "o"]).contains("o: too late"));
        assert_eq!(run(&["--database", file, "work"]), "", "nothing is left");
        assert_eq!(shop(file).await.effects("o").await.unwrap(), ["cancelled"]);
        return;
    }
    panic!("the process was never killed before the time of its order was over");
}

async fn survived(path: &Path) -> bool {
    shop(path.to_str().unwrap()).await.status("o").await.unwrap() == "unpaid"
}
