//! The decision table, and the form of a replay on the wire.
use idempotent_http_decisions::{Answer, Client, Shop, table};

use crate::support::{Server, layer, order_by};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middleware_makes_the_decisions_of_the_table() {
    for row in table().await {
        let shop = Shop::default();
        let server = Server::of_shop(&shop, row.layer.clone());
        row.check(server.address, &shop).await;
    }
}

/// The lines of a head in a fixed order. actix-web sends the names of headers in any order.
fn lines(answer: &Answer) -> Vec<(String, String)> {
    let mut lines = answer.headers.clone();
    lines.retain(|(name, _)| name != "date" && name != "set-cookie" && name != "idempotent-replayed");
    // A stable sort keeps the order of the lines of one name.
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_equals_the_response_byte_for_byte() {
    let shop = Shop::default();
    let server = Server::of_shop(&shop, layer());
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let ask = order_by("a").header("x-echo", "1").body(all.clone());
    let mut client = Client::connect(server.address).await;
    let (first, replay) = (client.ask(&ask).await, client.ask(&ask).await);
    assert!(!first.is_replay() && replay.is_replay());
    assert_eq!((first.status, first.body == all, first.body == replay.body), (replay.status, true, true));
    assert_eq!(lines(&first), lines(&replay));
    let of_name =
        |answer: &Answer| answer.headers.iter().filter(|(name, _)| name == "x-line").cloned().collect::<Vec<_>>();
    assert_eq!(of_name(&first).len(), 2);
    assert_eq!(of_name(&first), of_name(&replay));
    assert_eq!(shop.runs(), 1);
}
