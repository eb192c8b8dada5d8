//! The masters of a cluster and their slots: clocks, outages, moves and headers.
use std::collections::HashMap;
use std::sync::Arc;

use idempotent_core::protocol;
use idempotent_core::{Key, Record, State, Timestamp};

use super::bug::Bug;
use super::journal::{Change, Journal};
use super::load::from_quantiles;
use super::packed::{Header, MemberPlace, PackedSize, PackedSlot, RollClocks, RollPlan};
use super::request::{KeyPlace, Request};
use super::scenario::{CLUSTER_SLOTS, Form, LAG, Scenario, Setting};
use crate::dice::Dice;

/// The time on the clock of a master at the start of a play, in µs since 1970.
pub(super) const BEGIN: u64 = 1_700_000_000_000_000;
/// The quantiles of the service time of a script on a record, in µs. The median is a measured one: half of a cycle. The
/// tail is an assumption.
const SERVICE_US: [u64; 5] = [4, 6, 9, 20, 400];
/// The service time of a script on the packed form, to one on a record. Measured.
const PACKED_SERVICE: f64 = 2.3;

/// A master.
#[derive(Clone, Debug)]
pub(super) struct Master {
    /// The difference between the master's clock and the virtual time.
    clock: i64,
    busy_until: u64,
    pub(super) is_up: bool,
    /// The number of requests.
    pub(super) requests: u64,
}

/// A move of a slot to another master.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotMove {
    pub(super) to: usize,
    pub(super) began: u64,
    pub(super) takes: u64,
}

/// The data of a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotData {
    pub(super) owner: usize,
    pub(super) records: HashMap<u128, Record>,
    /// The records of the previous namespace.
    pub(super) previous: HashMap<u128, Record>,
    pub(super) packed: PackedSlot,
    pub(super) moving: Option<SlotMove>,
}

/// All masters and slots.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) masters: Vec<Master>,
    pub(super) slots: Vec<SlotData>,
    pub(super) journal: Journal,
    pub(super) form: Form,
    pub(super) bug: Option<Bug>,
    /// The key of all requests. The protocol does not compare keys, since each record belongs to one.
    pub(super) key: Key,
}

impl Cluster {
    /// Creates the cluster. The clocks of the masters differ by up to 200 ms.
    pub(super) fn new(setting: &Setting, dice: &mut Dice) -> Self {
        let per_master = setting.slots as usize / setting.masters;
        let master = |dice: &mut Dice| Master {
            clock: dice.below(200_000) as i64 - 100_000,
            busy_until: 0,
            is_up: true,
            requests: 0,
        };
        let slot = |slot: usize| SlotData { owner: slot / per_master.max(1), ..SlotData::default() };
        let lag = if setting.bug == Some(Bug::ReplicaFarBack) { 500 * LAG } else { LAG };
        Self {
            masters: (0..setting.masters).map(|_| master(dice)).collect(),
            slots: (0..setting.slots as usize).map(slot).collect(),
            journal: Journal::new((setting.scenario == Scenario::Failover).then_some(lag)),
            form: setting.form,
            bug: setting.bug,
            key: Key::from_parts("sim:mq:scale", 0),
        }
    }

    pub(super) fn owner(&self, slot: u32) -> usize {
        self.slots[slot as usize].owner
    }

    /// Returns the time on the clock of a slot's master.
    pub(super) fn clock(&self, slot: u32, now: u64) -> u64 {
        let SlotData { owner, moving, .. } = &self.slots[slot as usize];
        // A key that its slot's old master does not have is served by the new one.
        let master = moving.filter(|_| self.form == Form::Record).map_or(*owner, |moving| moving.to);
        (BEGIN + now).saturating_add_signed(self.masters[master].clock)
    }

    pub(super) fn set_clock(&mut self, master: usize, by: i64) {
        self.masters[master].clock += by;
    }

    /// Returns the time at which a master has served a request that arrives now.
    pub(super) fn serve(&mut self, slot: u32, now: u64, dice: &mut Dice) -> u64 {
        let factor = if self.form == Form::Packed { PACKED_SERVICE } else { 1.0 };
        let service = (from_quantiles(SERVICE_US, dice) as f64 * factor) as u64;
        let owner = self.owner(slot);
        let master = &mut self.masters[owner];
        master.requests += 1;
        master.busy_until = master.busy_until.max(now) + service;
        master.busy_until
    }

