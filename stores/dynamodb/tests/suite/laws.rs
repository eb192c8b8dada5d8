//! The conformance laws of stores and their backends, on moto.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Cas, Key};
use idempotent_dynamodb::DynamoBackend;
use idempotent_dynamodb::aws_sdk_dynamodb::primitives::Blob;
use idempotent_dynamodb::aws_sdk_dynamodb::types::AttributeValue;
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_testkit::conformance::{Damage, DamageInjector, LostPart};
use idempotent_testkit::{
    CasSubject, SkewedStores, StoreOperation, Subject, VirtualClock, cas_conformance, conformance, skew_conformance,
};

use crate::world::{World, client, secs};

/// The size of the largest value, in bytes. An item has at most 400 KB.
const LARGEST: u32 = 390_000;

/// A program that damages items.
struct Vandal(World);

#[async_trait]
impl DamageInjector for Vandal {
    fn holds(&self, _: Damage) -> bool {
        true
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let Self(World { client, table, .. }) = self;
        let put = client.put_item().table_name(table).item("id", AttributeValue::S(key.as_str().to_owned()));
        let put = put.item("record", AttributeValue::B(Blob::new(damage.to_bytes())));
        put.item("version", AttributeValue::N("7".to_owned())).send().await.unwrap();
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        let item = self.0.item(key).await.unwrap_or_default();
        let mut item: Vec<_> = item.into_iter().collect();
        item.sort_by(|one, other| one.0.cmp(&other.0));
        format!("{item:?}").into_bytes()
    }
}

/// Loses the next read or write on the way through a proxy.
fn lose(proxy: &Proxy, at: LostPart) {
    let (request, fault) = match at {
        LostPart::Connection => ("DynamoDB_20120810.GetItem", Fault::CutBeforeSend),
        LostPart::Request => ("DynamoDB_20120810.PutItem", Fault::CutBeforeSend),
        LostPart::Reply => ("DynamoDB_20120810.PutItem", Fault::CutAfterApply),
        other => panic!("no fault for {other:?}"),
    };
    proxy.fail_next_with(request, fault);
}

/// Returns a backend without an extension of leases, because the laws about one clock measure to the millisecond.
async fn exact(world: &World, clock: &VirtualClock) -> DynamoBackend {
    world.builder().clock(Arc::new(clock.clone())).max_skew(Duration::ZERO).open().await.unwrap()
}

async fn backend() -> CasSubject {
    let (world, clock) = (World::new().await, VirtualClock::new());
    CasSubject::new(exact(&world, &clock).await).on_clock(clock).rounds(2).largest_value(LARGEST)
}

async fn store() -> Subject {
    let (world, clock) = (World::new().await, VirtualClock::new());
    let proxy = Proxy::start(&world.address).await;
    let first = DynamoBackend::builder(&client(&proxy.address()), &world.table).max_skew(Duration::ZERO);
    let first = first.clock(Arc::new(clock.clone())).open().await.unwrap();
    let second = exact(&world, &clock).await;
    let subject = Subject::new(Cas(first)).second(Cas(second)).planting(Vandal(world)).on_clock(clock).rounds(2);
    subject.largest_value(LARGEST).losing(move |_: StoreOperation, at: LostPart| lose(&proxy, at))
}

async fn skewed() -> SkewedStores {
    let (world, max_skew) = (World::new().await, secs(2));
    let open = async |clock: VirtualClock| Cas(world.builder().clock(Arc::new(clock)).open().await.unwrap());
    SkewedStores::open(max_skew, open).await
}

cas_conformance!(a_table_swaps_by_version, backend());
conformance!(
    a_table_keeps_the_laws_of_a_store,
    store(),
    without: [clients, batch, watch, search, purge, journal, order]
);
skew_conformance!(processes_with_clocks_of_their_own, skewed());
