//! The pages of the console, requested from its router in this process.
use std::time::Instant;

use axum::body::Body;
use http::Request;
use idempotent::console::{Access, Console, Role, User};
use tower::ServiceExt;

use crate::Side;
use crate::report::{Goal, Report};

/// The pages that follow each other.
const PAGES: usize = 20;

pub async fn all(report: &Report, side: &dyn Side) {
    let user = |_: &http::request::Parts| Some(User::new("bench", Role::Admin));
    let console = Console::builder().store("bench", side.store()).access(Access::from_request(user)).build().unwrap();
    for (name, path, goal) in [
        ("console, page of 50 of all keys, p95", "keys?state=consumed&state=dead", 300.0),
        ("console, page of dead keys after 20,000 records, p95", "dead", 500.0),
        ("console, overview, p95", "overview", 500.0),
    ] {
        let mut times = Vec::new();
        let mut link = path.to_owned();
        for _ in 0..PAGES {
            let start = Instant::now();
            let page = page(&console, &link).await;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert!(page.contains("records examined"), "{page}");
            link = next(&page).unwrap_or_else(|| path.to_owned());
        }
        times.sort_by(f64::total_cmp);
        let p95 = times[times.len() * 95 / 100 - 1];
        report.value((side.name(), name, None), "ms", p95, Goal::AtMost(goal));
    }
}

async fn page(console: &Console, link: &str) -> String {
    let request = Request::get(format!("/{link}")).header("host", "bench").body(Body::empty()).unwrap();
    let answer = console.router().oneshot(request).await.unwrap();
    assert!(answer.status().is_success(), "{link}: {}", answer.status());
    let body = axum::body::to_bytes(answer.into_body(), 16 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Returns the link to the next page.
fn next(page: &str) -> Option<String> {
    let link = page.split_once("rel=\"next\" href=\"")?.1.split('"').next()?;
    Some(link.replace("&#38;", "&").replace("&amp;", "&"))
}
