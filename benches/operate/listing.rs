//! The figures of one store.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use idempotent::store::StateKind;
use idempotent_operate::{KeyFilter, PageLimits, list_paced};

use crate::report::{Goal, Pair, Report, median};
use crate::{DEAD, Side, claims};

/// The default rate of `idempotent list --all` and `idempotent count`.
const RATE: u32 = 5_000;
/// Records that the listing of a round with claims examines.
const EXAMINED: usize = 60_000;
const ROUNDS: usize = 5;
/// The time between two claims of a claimer. Workers that claim without a pause would saturate the machine and so hide the
/// effect of a listing.
const PAUSE: Duration = Duration::from_millis(2);
/// An unused range of numbers.
const FROM: u64 = 1 << 43;
/// Listings of all records, one with `--full`.
const LISTINGS: usize = 3;

pub async fn all(report: &Report, side: &dyn Side, records: u64) {
    let dead = KeyFilter::of_states(&[StateKind::Dead]);
    for (name, filter, expected) in [("list 10 dead", dead, DEAD), ("count all", KeyFilter::all(), records + DEAD)] {
        let (mut longest, mut rates) = (0_f64, Vec::new());
        let is_full = records > report.keys();
        // The first statements of a connection load the catalogs of a database.
        listed(side, &filter, 1_000, None).await;
        for _ in 0..if report.is_tried() || is_full { 1 } else { LISTINGS } {
            side.relay().longest_ms();
            let start = Instant::now();
            let (found, examined) = listed(side, &filter, usize::MAX, None).await;
            rates.push(examined as f64 / start.elapsed().as_secs_f64());
            longest = longest.max(side.relay().longest_ms());
            assert_eq!((found, examined), (expected, records + DEAD), "{name}");
        }
        let rate = median(rates);
        report.value(
            (side.name(), &format!("{name}, longest processor time of a command"), None),
            "ms",
            longest,
            Goal::AtMost(5.0),
        );
        report.value((side.name(), &format!("{name}, examined per second"), None), "records/s", rate, Goal::None);
    }
    for (name, rate, goal) in [
        ("claims' p99 during a listing, to idle", NonZeroU32::new(RATE), Goal::AtMost(1.5)),
        ("claims' p99 during a listing without limit, to idle", None, Goal::None),
    ] {
        beside(report, side, name, rate, goal).await;
    }
}

/// Reports the p99 of claims during a listing, with that of an idle server as its floor.
async fn beside(report: &Report, side: &dyn Side, name: &str, rate: Option<NonZeroU32>, goal: Goal) {
    let filter = KeyFilter::of_states(&[StateKind::Dead]);
    let next = Arc::new(AtomicU64::new(FROM));
    let (rounds, examined) = if report.is_tried() { (1, 1_000) } else { (ROUNDS, EXAMINED) };
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let listing = async {
            listed(side, &filter, examined, rate).await;
        };
        let during = claims::p99_during(&side.store(), &next, Some(PAUSE), listing).await;
        let idle = tokio::time::sleep(start.elapsed());
        let alone = claims::p99_during(&side.store(), &next, Some(PAUSE), idle).await;
        pairs.push((during, alone));
    }
    report.pair((side.name(), name, Some(claims::CLAIMERS)), "ms", Pair::medians(&pairs), goal);
}

/// Examines at most `most` records. Returns the number of found and of examined records.
async fn listed(side: &dyn Side, filter: &KeyFilter, most: usize, rate: Option<NonZeroU32>) -> (u64, u64) {
    let store = side.operator();
    let (mut found, mut examined, mut after) = (0, 0, None);
    while examined < most {
        let limits = PageLimits { keys: PageLimits::MOST_KEYS, examined: most - examined };
        let page = list_paced(&*store, filter, after, limits, rate).await.unwrap();
        found += page.keys.len() as u64;
        (examined, after) = (examined + page.examined, page.next);
        if after.is_none() {
            break;
        }
    }
    (found, examined as u64)
}
