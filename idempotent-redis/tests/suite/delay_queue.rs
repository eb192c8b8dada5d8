//! The delay queue on real servers: each case on one server, and all cases on a cluster.
mod broker_laws;
pub(crate) mod cases;
mod commit_and_receive;
mod consumer;
mod cost;
mod dead_letters;
mod message_kinds;
mod mutants;
mod redelivery;
mod servers;
mod waiting;
pub(crate) mod world;

use std::sync::Arc;

use idempotent_harness::servers::{RedisCluster, RedisServer};

use self::cases::{CASES, each_case, play};
use self::world::Place;

macro_rules! tests {
    ($($place:ident::$case:ident)+) => {
        mod single {
            use super::*;
            $(#[test]
            fn $case() {
                let place = Arc::new(Place::Single(RedisServer::start()));
                play(|world| Box::pin($place::$case(world)), &place, str::to_owned);
            })+
        }
    };
}
each_case!(tests);

#[test]
fn every_case_holds_on_a_cluster_of_three_nodes() {
    let place = Arc::new(Place::Cluster(RedisCluster::start(3)));
    for (name, case) in CASES {
        println!("{name}");
        play(*case, &place, str::to_owned);
    }
}
