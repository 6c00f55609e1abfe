//! The fleet: one row an engine, as columns, with what is in flight there. Rules wrote the figures;
//! here they are only added up with what was booked since. `decide` judges them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::adapters::{AdapterId, Adapters, BASE, Holding, LOADING, NO_LOAD_MS, NOT, RESIDENT};
use crate::decide::Scratch;
use crate::engines::{Engine, FREE, Resident, Slot, Use, WaitRule};
use crate::text::Cut;

pub const TERMS: usize = 6;
/// Lines of the terms. The third, adapter load, is the request's own and no column.
pub const WAIT: usize = 0;
pub const PREFILL: usize = 1;
pub const LOAD: usize = 2;
pub const KV: usize = 3;
pub const THERMAL: usize = 4;
pub const LATENCY: usize = 5;

/// Bits of `Columns::doubts`.
pub const STALE: u8 = 1;
pub const UNHEARD: u8 = 2;
pub const FLAPPING: u8 = 4;

pub const RINGS: usize = 3;
/// In place of a ring: the adapter is kept from the engine.
pub const NO_RING: u8 = RINGS as u8;

/// What the policy says and this only applies. Codes are those of `axiom_common.policy.view`.
pub struct Rules {
    /// Reasons there are: 0 is none, and the code beyond the last one stands on vacant rows.
    pub reasons: usize,
    /// By `Held` and `Slot`: how far out an engine is for an adapter.
    pub rings: [[u8; 3]; 4],
    /// By the bits of `decide`: the code of the first reason that stands.
    pub late: [u8; 32],
    pub stale: u8,
    pub flapping: u8,
    pub probe_one_in: u64,
    /// What a token is credited with that is held, but not in HBM.
    pub other_tier: f64,
    pub masks_max: usize,
    pub cut: Cut,
}

/// By keys that are numbers of our own making, or hashes: mixed with little effort.
pub type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Picker {
    LeastCost,
    LeastLoaded,
    RoundRobin,
}

pub struct Profile {
    pub picker: Picker,
    pub wait_cap_ms: f64,
    pub weights: [f64; TERMS],
    pub quarantine: bool,
}

/// What many requests have in common. `rank` None: for the base model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub base_model: u64,
    pub role: u8,
    pub rank: Option<i64>,
}

/// What rules wrote of one engine; times in ms, rates in bytes a ms.
pub struct Figures {
    pub terms_ms: [f64; TERMS],
    pub load_queue_ms: f64,
    pub h2d_fixed_ms: f64,
    pub h2d_bytes_per_ms: f64,
    pub store_fixed_ms: f64,
    pub store_bytes_per_ms: f64,
    pub kv_headroom: f64,
    pub thermal_safety: f64,
    pub latency_health: f64,
    pub wait: WaitRule,
    pub doubts: u8,
}

#[derive(Default)]
pub struct Columns {
    pub identity: Vec<u64>,
    pub doubts: Vec<u8>,
    pub slot: Vec<Slot>,
    pub in_flight: Vec<f64>,
    pub wait_ms: Vec<f64>,
    pub delay_ms: Vec<f64>,
    pub terms_ms: [Vec<f64>; TERMS],
    pub load_queue_ms: Vec<f64>,
    pub loads_done_at_ms: Vec<f64>,
    pub h2d_fixed_ms: Vec<f64>,
    pub h2d_bytes_per_ms: Vec<f64>,
    pub store_fixed_ms: Vec<f64>,
    pub store_bytes_per_ms: Vec<f64>,
    pub kv_headroom: Vec<f64>,
    pub thermal_safety: Vec<f64>,
    pub latency_health: Vec<f64>,
}

impl Columns {
    fn grow(&mut self) {
        self.identity.push(0);
        self.doubts.push(0);
        self.slot.push(FREE);
        let numbers = [
            &mut self.in_flight,
            &mut self.wait_ms,
            &mut self.delay_ms,
            &mut self.load_queue_ms,
            &mut self.loads_done_at_ms,
            &mut self.h2d_fixed_ms,
            &mut self.h2d_bytes_per_ms,
            &mut self.store_fixed_ms,
            &mut self.store_bytes_per_ms,
            &mut self.kv_headroom,
            &mut self.thermal_safety,
            &mut self.latency_health,
        ];
        numbers.into_iter().chain(&mut self.terms_ms).for_each(|column| column.push(0.0));
    }

