//! The pages of the console, requested from its router in this process, and over connections.
use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Body;
use http::Request;
use idempotent::console::{Access, Console, Role, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::Side;
use crate::report::{Goal, Report};

/// The pages that follow each other.
const PAGES: usize = 20;
/// Callers without a user. Each requests one page after another without a pause.
const CALLERS: usize = 100;
const KEYS: &str = "keys?state=consumed&state=dead";
/// The header of an operator's requests.
const OPERATOR: (&str, &str) = ("authorization", "bench");

pub async fn all(report: &Report, side: &dyn Side) {
    let user = |parts: &http::request::Parts| {
        parts.headers.contains_key(OPERATOR.0).then(|| User::new(OPERATOR.1, Role::Admin))
    };
    let console = Console::builder().store("bench", side.store()).access(Access::from_request(user)).build().unwrap();
    for (name, path, goal) in [
        ("console, page of 50 of all keys, p95", KEYS, 300.0),
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
        report.value((side.name(), name, None), "ms", p95(times), Goal::AtMost(goal));
    }
    let p95 = p95(beside_callers(&console).await);
    let name = "console, page of 50 of all keys beside 100 anonymous connections, p95";
    report.value((side.name(), name, None), "ms", p95, Goal::AtMost(300.0));
}

fn p95(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 95 / 100 - 1]
}

/// Returns the times of an operator's pages while anonymous callers keep the server busy, in milliseconds.
async fn beside_callers(console: &Console) -> Vec<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, router) = (listener.local_addr().unwrap(), console.router());
    // Ends with the callers.
    let mut others = JoinSet::new();
    others.spawn(async move { axum::serve(listener, router).await.unwrap() });
    for caller in 0..CALLERS {
        others.spawn(async move {
            loop {
                let path = ["readyz", KEYS][caller % 2];
                assert!(!over_connection(address, path, "").await.contains("records examined"), "no user");
            }
        });
    }
    let mut times = Vec::new();
    let header = format!("{}: {}\r\n", OPERATOR.0, OPERATOR.1);
    for _ in 0..PAGES {
        let start = Instant::now();
        let page = over_connection(address, KEYS, &header).await;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(page.contains("records examined"), "{page}");
    }
    assert!(others.try_join_next().is_none(), "a caller has failed");
    times
}

async fn over_connection(address: SocketAddr, link: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{link} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn page(console: &Console, link: &str) -> String {
    let request = Request::get(format!("/{link}"))
        .header("host", "bench")
        .header(OPERATOR.0, OPERATOR.1)
        .body(Body::empty())
        .unwrap();
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
