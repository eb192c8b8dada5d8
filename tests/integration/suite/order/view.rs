//! The view of a stream, as operators see it.
use idempotent::ordering::StreamView;
use idempotent::{Clock, Store};

use super::sequence::register;
use super::*;
use crate::common::on_memory;

#[test]
fn a_stream_is_loaded_with_the_time_of_the_store() {
    on_memory(async |world| {
        world.clock.advance(secs(60)).await;
        let stream = key_of("ann");
        let load = async || StreamView::load(world.store.capabilities().order.unwrap(), &stream).await.unwrap();
        let (absent, now) = load().await;
        assert!(absent.is_none() && now == world.clock.wall());
        register(&world.worker("a", Policy::new()), "ann", &[7]).await;
        let (view, now) = load().await;
        assert_eq!((view.unwrap().waiting.len(), now), (1, world.clock.wall()));
    });
}