    fn write(&mut self, at: usize, figures: &Figures) {
        for term in [PREFILL, KV, THERMAL, LATENCY] {
            self.terms_ms[term][at] = figures.terms_ms[term];
        }
        self.doubts[at] = figures.doubts;
        self.load_queue_ms[at] = figures.load_queue_ms;
        self.h2d_fixed_ms[at] = figures.h2d_fixed_ms;
        self.h2d_bytes_per_ms[at] = figures.h2d_bytes_per_ms;
        self.store_fixed_ms[at] = figures.store_fixed_ms;
        self.store_bytes_per_ms[at] = figures.store_bytes_per_ms;
        self.kv_headroom[at] = figures.kv_headroom;
        self.thermal_safety[at] = figures.thermal_safety;
        self.latency_health[at] = figures.latency_health;
    }
}

/// An adapter in an engine's report, by name.
pub struct Reported<'a> {
    pub adapter: &'a str,
    pub held: u8,
    pub is_tenant: bool,
    pub is_victim: bool,
    pub is_busy: bool,
    pub remaining_ms: f64,
}

struct Booking {
    row: u32,
    adapter: AdapterId,
    tokens: i64,
}

pub struct Fleet {
    pub rules: Rules,
    pub columns: Columns,
    pub adapters: Adapters,
    pub engines: Vec<Engine>,
    /// Rows of engines where nobody could load anything.
    pub closed: Vec<u32>,
    pub masks: Numbered<Wanted, Box<[u8]>>,
    pub profiles: Vec<Profile>,
    /// By profile and base model: the identity that round robin took last.
    pub turns: Numbered<(usize, u64), u64>,
    pub scratch: Scratch,
    by_name: HashMap<Box<str>, u32>,
    vacant: Vec<u32>,
    bookings: Numbered<u64, Booking>,
    last_booking: u64,
}

impl Fleet {
    pub fn new(rules: Rules, adapters: Adapters) -> Fleet {
        Fleet {
            rules,
            columns: Columns::default(),
            adapters,
            engines: Vec::new(),
            closed: Vec::new(),
            masks: Numbered::default(),
            profiles: Vec::new(),
            turns: Numbered::default(),
            scratch: Scratch::default(),
            by_name: HashMap::new(),
            vacant: Vec::new(),
            bookings: Numbered::default(),
            last_booking: 0,
        }
    }

    pub fn rows(&self) -> usize {
        self.engines.len()
    }

    /// The row of an engine that is there.
    pub fn row(&self, engine: &str) -> Option<u32> {
        let row = *self.by_name.get(engine)?;
        self.engines[row as usize].present.then_some(row)
    }

