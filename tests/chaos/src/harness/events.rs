//! What happens to the harness, and what it does to others.
use std::time::Duration;

use anyhow::bail;
use idempotent_testkit::history::Kind;
use tokio::time::Instant;

use super::{DOOMED, Harness, PREFETCH, ROGUE, ROGUE_AT_LONG, own};
use crate::fleet::Heard;
use crate::plan::Harm;
use crate::target::Done;
use crate::wire::{Dies, News, Order};

impl Harness {
    pub(super) fn suffer(&mut self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            // The rest when it is gone.
            Harm::Kill(place) => Ok(self.places[place].kill()?),
            Harm::Pause(place, long) => self.pause(place, long),
            harm => {
                self.queued.push_back(harm);
                self.next_job();
                Ok(())
            }
        }
    }

    /// One at a time: what a failover loses is compared while nothing else is done.
    fn next_job(&mut self) {
        if let (true, Some(harm)) = (self.jobs.is_empty(), self.queued.pop_front()) {
            let target = self.target.clone();
            self.jobs.spawn_blocking(move || target.suffer(harm));
        }
    }

    fn pause(&mut self, place: usize, long: Duration) -> anyhow::Result<()> {
        let process = &self.places[place];
        let id = process.id;
        if self.stopped.iter().any(|(_, stopped)| *stopped == id) || !process.ready {
            return Ok(());
        }
        process.stop()?;
        self.stopped.push((Instant::now() + long, id));
        self.harms.pauses += 1;
        self.note(Kind::Paused, id, None);
        Ok(())
    }

    pub(super) fn resume(&mut self, now: Instant) -> anyhow::Result<()> {
        let due: Vec<_> = self.stopped.iter().filter(|(until, _)| *until <= now).map(|(_, id)| *id).collect();
        self.stopped.retain(|(until, _)| *until > now);
        for id in due {
            // Killed meanwhile, it goes on no more.
            let Some(process) = self.places.iter().find(|process| process.id == id) else { continue };
            process.resume()?;
            self.note(Kind::Resumed, id, None);
        }
        Ok(())
    }

    pub(super) fn done(&mut self, done: Done) {
        self.harms.of_the_store(&done);
        let lost = done.lost.iter().filter(|key| self.keys.contains(*key));
        self.lines.extend(lost.map(|key| done.lost_line(key, own())));
        self.next_job();
    }

    pub(super) fn hand_out(&mut self, now: Instant) {
        let first = usize::try_from(self.dice.below(self.places.len() as u64)).unwrap_or_default();
        let count = self.places.len();
        for place in (0..count).map(|place| (first + place) % count) {
            let (id, ready) = (self.places[place].id, self.places[place].ready);
            let free = if ready { PREFETCH.saturating_sub(self.broker.out(id)) } else { 0 };
            // In turn: a herd on one worker would have no competitors.
            if let Some(handed) = (free > 0).then(|| self.broker.hand_out(id, now)).flatten() {
                let doomed = !self.peace && self.dice.percent(DOOMED);
                let dies = doomed.then(|| self.dice.pick(&Dies::ALL)).flatten();
                let (delivery, altered) = (handed.delivery, handed.altered);
                let message = handed.message;
                let chance = if message.is_long() { ROGUE_AT_LONG } else { ROGUE };
                let rogue = !self.peace && dies.is_none() && self.dice.percent(chance);
                self.places[place].tell(Order::Deliver { delivery, message, altered, dies, rogue });
            }
        }
    }

    pub(super) async fn hear(&mut self, (id, heard): (u32, Heard)) -> anyhow::Result<()> {
        let Some(place) = self.places.iter().position(|process| process.id == id) else { return Ok(()) };
        let now = Instant::now();
        match heard {
            Heard::Gone => self.gone(place).await?,
            Heard::Nonsense(text) => bail!("worker {id} says what is no news: {text}"),
            Heard::News(News::Ready) => self.places[place].ready = true,
            Heard::News(News::Write { effect, key, token, fence }) => {
                let accepted = self.resource.write(key, token, fence);
                self.places[place].tell(Order::Wrote { effect, accepted });
            }
            Heard::News(News::Bury { delivery }) => {
                self.harms.dead_letters += 1;
                self.places[place].tell(Order::Buried { delivery });
            }
            Heard::News(News::Ack { delivery }) => self.broker.ack(delivery, now),
            Heard::News(News::Nack { delivery, after_ms }) => {
                self.broker.nack(delivery, id, now + Duration::from_millis(after_ms));
            }
        }
        Ok(())
    }

    /// Another incarnation takes the place.
    async fn gone(&mut self, place: usize) -> anyhow::Result<()> {
        let other = self.fleet.start(&self.namespace)?;
        let process = std::mem::replace(&mut self.places[place], other);
        let id = process.id;
        if !process.gone().await? {
            bail!("worker {id} ended by itself; its log says why");
        }
        self.stopped.retain(|(_, stopped)| *stopped != id);
        self.broker.gone(id, Instant::now());
        self.note(Kind::Crash, id, None);
        Ok(())
    }
}
