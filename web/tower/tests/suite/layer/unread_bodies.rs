//! The unread body of a rejected request is read within bounds, after the response.
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Version};
use http_body::Frame;

use crate::layer::support::{Sent, Shop, World, ask, ms, order_by, secs, send};

/// A body that yields pieces, and then ends or never does.
#[derive(Clone, Default)]
struct Upload {
    pieces: usize,
    piece: usize,
    ends: bool,
    length: Option<u64>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    asked: AtomicBool,
    pieces: AtomicUsize,
    dropped: AtomicBool,
}

struct Sending(Upload);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.seen.dropped.store(true, SeqCst);
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self(upload) = &*self;
        upload.seen.asked.store(true, SeqCst);
        if upload.seen.pieces.load(SeqCst) < upload.pieces {
            upload.seen.pieces.fetch_add(1, SeqCst);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; upload.piece])))));
        }
        if upload.ends { Poll::Ready(None) } else { Poll::Pending }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.length.map_or_else(http_body::SizeHint::new, http_body::SizeHint::with_exact)
    }
}

impl Upload {
    /// Sends a request without a key, which is rejected before its body is read.
    async fn refused(&self, shop: &Shop) -> Sent {
        let sent = send(shop, ask(Method::POST, "/orders").request_of(Body::new(Sending(self.clone())))).await;
        sent.problem(400, "missing-key");
        sent
    }

    fn is_over(&self) -> bool {
        self.seen.dropped.load(SeqCst)
    }

    fn read(&self) -> usize {
        self.seen.pieces.load(SeqCst) * self.piece
    }
}

#[tokio::test]
async fn a_rejection_does_not_wait_and_the_body_is_read_for_two_seconds() {
    let world = World::new();
    let shop = world.shop();
    let slow = Upload { pieces: 1, piece: 10, ..Upload::default() };
    assert_eq!(slow.refused(&shop).await.header("connection"), None);
    assert_eq!(slow.read(), 10);
    world.clock.advance(ms(1_999)).await;
    assert!(!slow.is_over());
    world.clock.advance(ms(1)).await;
    assert!(slow.is_over());
}

#[tokio::test]
async fn after_a_rejection_no_more_is_read_than_of_an_accepted_request() {
    let world = World::new();
    let endless = Upload { pieces: usize::MAX, piece: 1 << 10, ..Upload::default() };
    endless.refused(&world.shop_behind(world.layer().max_body(100 << 10))).await;
    assert_eq!((endless.read(), endless.is_over()), (101 << 10, true));
    // At least 64 KiB are read.
    let endless = Upload { seen: Arc::default(), ..endless };
    endless.refused(&world.shop_behind(world.layer().max_body(10))).await;
    assert_eq!((endless.read(), endless.is_over()), (65 << 10, true));
    // A body of empty pieces is not read forever.
    let empty = Upload { piece: 0, seen: Arc::default(), ..endless };
    empty.refused(&world.shop_behind(world.layer().max_body(10))).await;
    assert!(empty.is_over());
}

#[tokio::test]
async fn a_body_that_has_arrived_is_read_at_once_and_the_connection_stays_open() {
    let world = World::new();
    let whole = Upload { pieces: 20, piece: 1 << 10, ends: true, length: Some(20 << 10), ..Upload::default() };
    assert_eq!(whole.refused(&world.shop()).await.header("connection"), None);
    assert_eq!((whole.read(), whole.is_over()), (20 << 10, true));
}

#[tokio::test]
async fn a_body_too_long_to_read_closes_the_connection() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().max_body(100 << 10));
    let long = Upload { length: Some((100 << 10) + 1), ..Upload::default() };
    assert_eq!(long.refused(&shop).await.header("connection"), Some("close"));
    let fits = Upload { length: Some(100 << 10), ..Upload::default() };
    assert_eq!(fits.refused(&shop).await.header("connection"), None);
    // HTTP/2 has no such header.
    let mut request = order_by("a,b").request_of(Body::new(Sending(long)));
    *request.version_mut() = Version::HTTP_2;
    let sent = send(&shop, request).await;
    assert_eq!(sent.problem(400, "invalid-key").header("connection"), None);
}

#[tokio::test]
async fn a_body_that_expects_100_continue_is_not_requested() {
    let world = World::new();
    let shop = world.shop();
    let waiting = Upload { length: Some(10), ..Upload::default() };
    let no_key = ask(Method::POST, "/orders").with("expect", "100-Continue");
    let sent = send(&shop, no_key.request_of(Body::new(Sending(waiting.clone())))).await;
    assert_eq!(sent.problem(400, "missing-key").header("connection"), Some("close"));
    assert_eq!((waiting.seen.asked.load(SeqCst), waiting.is_over()), (false, true));
    // A body that declares too large a length is not requested either.
    let large = Upload { length: Some(3 << 20), ..Upload::default() };
    let expecting = order_by("a").with("expect", "100-continue");
    let sent = send(&shop, expecting.request_of(Body::new(Sending(large.clone())))).await;
    assert_eq!(sent.problem(413, "body-too-large").header("connection"), Some("close"));
    assert!(!large.seen.asked.load(SeqCst));
    // Without a body there is nothing to wait for, and the connection stays open.
    let none = send(&shop, no_key.request_of(Body::empty())).await;
    assert_eq!(none.problem(400, "missing-key").header("connection"), None);
    // A requested body is in flight.
    let asked = Upload { pieces: 5, piece: 1 << 20, ends: true, ..Upload::default() };
    let sent = send(&shop, expecting.request_of(Body::new(Sending(asked.clone())))).await;
    assert_eq!(sent.problem(413, "body-too-large").header("connection"), None);
    assert_eq!((asked.read(), asked.is_over()), (5 << 20, true));
}

#[tokio::test]
async fn a_rejection_claims_nothing_however_much_is_unread() {
    let world = World::new();
    let shop = world.shop();
    let slow = Upload { pieces: 1, piece: 10, ..Upload::default() };
    slow.refused(&shop).await;
    world.clock.advance(secs(10)).await;
    assert!(shop.runs() == 0 && world.is_untouched());
}
