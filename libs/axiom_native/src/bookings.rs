//! Requests in flight: own ones, which are booked, and those that peers tell of; what follows from
//! them for the engine, which is written into its row.

use crate::adapters::{AdapterId, BASE, NO_LOAD_MS};
use crate::engines::Use;
use crate::fleet::Fleet;

pub struct Booking {
    row: u32,
    adapter: AdapterId,
    tokens: i64,
}

impl Fleet {
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

    pub(crate) fn forget_peers(&mut self, row: u32) {
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

    pub(crate) fn share_slots(&mut self, row: u32) {
        for adapter in self.engines[row as usize].share_slots() {
            self.index(row, adapter);
        }
    }

    /// Write what is in flight, and what follows from it.
    pub(crate) fn count(&mut self, row: u32) {
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

    pub(crate) fn index(&mut self, row: u32, adapter: AdapterId) {
        if adapter != BASE {
            let holding = self.engines[row as usize].holding(adapter);
            self.adapters.set_holder(adapter, row, holding);
        }
    }
}
