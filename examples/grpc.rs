//! A gRPC service of tonic inside the layer: a duplicate, another message, a call in flight, a failure, and a call without a
//! key.
//!
//! Run: `cargo run -p idempotent-examples --features tonic --example grpc`
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use axum::extract;
use axum::http::uri::PathAndQuery;
use axum::routing::any;
use idempotent::grpc::GrpcLayer;
use idempotent::http::Principal;
use idempotent::{Executor, MemoryStore};
use tokio::sync::Notify;
use tonic::client::Grpc;
use tonic::server::UnaryService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

// `tonic-prost-build` generates messages, servers and clients from a `.proto` file. Here is what one method needs.
#[derive(Clone, PartialEq, prost::Message)]
struct Payment {
    #[prost(string, tag = "1")]
    order: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Receipt {
    #[prost(uint32, tag = "1")]
    number: u32,
}

const PAY: &str = "/shop.Orders/Pay";

#[derive(Clone, Default)]
struct Orders {
    receipts: Arc<AtomicU32>,
    started: Arc<Notify>,
    approved: Arc<Notify>,
}

impl Orders {
    async fn pay(self, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
        match request.get_ref().order.as_str() {
            "nothing" => return Err(Status::invalid_argument("an order of nothing")), // frees the key
            "slow" => {
                self.started.notify_one();
                self.approved.notified().await;
            }
            _ => {}
        }
        Ok(Response::new(Receipt { number: self.receipts.fetch_add(1, SeqCst) + 1 }))
    }
}

impl UnaryService<Payment> for Orders {
    type Response = Receipt;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Receipt>, Status>> + Send>>;

    fn call(&mut self, request: Request<Payment>) -> Self::Future {
        Box::pin(self.clone().pay(request))
    }
}

/// Serves the orders on a free port, and returns the connection of a client.
async fn serve(orders: Orders, layer: GrpcLayer) -> anyhow::Result<Channel> {
    let method = any(async move |request: extract::Request| {
        tonic::server::Grpc::new(ProstCodec::default()).unary(orders, request).await
    });
    let routes = Routes::from(axum::Router::new().route(PAY, method));
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    tokio::spawn(Server::builder().layer(layer).add_routes(routes).serve_with_incoming(incoming));
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect().await?)
}

/// Pays an order, with a key in the metadata.
async fn pay(channel: &Channel, key: Option<&'static str>, order: &str) -> Result<Response<Receipt>, Status> {
    let mut request = Request::new(Payment { order: order.to_owned() });
    if let Some(key) = key {
        request.metadata_mut().insert("idempotency-key", key.parse().map_err(|_| Status::internal("not ASCII"))?);
    }
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    client.unary(request, PathAndQuery::from_static(PAY), ProstCodec::default()).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // All callers share their keys here. `Principal::from_fn` separates them.
    let layer = GrpcLayer::new(Executor::new(MemoryStore::new()), Principal::none()).require_key([PAY]);
    layer.check()?;
    let orders = Orders::default();
    let channel = serve(orders.clone(), layer).await?;

    for marker in [None, Some("true")] {
        let response = pay(&channel, Some("8e03978e"), "teapot").await?;
        let replayed = response.metadata().get("idempotent-replayed").and_then(|marker| marker.to_str().ok());
        assert_eq!((response.get_ref().number, replayed), (1, marker));
        println!("a teapot: receipt {}, replayed: {}", response.get_ref().number, replayed.is_some());
    }

    let refused = pay(&channel, Some("8e03978e"), "kettle").await;
    assert_eq!(code(&refused), Some(Code::FailedPrecondition));
    println!("the same key for a kettle: {:?}", code(&refused));

    let (other, first) = (channel.clone(), orders.started.clone());
    let slow = tokio::spawn(async move { pay(&other, Some("b01ab2f4"), "slow").await });
    first.notified().await;
    let duplicate = pay(&channel, Some("b01ab2f4"), "slow").await;
    assert_eq!(code(&duplicate), Some(Code::Aborted)); // with `google.rpc.RetryInfo`
    println!("a duplicate of a running call: {:?}", code(&duplicate));
    orders.approved.notify_one();
    assert_eq!(slow.await??.get_ref().number, 2);

    for _ in 0..2 {
        // The method runs each time.
        let failed = pay(&channel, Some("c5d1e3aa"), "nothing").await;
        assert_eq!(failed.map_err(|status| status.message().to_owned()).err().as_deref(), Some("an order of nothing"));
    }
    println!("an order of nothing: failed, and its key is free");

    let missing = pay(&channel, None, "teapot").await;
    assert_eq!(code(&missing), Some(Code::InvalidArgument));
    println!("a call without a key: {:?}", code(&missing));
    Ok(())
}

fn code(result: &Result<Response<Receipt>, Status>) -> Option<Code> {
    result.as_ref().err().map(Status::code)
}

#[test]
fn a_call_runs_once() -> anyhow::Result<()> {
    main()
}
