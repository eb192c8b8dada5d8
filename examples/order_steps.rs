//! An order in six steps over three systems, whose worker is killed in each of them once: stock is locked exactly once.
//!
//! Run it by `cargo run -p idempotent-examples --example order_steps`. It starts the stock service and the payment service, real HTTP servers,
//! and for each step a worker process that dies in it, behind the effect and before anybody took note of that, which is
//! the worst moment. The next worker takes the order over, replays the steps that were done, repeats the one it cannot
//! know about under the same key, which the service recognises, and dies in the next one. Then an order is refused for
//! good, and its stock is given back.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example that asserts what it shows")]
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as Route, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use idempotent::steps::step_key;
use idempotent::{Disposition, Executor, Rejection, SqliteStore, idempotent, step};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const STEPS: [&str; 6] = ["check_stock", "lock_stock", "insert_order", "charge", "set_status", "close_order"];

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("refused for good")]
    Refused,
    #[error("no answer: {0}")]
    Http(#[from] std::io::Error),
    #[error(transparent)]
    Orders(#[from] sqlx::Error),
}

/// What a worker works with.
struct Shop {
    executor: Executor,
    services: SocketAddr,
    orders: SqlitePool,
    /// The step to die in.
    dies_in: String,
}

impl Shop {
    /// The effect of a step has happened, and nobody knows of it yet.
    fn may_die(&self, step: &str) {
        if self.dies_in == step {
            std::process::abort();
        }
    }

    /// A request that its service recognises when it comes again.
    async fn ask(&self, what: &str, order: &str, key: &str) -> Result<(), OrderError> {
        post_to(self.services, &format!("/{what}/{order}"), key).await
    }
}

// S2.16 of the article this project began with: check stock, lock stock, begin and insert, call another service, update,
// commit. Run again from the start after a failure in the third step, it locks stock twice. Here each is a step, and what
// was one transaction over a remote call is a status.
#[idempotent(key = order, with = shop.executor, scope = "order", lease = "1s",
             permanent = |error| matches!(error, OrderError::Refused))]
async fn place_order(shop: &Shop, order: &str) -> Result<u64, OrderError> {
    let keys = (step_key("lock_stock")?, step_key("unlock_stock")?, step_key("charge")?);
    step("check_stock", || async {
        shop.ask("check", order, "").await?;
        shop.may_die("check_stock");
        Ok::<_, OrderError>(())
    })
    .await?;

    let (services, unlock, of) = (shop.services, keys.1, format!("/unlock/{order}"));
    step("lock_stock", || async {
        shop.ask("lock", order, &keys.0).await?;
        shop.may_die("lock_stock");
        Ok::<_, OrderError>(())
    })
    .compensate(move || async move { post_to(services, &of, &unlock).await })
    .await?;

    // Its own primary key recognises a repetition.
    let number: u64 = step("insert_order", || async {
        let insert = "INSERT INTO orders (id, status) VALUES (?1, 'new') ON CONFLICT DO NOTHING";
        sqlx::query(insert).bind(order).execute(&shop.orders).await?;
        shop.may_die("insert_order");
        let number: i64 =
            sqlx::query_scalar("SELECT rowid FROM orders WHERE id = ?1").bind(order).fetch_one(&shop.orders).await?;
        Ok::<_, OrderError>(number.unsigned_abs())
    })
    .await?;

    step("charge", || async {
        shop.ask("charge", order, &keys.2).await?;
        shop.may_die("charge");
        Ok::<_, OrderError>(())
    })
    .await?;

    for (name, status) in [("set_status", "paid"), ("close_order", "closed")] {
        step(name, || async {
            let update = sqlx::query("UPDATE orders SET status = ?2 WHERE id = ?1").bind(order).bind(status);
            update.execute(&shop.orders).await?;
            shop.may_die(name);
            Ok::<_, OrderError>(())
        })
        .await?;
    }
    Ok(number)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [services, folder, order, dies_in] = &args[..] {
        return work(services.parse()?, Path::new(folder), order, dies_in).await;
    }
    let folder = tempfile::tempdir()?;
    let services = Services::default();
    let address = services.clone().serve().await?;

    for dies_in in STEPS {
        let ended = worker(address, folder.path(), "o-1", dies_in).await?;
        println!("a worker died in {dies_in}: {}", !ended);
        assert!(!ended, "it should have died");
    }
    assert!(worker(address, folder.path(), "o-1", "nothing").await?, "the order is done");
    assert!(worker(address, folder.path(), "o-1", "nothing").await?, "and stays done");
    assert!(worker(address, folder.path(), "refused", "nothing").await?, "this one is put aside");

    let told = services.0.lock().unwrap().clone();
    for (what, requests) in &told.requests {
        println!("{what}: {requests} requests, {} effects", told.effects(what));
    }
    assert_eq!(
        (told.requests["lock/o-1"], told.effects("lock/o-1")),
        (2, 1),
        "asked again by the one who could not know"
    );
    assert_eq!((told.requests["charge/o-1"], told.effects("charge/o-1")), (2, 1));
    assert_eq!((told.effects("lock/refused"), told.effects("unlock/refused")), (1, 1), "taken back");
    println!("stock of o-1 was locked {} time", told.effects("lock/o-1"));
    Ok(())
}