    /// Add an engine or replace what it is and holds; its figures follow.
    pub fn set_engine(
        &mut self,
        name: &str,
        identity: u64,
        hbm_slots: i64,
        residents: &[Reported<'_>],
        failures: &[&str],
        closed: Option<&[&str]>,
    ) -> u32 {
        let row = self.take_row(name);
        let new: Vec<Resident> = residents
            .iter()
            .map(|one| Resident {
                adapter: self.adapters.take(one.adapter),
                held: one.held,
                is_tenant: one.is_tenant,
                is_victim: one.is_victim,
                is_busy: one.is_busy,
                remaining_ms: one.remaining_ms,
            })
            .collect();
        let failures: Vec<_> = failures.iter().map(|name| self.adapters.take(name)).collect();
        let closed = closed.map(|names| {
            let mut names: Vec<_> = names.iter().map(|name| self.adapters.take(name)).collect();
            names.sort_unstable();
            names
        });
        let mut changed: Vec<_> = new.iter().map(|one| one.adapter).collect();
        let engine = &mut self.engines[row as usize];
        changed.extend(engine.uses.iter().map(|one| one.adapter));
        changed.extend(engine.residents.iter().map(|one| one.adapter));
        let before = (
            std::mem::replace(&mut engine.residents, new),
            std::mem::replace(&mut engine.failures, failures),
            std::mem::replace(&mut engine.closed, closed),
        );
        engine.present = true;
        engine.hbm_slots = hbm_slots;
        engine.share_slots();
        self.columns.identity[row as usize] = identity;
        self.mark(row);
        for adapter in changed {
            self.index(row, adapter);
        }
        self.drop_names(row, before);
        row
    }

    /// Replace the figures of an engine that is there.
    pub fn set_figures(&mut self, row: u32, figures: &Figures) {
        self.engines[row as usize].wait = figures.wait;
        self.columns.write(row as usize, figures);
        self.count(row);
    }

    /// The engine takes no more requests. Own ones there last until they end. Returns its row.
    pub fn remove(&mut self, name: &str) -> Option<u32> {
        let row = self.row(name)?;
        let engine = &mut self.engines[row as usize];
        engine.present = false;
        let before = (
            std::mem::take(&mut engine.residents),
            std::mem::take(&mut engine.failures),
            engine.closed.take(),
        );
        let held: Vec<_> = before.0.iter().map(|one| one.adapter).collect();
        let used: Vec<_> = engine.uses.iter().map(|one| one.adapter).collect();
        engine.evicted.clear();
        self.mark(row);
        for adapter in held.into_iter().chain(used) {
            self.adapters.set_holder(adapter, row, None);
        }
        self.drop_names(row, before);
        self.forget_peers(row);
        self.masks.clear();
        self.leave_row(row);
        Some(row)
    }

    /// Replace what others have in flight on an engine; counts are above 0.
    pub fn set_peers(&mut self, name: &str, counts: &[(&str, i64)]) {
        let Some(row) = self.row(name) else { return };
        let engine = &self.engines[row as usize];
        let of_peers = engine.uses.iter().filter(|one| one.peers > 0);
        let mut changed: Vec<_> = of_peers.map(|one| one.adapter).collect();
        // So that no name goes and comes meanwhile.
        let now: Vec<_> =
            counts.iter().map(|&(name, count)| (self.adapters.take(name), count)).collect();
        changed.iter().for_each(|&adapter| self.adapters.take_again(adapter));
        self.forget_peers(row);
        for &(adapter, count) in &now {
            self.used(row, adapter).peers = count;
        }
        self.share_slots(row);
        self.count(row);
        changed.extend(now.iter().map(|one| one.0));
        for &adapter in &changed {
            self.index(row, adapter);
        }
        changed.into_iter().for_each(|adapter| self.adapters.leave(adapter));
    }

    /// One more request of an adapter, which was taken for it (`BASE` need not be). Its id is never
    /// 0 and never used again.
    pub fn book(
        &mut self,
        row: u32,
        adapter: AdapterId,
        tokens: i64,
        ready_at_ms: Option<f64>,
    ) -> u64 {
        self.last_booking += 1;
        self.bookings.insert(self.last_booking, Booking { row, adapter, tokens });
        self.engines[row as usize].tokens += tokens;
        let used = self.used(row, adapter);
        used.own += 1;
        if let Some(ready_at_ms) = ready_at_ms {
            used.ready_at_ms = ready_at_ms;
        }
        let is_first = used.own == 1 && used.peers == 0;
        self.booked(row, adapter, is_first);
        self.last_booking
    }

    pub fn first_token(&mut self, booking: u64) {
        let Some(booking) = self.bookings.get_mut(&booking) else { return };
        let (row, adapter) = (booking.row, booking.adapter);
        let engine = &mut self.engines[row as usize];
        engine.tokens -= std::mem::take(&mut booking.tokens);
        if let Some(at) = engine.using(adapter) {
            engine.uses[at].ready_at_ms = NO_LOAD_MS;
        }
        self.booked(row, adapter, false);
    }

    pub fn release(&mut self, booking: u64) {
        let Some(Booking { row, adapter, tokens }) = self.bookings.remove(&booking) else { return };
        let engine = &mut self.engines[row as usize];
        engine.tokens -= tokens;
        let mut is_last = false;
        if let Some(at) = engine.using(adapter) {
            let used = &mut engine.uses[at];
            used.own -= 1;
            if used.own == 0 {
                used.ready_at_ms = NO_LOAD_MS;
                is_last = used.peers == 0;
            }
            if is_last {
                engine.uses.swap_remove(at);
            }
        }
        self.booked(row, adapter, is_last);
        if is_last {
            self.adapters.leave(adapter);
        }
        if adapter != BASE {
            self.adapters.leave(adapter);
        }
        self.leave_row(row);
    }

    /// Own requests on the engine in a row, by adapter.
    pub fn own(&self, row: u32) -> impl Iterator<Item = (&str, i64)> {
        let uses = self.engines[row as usize].uses.iter().filter(|one| one.own > 0);
        uses.map(|one| (self.adapters.name(one.adapter), one.own))
    }

    /// The row of an engine that is there or has own requests.
    pub fn row_of_own(&self, engine: &str) -> Option<u32> {
        self.by_name.get(engine).copied()
    }

    fn take_row(&mut self, name: &str) -> u32 {
        if let Some(&row) = self.by_name.get(name) {
            return row;
        }
        let row = self.vacant.pop().unwrap_or_else(|| {
            self.columns.grow();
            self.engines.push(Engine::new(""));
            (self.engines.len() - 1) as u32
        });
        self.engines[row as usize] = Engine::new(name);
        self.by_name.insert(name.into(), row);
        row
    }

    /// Free the row of an engine that is gone once nothing is booked there.
    fn leave_row(&mut self, row: u32) {
        let engine = &self.engines[row as usize];
        if engine.present || !engine.uses.is_empty() {
            return;
        }
        if self.by_name.remove(&engine.name).is_some() {
            self.engines[row as usize] = Engine::new("");
            self.vacant.push(row);
        }
    }

    /// Mark where its adapters failed, and whether it is closed.
    fn mark(&mut self, row: u32) {
        let engine = &self.engines[row as usize];
        for &adapter in &engine.failures {
            self.adapters.set_failed(adapter, row, true);
        }
        self.closed.retain(|&other| other != row);
        if engine.closed.is_some() {
            self.closed.push(row);
        }
    }

    /// Let go of the names of a report that was replaced.
    fn drop_names(
        &mut self,
        row: u32,
        (residents, failures, closed): (Vec<Resident>, Vec<AdapterId>, Option<Vec<AdapterId>>),
    ) {
        for adapter in failures {
            if !self.engines[row as usize].failures.contains(&adapter) {
                self.adapters.set_failed(adapter, row, false);
            }
            self.adapters.leave(adapter);
        }
        for one in residents {
            self.adapters.leave(one.adapter);
        }
        for adapter in closed.into_iter().flatten() {
            self.adapters.leave(adapter);
        }
    }

    fn forget_peers(&mut self, row: u32) {
        let engine = &mut self.engines[row as usize];
        let adapters = &mut self.adapters;
        engine.uses.retain_mut(|one| {
            one.peers = 0;
            if one.own == 0 {
                adapters.leave(one.adapter);
            }
            one.own > 0
        });
    }

    /// The entry of an adapter's requests in flight, made where there is none.
    fn used(&mut self, row: u32, adapter: AdapterId) -> &mut Use {
        let engine = &mut self.engines[row as usize];
        let at = engine.using(adapter).unwrap_or_else(|| {
            self.adapters.take_again(adapter);
            engine.uses.push(Use { adapter, own: 0, peers: 0, ready_at_ms: NO_LOAD_MS });
            engine.uses.len() - 1
        });
        &mut engine.uses[at]
    }

    /// The bookings of an adapter on an engine changed; `in_use`: whether it has any did.
    fn booked(&mut self, row: u32, adapter: AdapterId, in_use: bool) {
        if !self.engines[row as usize].present {
            return;
        }
        if in_use && adapter != BASE {
            self.share_slots(row);
        }
        self.count(row);
        self.index(row, adapter);
    }

    fn share_slots(&mut self, row: u32) {
        for adapter in self.engines[row as usize].share_slots() {
            self.index(row, adapter);
        }
    }

    /// Write what is in flight, and what follows from it.
    fn count(&mut self, row: u32) {
        let (at, engine, columns) = (row as usize, &self.engines[row as usize], &mut self.columns);
        let in_flight = engine.in_flight();
        let wait_ms = engine.wait_ms(in_flight);
        let [wait, _, _, kv, thermal, latency] = &mut columns.terms_ms;
        columns.in_flight[at] = in_flight as f64;
        columns.wait_ms[at] = wait_ms;
        wait[at] = wait_ms + engine.wait.slowdown_per_request_ms * in_flight as f64;
        columns.delay_ms[at] = wait_ms + kv[at] + thermal[at] + latency[at];
        columns.loads_done_at_ms[at] = engine.loads_done_at_ms();
        columns.slot[at] = engine.slot;
    }

    fn index(&mut self, row: u32, adapter: AdapterId) {
        if adapter != BASE {
            let holding = self.engines[row as usize].holding(adapter);
            self.adapters.set_holder(adapter, row, holding);
        }
    }

    /// Transfer from host RAM, time until it is there, and until it is from the store, in ms.
    pub fn load_times(&self, at: usize, size_bytes: f64, now_ms: f64) -> (f64, f64, f64) {
        let columns = &self.columns;
        let transfer_ms = columns.h2d_fixed_ms[at] + size_bytes / columns.h2d_bytes_per_ms[at];
        let fetch_ms = columns.store_fixed_ms[at] + size_bytes / columns.store_bytes_per_ms[at];
        let queue_ms = columns.load_queue_ms[at].max(columns.loads_done_at_ms[at] - now_ms);
        let h2d_ms = queue_ms + transfer_ms;
        (transfer_ms, h2d_ms, fetch_ms + h2d_ms)
    }

    /// Until the adapter can run, by how it is held.
    pub fn load_ms(&self, holding: Holding, h2d_ms: f64, cold_ms: f64, now_ms: f64) -> f64 {
        match holding.held {
            RESIDENT => 0.0,
            LOADING => holding.rest_ms(now_ms),
            NOT => cold_ms,
            _ => h2d_ms,
        }
    }
}
