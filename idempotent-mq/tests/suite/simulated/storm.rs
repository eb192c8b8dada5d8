//! Everything at once, by seeds: processes that are killed and stopped, connections that are cut, a store and a broker
//! that fail. Whatever happens, no message is lost and none is acknowledged that is not recorded.
use std::collections::BTreeMap;
use std::time::Duration;

use idempotent_core::{Policy, StateKind};
use idempotent_mq::{
    DelaySupport, Delivery, HandlerResult, KeyFrom, Messages, Position, Settlement, SourceCapabilities, SourceErrorKind,
};
use idempotent_testkit::StoreOperation;

use crate::broker::{Ways, What};
use crate::world::{Job, Process, World, ms, secs};

/// Small numbers that repeat.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[derive(Default, Debug)]
struct Weather {
    kills: u32,
    cuts: u32,
    outages: u32,
    refusals: u32,
    drains: u32,
}

fn ways(dice: &mut Dice) -> Ways {
    let hold = secs(9);
    match dice.roll(3) {
        0 => Ways::default(),
        1 => Ways {
            capabilities: SourceCapabilities::new(DelaySupport::UpTo(hold)).keep_alive(hold / 3).counts(),
            hold: Some(hold),
            marks: false,
            steps: Vec::new(),
        },
        _ => {
            Ways { capabilities: SourceCapabilities::new(DelaySupport::Any).keeps_order().counts(), ..Ways::default() }
        }
    }
}

async fn start(world: &World, job: &std::sync::Arc<Job>, dice: &mut Dice) -> Process {
    let policy = Policy::new().lease(secs(3)).max_retries(60).retry_delay_max(secs(5)).in_flight_delay_max(secs(2));
    let messages = Messages::raw();
    let messages = if dice.roll(2) == 0 { messages.ordered_by(KeyFrom::header("user")) } else { messages };
    let handling = messages.keyed(KeyFrom::message_id()).run(job.function());
    let handlers = usize::try_from(dice.roll(3)).unwrap() + 1;
    world
        .consume_by(policy, handling, |builder| {
            builder.concurrency(handlers).prefetch(handlers * 3).grace(secs(1)).max_deliveries(100_000)
        })
        .await
}

fn fails_sometimes(run: u32) -> HandlerResult {
    match run % 5 {
        0 => HandlerResult::Again { after: None, error: "no stock".into() },
        3 if run.is_multiple_of(2) => panic!("as told"),
        _ => HandlerResult::Done,
    }
}

async fn storm(seed: u64) -> Weather {
    let mut dice = Dice(seed);
    let mut ways = ways(&mut dice);
    // The limit of deliveries is set in any case: such a source has to count.
    ways.capabilities = ways.capabilities.counts();
    let world = World::with(ways);
    let takes = ms(dice.roll(2_000));
    let job = Job::ends(&world, takes, fails_sometimes);
    let mut processes = vec![start(&world, &job, &mut dice).await, start(&world, &job, &mut dice).await];
    let (mut sent, mut weather) = (BTreeMap::new(), Weather::default());
    for step in 0..120u64 {
        let at = usize::try_from(dice.roll(2)).unwrap();
        match dice.roll(14) {
            0..=5 => {
                // One in three is a duplicate of an earlier one.
                let number = if dice.roll(3) == 0 { dice.roll(step + 1) } else { step };
                let name = format!("m{number}");
                let delivery = Delivery::new(Position::of("orders").offset(&name), b"{}".to_vec());
                let delivery = delivery.id(&name).header("user", format!("u{}", number % 4));
                world.broker.send_delivery(&name, delivery);
                *sent.entry(name).or_insert(0u64) += 1;
            }
            6 => {
                weather.kills += 1;
                std::mem::replace(&mut processes[at], start(&world, &job, &mut dice).await).kill().await;
                world.broker.cut();
            }
            7 => {
                weather.cuts += 1;
                world.broker.cut();
            }
            8 => {
                weather.outages += 1;
                processes[at].store.down();
            }
            9 => processes[at].store.heal(),
            10 => {
                weather.outages += 1;
                processes[at].store.lose_reply(StoreOperation::Complete, 2);
                processes[at].store.lose_reply(StoreOperation::Claim, 1);
            }
            11 => {
                weather.refusals += 1;
                world.broker.fail_settling(SourceErrorKind::Transient, 2);
                world.broker.fail_receiving(SourceErrorKind::Transient, 1);
            }
            12 => {
                weather.drains += 1;
                let mut process = std::mem::replace(&mut processes[at], start(&world, &job, &mut dice).await);
                process.stop().await;
                world.clock.advance(secs(4)).await;
                let counts = process.task.await.unwrap().unwrap();
                assert_eq!(counts.received, counts.ended(), "seed {seed}: {counts:?}");
            }
            _ => {}
        }
        world.clock.advance(ms(dice.roll(1_500))).await;
    }
    for process in &processes {
        process.store.heal();
    }
    world.broker.cut();
    world.clock.advance(Duration::from_secs(1_800)).await;
    judge(&world, &sent, seed).await;
    for process in processes {
        let counts = process.counts();
        assert_eq!(counts.received, counts.ended(), "seed {seed}: {counts:?}");
    }
    weather
}

async fn judge(world: &World, sent: &BTreeMap<String, u64>, seed: u64) {
    assert_eq!((world.broker.left(), world.broker.dead().len()), (0, 0), "seed {seed}: something is left");
    for (name, copies) in sent {
        let record = world.record(name).await;
        let kind = record.map(|record| record.state.kind());
        assert_eq!(kind, Some(StateKind::Consumed), "seed {seed}: {name} was acknowledged");
        let acks = world.broker.settlements(name).into_iter().filter(|settled| *settled == Settlement::Ack).count();
        assert_eq!(acks as u64, *copies, "seed {seed}: each copy of {name} is acknowledged once");
        let delivered = world.broker.story(name).into_iter().filter(|(_, what)| *what == What::Delivered).count();
        assert!(delivered < 2_000, "seed {seed}: {name} was delivered {delivered} times");
    }
}

#[tokio::test]
async fn whatever_happens_no_message_is_lost_and_none_acknowledged_that_is_not_recorded() {
    let seeds: u64 = std::env::var("STORMS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    let mut all = Weather::default();
    for seed in 0..seeds {
        let weather = storm(seed).await;
        all.kills += weather.kills;
        all.cuts += weather.cuts;
        all.outages += weather.outages;
        all.refusals += weather.refusals;
        all.drains += weather.drains;
    }
    let Weather { kills, cuts, outages, refusals, drains } = all;
    assert!([kills, cuts, outages, refusals, drains].iter().all(|times| u64::from(*times) >= seeds), "{all:?}");
}
