//! Bodies of all framings and sizes.
use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store};

const MIB: usize = 1 << 20;

/// `{"sku":"gz","qty":1}`, compressed by gzip.
const GZIP: [u8; 40] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 42, 206, 46, 85, 178, 82, 74, 175, 82, 210, 81, 42, 44, 169, 84, 178, 50,
    172, 5, 0, 48, 243, 82, 91, 20, 0, 0, 0,
];

on_each_store! {
    the_framing_of_a_body_does_not_change_its_fingerprint;
    compressed_bodies_are_compared_and_replayed_as_bytes;
    a_mebibyte_is_received_returned_and_replayed;
}

async fn the_framing_of_a_body_does_not_change_its_fingerprint(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let ask = Ask::order("k", "lamp").body(body.clone());
    let mut client = Client::connect(server.address).await;
    let order = client.ask(&ask.clone().chunked(1_000)).await.made();
    assert_eq!(client.ask(&ask).await.replayed(), order);
    for chunk in [1, 7, 4_096, 10_000] {
        assert_eq!(client.ask(&ask.clone().chunked(chunk)).await.replayed(), order, "{chunk}");
    }
    // One segment for each piece.
    for piece in ask.bytes().chunks(999) {
        client.send(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.replayed(), order);
    // One byte more, less or different makes another body.
    let mut other = body.clone();
    other[5_000] ^= 1;
    for body in [&body[..9_999], &[&body[..], b"x"].concat(), &other, b""] {
        client.ask(&Ask::order("k", "lamp").body(body)).await.is(422, "key-reused");
        client.ask(&Ask::order("k", "lamp").body(body).chunked(1_000)).await.is(422, "key-reused");
    }
    let runs = server.shop.executions();
    assert!(runs.len() == 1 && runs[0].bytes == 10_000, "{runs:?}");
}

async fn compressed_bodies_are_compared_and_replayed_as_bytes(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let ask = Ask::order("k", "gz").header("content-encoding", "gzip").answer("echo").body(GZIP);
    let mut client = Client::connect(server.address).await;
    let first = client.ask(&ask).await;
    assert_eq!((first.status, &first.body[..], first.header("content-encoding")), (201, &GZIP[..], Some("gzip")));
    let replay = client.ask(&ask.clone().chunked(3)).await;
    assert!(replay.is_replay());
    assert_eq!((&replay.body[..], replay.header("content-encoding")), (&GZIP[..], Some("gzip")));
    // Equal content, but different bytes.
    let plain = Ask::order("k", "gz").answer("echo").body(r#"{"sku":"gz","qty":1}"#);
    client.ask(&plain).await.is(422, "key-reused");
    let runs = server.shop.executions();
    assert!(runs.len() == 1 && runs[0].bytes == GZIP.len(), "{runs:?}");
}

async fn a_mebibyte_is_received_returned_and_replayed(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let body: Vec<u8> = (0..MIB).map(|at| (at * 31 % 251) as u8).collect();
    let ask = Ask::order("k", "lamp").answer("echo").body(body.clone());
    let mut client = Client::connect(server.address).await;
    let first = client.ask(&ask).await;
    assert!(first.status == 201 && first.body == body, "{} bytes", first.body.len());
    let replay = client.ask(&ask.clone().chunked(65_536)).await;
    assert!(replay.is_replay() && replay.body == body, "{}", String::from_utf8_lossy(&replay.head));
    assert_eq!(server.shop.count("lamp"), 1);
    // One more byte exceeds the limit of stored bodies, and still does not run twice.
    let ask = Ask::order("k2", "large").answer("echo").body([&body[..], b"x"].concat());
    assert_eq!(client.ask(&ask).await.body.len(), MIB + 1);
    client.ask(&ask).await.is(409, "response-not-retained");
    assert_eq!(server.shop.count("large"), 1);
}

/// Both framings: with `Content-Length`, and chunked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mebibytes_are_accepted_and_one_more_byte_is_413_without_a_claim() {
    let server = Server::start().await;
    let fits = Ask::order("fits", "lamp").body(vec![7; 2 * MIB]);
    let mut client = Client::connect(server.address).await;
    let order = client.ask(&fits).await.made();
    assert_eq!(client.ask(&fits.clone().chunked(65_536)).await.replayed(), order);
    for form in [Ask::order("k", "lamp"), Ask::order("k", "lamp").chunked(65_536)] {
        let ask = form.body(vec![7; 2 * MIB + 1]);
        let mut client = Client::connect(server.address).await;
        // The server may respond and close before the client has sent everything.
        client.try_send(&ask.bytes()).await;
        client.answer().await.is(413, "body-too-large");
    }
    assert_eq!((server.shop.count("lamp"), server.executor.counts().deliveries()), (1, 2));
    // The key is free.
    client.ask(&Ask::order("k", "small")).await.made();
    assert_eq!(server.shop.count("small"), 1);
}

/// A rejected body is not parsed as requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_inside_a_rejected_body_runs() {
    let server = Server::start().await;
    let inside = Ask::order("inside", "smuggled").bytes();
    let body: Vec<u8> = inside.iter().copied().cycle().take(2 * MIB + inside.len()).collect();
    for ask in [
        Ask::order("k", "lamp").body(body.clone()),
        Ask::order("k", "lamp").body(body.clone()).chunked(inside.len()),
        Ask::order("a,b", "lamp").body(inside.repeat(10)),
        Ask::post("/orders").sku("lamp").body(inside.repeat(10)),
    ] {
        let mut client = Client::connect(server.address).await;
        client.try_send(&[ask.bytes(), Ask::order("after", "after").bytes()].concat()).await;
        let refused = client.answer().await;
        assert!(matches!(refused.status, 400 | 413), "{refused}");
        // The bytes after the body are a request, if the connection stays open.
        if let Some(answer) = client.answer_or_end().await {
            assert_eq!(answer.status, 201, "{answer}");
        }
    }
    assert_eq!((server.shop.count("smuggled"), server.shop.count("lamp")), (0, 0));
    assert!(server.shop.count("after") <= 1);
}
