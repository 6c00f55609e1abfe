//! The sums that are gone through as vectors, over whole columns: AVX2 where the processor has it.

use crate::columns::{KV, LATENCY, LOAD, PREFILL, TERMS, THERMAL, WAIT};

pub(crate) struct LoadColumns<'a> {
    pub(crate) load_queue_ms: &'a [f64],
    pub(crate) loads_done_at_ms: &'a [f64],
    pub(crate) h2d_fixed_ms: &'a [f64],
    pub(crate) h2d_bytes_per_ms: &'a [f64],
    pub(crate) store_fixed_ms: &'a [f64],
    pub(crate) store_bytes_per_ms: &'a [f64],
    pub(crate) in_flight: &'a [f64],
}

/// As `Fleet::load_times` and `load_ms` where nothing of the adapter is; `term` with the stall that
/// the load puts on those in flight.
#[inline(always)]
pub(crate) fn loads(
    columns: &LoadColumns<'_>,
    size_bytes: f64,
    now_ms: f64,
    load: &mut [f64],
    term: &mut [f64],
) {
    let rows = load.len();
    let (queue, done) = (&columns.load_queue_ms[..rows], &columns.loads_done_at_ms[..rows]);
    let (h2d, h2d_rate) = (&columns.h2d_fixed_ms[..rows], &columns.h2d_bytes_per_ms[..rows]);
    let (store, store_rate) =
        (&columns.store_fixed_ms[..rows], &columns.store_bytes_per_ms[..rows]);
    let (in_flight, term) = (&columns.in_flight[..rows], &mut term[..rows]);
    for at in 0..rows {
        let booked_ms = done[at] - now_ms;
        let queue_ms = if queue[at] > booked_ms { queue[at] } else { booked_ms };
        let transfer_ms = h2d[at] + size_bytes / h2d_rate[at];
        let load_ms = (store[at] + size_bytes / store_rate[at]) + (queue_ms + transfer_ms);
        load[at] = load_ms;
        term[at] = load_ms + transfer_ms * in_flight[at];
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(crate) fn loads_avx2(
    columns: &LoadColumns<'_>,
    size_bytes: f64,
    now_ms: f64,
    load: &mut [f64],
    term: &mut [f64],
) {
    loads(columns, size_bytes, now_ms, load, term);
}

#[derive(Clone, Copy)]
pub(crate) enum Tokens<'a> {
    Same(f64),
    Each(&'a [f64]),
}

/// The weighted sum of the terms of each row, in whole us.
#[inline(always)]
pub(crate) fn costs(
    weights: &[f64; TERMS],
    terms: [&Vec<f64>; TERMS],
    tokens: Tokens<'_>,
    costs_us: &mut [f64],
) {
    match tokens {
        Tokens::Same(tokens) => costs_of(weights, terms, |_| tokens, costs_us),
        Tokens::Each(tokens) => {
            let tokens = &tokens[..costs_us.len()];
            costs_of(weights, terms, |at| tokens[at], costs_us);
        }
    }
}

#[inline(always)]
fn costs_of(
    weights: &[f64; TERMS],
    terms: [&Vec<f64>; TERMS],
    tokens: impl Fn(usize) -> f64,
    costs_us: &mut [f64],
) {
    let rows = costs_us.len();
    let [wait, prefill, load, kv, thermal, latency] = terms.map(|term| &term[..rows]);
    for at in 0..rows {
        let mut cost_ms = weights[WAIT] * wait[at];
        cost_ms += weights[PREFILL] * (prefill[at] * tokens(at));
        cost_ms += weights[LOAD] * load[at];
        cost_ms += weights[KV] * kv[at];
        cost_ms += weights[THERMAL] * thermal[at];
        cost_ms += weights[LATENCY] * latency[at];
        costs_us[at] = (cost_ms * 1000.0).round_ties_even();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(crate) fn costs_avx2(
    weights: &[f64; TERMS],
    terms: [&Vec<f64>; TERMS],
    tokens: Tokens<'_>,
    costs_us: &mut [f64],
) {
    costs(weights, terms, tokens, costs_us);
}
