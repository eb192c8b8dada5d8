//! Events of the harness, and its faults for other processes.
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use super::{DOOMED, Harness, PREFETCH, ROGUE, ROGUE_AT_LONG};
use crate::fleet::Heard;
use crate::target::Done;
use crate::wire::{Dies, News, Order};
use crate::workers::own;

impl Harness {
    pub(super) fn done(&mut self, done: &Done) {
        self.harms.of_servers(done);
        let lost = done.lost.iter().filter(|key| self.keys.contains(*key));
        self.workers.lines.extend(lost.map(|key| done.lost_line(key, own())));
    }

    pub(super) fn hand_out(&mut self, now: Instant) {
        let first = usize::try_from(self.dice.below(self.workers.places.len() as u64)).unwrap_or_default();
        let count = self.workers.places.len();
        for place in (0..count).map(|place| (first + place) % count) {
            let (id, ready) = (self.workers.places[place].id, self.workers.places[place].ready);
            let free = if ready { PREFETCH.saturating_sub(self.broker.out(id)) } else { 0 };
            // In turn: a herd on one worker would have no competitors.
            if let Some(handed) = (free > 0).then(|| self.broker.hand_out(id, now)).flatten() {
                let doomed = !self.peace && self.dice.percent(DOOMED);
                let dies = doomed.then(|| self.dice.pick(&Dies::ALL)).flatten();
                let (delivery, altered) = (handed.delivery, handed.altered);
                let message = handed.message;
                let chance = if message.is_long() { ROGUE_AT_LONG } else { ROGUE };
                let rogue = !self.peace && dies.is_none() && self.dice.percent(chance);
                self.workers.places[place].tell(&Order::Deliver { delivery, message, altered, dies, rogue });
            }
        }
    }

    pub(super) async fn hear(&mut self, (id, heard): (u32, Heard)) -> anyhow::Result<()> {
        let Some(place) = self.workers.place(id) else { return Ok(()) };
        let now = Instant::now();
        match heard {
            Heard::Gone => {
                let (id, killed) = self.workers.gone(place).await?;
                if !killed {
                    bail!("worker {id} ended by itself; its log says why");
                }
                self.broker.gone(id, now);
            }
            Heard::Nonsense(text) => bail!("worker {id} says what is no news: {text}"),
            Heard::News(News::Ready) => self.workers.places[place].ready = true,
            Heard::News(News::Write { effect, key, token, fence }) => {
                let accepted = self.resource.write(key, token, fence);
                self.workers.places[place].tell(&Order::Wrote { effect, accepted });
            }
            Heard::News(News::Bury { delivery }) => {
                self.harms.dead_letters += 1;
                self.workers.places[place].tell(&Order::Buried { delivery });
            }
            Heard::News(News::Ack { delivery }) => self.broker.ack(delivery, now),
            Heard::News(News::Nack { delivery, after_ms }) => {
                self.broker.nack(delivery, id, now + Duration::from_millis(after_ms));
            }
            // Deliveries of the harness have no partitions.
            Heard::News(News::Received { .. } | News::Revoked { .. }) => {}
        }
        Ok(())
    }
}
