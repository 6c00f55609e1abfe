//! What is known of all engines, as columns, one row an engine. Rules wrote the figures;
//! `bookings` adds to them what was booked since.

use crate::engines::{FREE, Slot, WaitRule};

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
    pub(crate) fn grow(&mut self) {
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

    pub(crate) fn write(&mut self, at: usize, figures: &Figures) {
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