    /// Rolls a slot if its header is the expected one, and returns the header after that. Returns `None` if the slot
    /// cannot be reached.
    pub(super) fn roll(&mut self, request: &Request, now: u64) -> Option<(Arc<Header>, bool)> {
        let slot = request.place.slot;
        if !self.masters[self.owner(slot)].is_up || self.slots[slot as usize].moving.is_some() {
            return None;
        }
        let server = self.clock(slot, now);
        let of_client = (BEGIN + now).saturating_add_signed(request.client_clock);
        let segments = if self.bug == Some(Bug::ClientClock) { of_client } else { server };
        let offset = f64::from(slot * (CLUSTER_SLOTS / self.slots.len() as u32)) / f64::from(CLUSTER_SLOTS);
        let plan = RollPlan { retention: request.retention, offset, bug: self.bug };
        let data = &mut self.slots[slot as usize];
        let undo = data.packed.roll(request.header.as_ref(), plan, RollClocks { server, segments });
        let is_rolled = undo.is_some();
        if let Some(undo) = undo {
            self.journal.note(now, slot, data.owner, || Change::Roll(undo));
        }
        data.packed.header(server).cloned().map(|header| (header, is_rolled))
    }

    /// Returns the header of a slot and whether it is overdue, or `None` if the slot cannot be reached.
    pub(super) fn header(&self, slot: u32, now: u64) -> Option<(Option<Arc<Header>>, bool)> {
        let data = &self.slots[slot as usize];
        let server = self.clock(slot, now);
        let header = data.packed.header(server);
        let is_overdue = header.is_some_and(|header| header.is_overdue(server));
        (self.masters[data.owner].is_up && data.moving.is_none()).then(|| (header.cloned(), is_overdue))
    }

    /// Returns whether a duplicate of the key would be recognized.
    pub(super) fn is_visible(&self, place: KeyPlace, now: u64) -> bool {
        let (data, time) = (&self.slots[place.slot as usize], self.clock(place.slot, now));
        let is_consumed = |map: &HashMap<u128, Record>| {
            let found = map
                .get(&place.hash)
                .filter(|record| self.bug != Some(Bug::FutureIgnored) || record.first_seen.0 <= time);
            protocol::live(found, Timestamp(time)).is_some_and(|record| matches!(record.state, State::Consumed { .. }))
        };
        let is_marked = || data.packed.is_marked(MemberPlace::of(place.hash, self.bug), time, 0.0, self.bug);
        is_consumed(&data.records) || is_consumed(&data.previous) || (self.form == Form::Packed && is_marked())
    }

    /// Removes the records that a server would have removed.
    pub(super) fn purge(&mut self, slot: u32, now: u64) {
        let time = Timestamp(self.clock(slot, now));
        self.slots[slot as usize].records.retain(|_, record| !protocol::purgeable(record, time));
    }

    pub(super) fn size(&self, slot: u32) -> PackedSize {
        self.slots[slot as usize].packed.size()
    }

    /// Ends a master, and gives its slots the state that the next master has: that of a replica, or none. Returns the
    /// lost writes of a failover: time and key.
    pub(super) fn end_master(&mut self, master: usize, has_replica: bool, now: u64) -> Vec<(u64, u128)> {
        self.masters[master].is_up = false;
        if has_replica {
            let lost = self.journal.lost(master, now);
            return lost.into_iter().filter_map(|(at, slot, change)| Some((at, self.undo(slot, change)?))).collect();
        }
        let all = self.bug == Some(Bug::AllMastersCleared);
        for slot in self.slots.iter_mut().filter(|slot| all || slot.owner == master) {
            (slot.records, slot.packed) = (HashMap::new(), PackedSlot::default());
        }
        Vec::new()
    }

    fn undo(&mut self, slot: u32, change: Change) -> Option<u128> {
        let data = &mut self.slots[slot as usize];
        match change {
            Change::Record { hash, before } => {
                match before {
                    Some(record) => data.records.insert(hash, record),
                    None => data.records.remove(&hash),
                };
                Some(hash)
            }
            Change::Member { hash, member } => {
                data.packed.remove(member);
                Some(hash)
            }
            Change::Roll(roll) => {
                data.packed.undo(roll);
                None
            }
        }
    }

    pub(super) fn begin_move(&mut self, slot: u32, to: usize, takes: u64, now: u64) {
        self.slots[slot as usize].moving = Some(SlotMove { to, began: now, takes });
    }

    pub(super) fn end_move(&mut self, slot: u32) {
        let data = &mut self.slots[slot as usize];
        if let Some(moving) = data.moving.take() {
            data.owner = moving.to;
        }
    }
}