/// A process of its own; whether it came to an end.
async fn worker(services: SocketAddr, folder: &Path, order: &str, dies_in: &str) -> std::io::Result<bool> {
    let (program, folder) = (std::env::current_exe()?, PathBuf::from(folder));
    let mut command = Command::new(program);
    command.arg(services.to_string()).arg(folder).args([order, dies_in]).stderr(std::process::Stdio::null());
    let status = tokio::task::spawn_blocking(move || command.status()).await.unwrap()?;
    Ok(status.success())
}

/// Takes one delivery, and takes it again as long as it is told to.
async fn work(
    services: SocketAddr,
    folder: &Path,
    order: &str,
    dies_in: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::open(folder.join("records.db").display().to_string()).await?;
    let options = SqliteConnectOptions::new().filename(folder.join("orders.db")).create_if_missing(true);
    let orders = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT)").execute(&orders).await?;
    let shop = Shop { executor: Executor::new(store), services, orders, dies_in: dies_in.into() };
    loop {
        match Disposition::of(place_order(&shop, order)).await {
            (_, Disposition::Retry { after }) => tokio::time::sleep(after.min(Duration::from_millis(200))).await,
            (answer, disposition) => {
                println!("{order}: {disposition:?}, {answer:?}");
                return Ok(());
            }
        }
    }
}

/// The far side: stock and payment, which recognise a key that they have seen.
#[derive(Clone, Default)]
struct Services(Arc<Mutex<Told>>);

#[derive(Clone, Default)]
struct Told {
    requests: BTreeMap<String, u32>,
    keys: BTreeSet<(String, String)>,
}

impl Told {
    fn effects(&self, what: &str) -> usize {
        self.keys.iter().filter(|(of, _)| of == what).count()
    }
}

impl Services {
    async fn serve(self) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new().route("/{what}/{order}", post(answer)).with_state(self);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(address)
    }
}

async fn answer(
    State(services): State<Services>,
    Route((what, order)): Route<(String, String)>,
    headers: HeaderMap,
) -> StatusCode {
    let mut told = services.0.lock().unwrap();
    if what == "charge" && order == "refused" {
        return StatusCode::PAYMENT_REQUIRED;
    }
    let name = format!("{what}/{order}");
    *told.requests.entry(name.clone()).or_default() += 1;
    if let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).filter(|key| !key.is_empty()) {
        told.keys.insert((name, key.to_owned()));
    }
    StatusCode::OK
}

/// The smallest client there is.
async fn post_to(address: SocketAddr, path: &str, key: &str) -> Result<(), OrderError> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.get(9..12) {
        Some("200") => Ok(()),
        Some("402") => Err(OrderError::Refused),
        _ => Err(std::io::Error::other("the service failed").into()),
    }
}
