//! What a request would cost on each row, before anything is said against a row: credit for what of
//! the prompt is held there, the load of the adapter, the sum of all terms.

use crate::adapters::{HOST, Holding, LOADING, NOT, RESIDENT};
use crate::columns::{KV, LATENCY, LOAD, PREFILL, TERMS, THERMAL, WAIT};
use crate::costs::{self, LoadColumns, Tokens};
use crate::decide::{Ask, Scratch};
use crate::fleet::Fleet;

/// How the engine in a row holds the adapter of a decision; what a load there takes.
pub struct LoadSeen {
    pub holding: Holding,
    pub rest_ms: f64,
    pub h2d_ms: f64,
    pub cold_ms: f64,
}

impl Fleet {
    /// Prompt tokens that the engine in a row would compute, as the last decision has it.
    pub fn uncached(&self, at: usize, prompt_tokens: f64) -> f64 {
        self.scratch.uncached.get(at).copied().unwrap_or(prompt_tokens)
    }

    pub(crate) fn credit(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        scratch.credited.clear();
        scratch.uncached.clear();
        let Some(prefix) = &ask.prefix else { return };
        let (rows, other_tier) = (self.rows(), self.rules.other_tier);
        // Tokens and bytes of text that each holds.
        for (found, held) in
            [(prefix.hbm, &mut scratch.in_hbm), (prefix.any_tier, &mut scratch.in_any)]
        {
            held.clear();
            held.resize(rows, [0.0; 2]);
            for [engine, depth, tokens] in found {
                if let Some(one) = held.get_mut(u32::from_le(*engine) as usize) {
                    let bytes = self.rules.cut.end_of(u32::from_le(*depth) as usize);
                    *one = [f64::from(u32::from_le(*tokens)), bytes as f64];
                }
            }
        }
        let (tokens, bytes) = (ask.prompt_tokens, prefix.prompt_bytes as f64);
        scratch.credited.extend(
            scratch
                .in_hbm
                .iter()
                .zip(&scratch.in_any)
                .map(|(hbm, any)| hbm[0] + other_tier * (any[0] - hbm[0])),
        );
        scratch.uncached.extend(scratch.in_hbm.iter().zip(&scratch.in_any).map(|(hbm, any)| {
            let credited_bytes = hbm[1] + other_tier * (any[1] - hbm[1]);
            tokens * ((bytes - credited_bytes) / bytes)
        }));
    }

    pub(crate) fn predict(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let rows = self.rows();
        for column in [&mut scratch.load_ms, &mut scratch.load_term_ms, &mut scratch.cost_us] {
            column.clear();
        }
        scratch.held.clear();
        scratch.cost_us.resize(rows, 0.0);
        if ask.adapter.is_some() {
            scratch.held.resize(rows, 0);
            scratch.load_ms.resize(rows, 0.0);
            scratch.load_term_ms.resize(rows, 0.0);
            self.predict_loads(ask, scratch);
            for &(row, holding) in ask.known().map_or(&[][..], |known| self.adapters.holders(known))
            {
                let at = row as usize;
                let (transfer_ms, h2d_ms, cold_ms) =
                    self.load_times(at, ask.size_bytes, ask.now_ms);
                let load_ms = self.load_ms(holding, h2d_ms, cold_ms, ask.now_ms);
                let stalls = holding.held < LOADING;
                let stall_ms = if stalls { transfer_ms * self.columns.in_flight[at] } else { 0.0 };
                scratch.held[at] = holding.held;
                scratch.load_ms[at] = load_ms;
                scratch.load_term_ms[at] = load_ms + stall_ms;
            }
        }
        self.predict_costs(ask, scratch);
    }

    /// As if nobody held the adapter.
    fn predict_loads(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let columns = &self.columns;
        let columns = LoadColumns {
            load_queue_ms: &columns.load_queue_ms,
            loads_done_at_ms: &columns.loads_done_at_ms,
            h2d_fixed_ms: &columns.h2d_fixed_ms,
            h2d_bytes_per_ms: &columns.h2d_bytes_per_ms,
            store_fixed_ms: &columns.store_fixed_ms,
            store_bytes_per_ms: &columns.store_bytes_per_ms,
            in_flight: &columns.in_flight,
        };
        let (load, term) = (&mut scratch.load_ms[..], &mut scratch.load_term_ms[..]);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { costs::loads_avx2(&columns, ask.size_bytes, ask.now_ms, load, term) };
        }
        costs::loads(&columns, ask.size_bytes, ask.now_ms, load, term);
    }

    fn predict_costs(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let terms = &self.columns.terms_ms;
        let load =
            if scratch.load_term_ms.is_empty() { &terms[LOAD] } else { &scratch.load_term_ms };
        let weights = &self.profiles[ask.profile].weights;
        let terms =
            [&terms[WAIT], &terms[PREFILL], load, &terms[KV], &terms[THERMAL], &terms[LATENCY]];
        let tokens = if scratch.uncached.is_empty() {
            Tokens::Same(ask.prompt_tokens)
        } else {
            Tokens::Each(&scratch.uncached)
        };
        let costs_us = &mut scratch.cost_us[..];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { costs::costs_avx2(weights, terms, tokens, costs_us) };
        }
        costs::costs(weights, terms, tokens, costs_us);
    }

    /// What a request costs on one row, term by term.
    pub fn terms_ms(&self, at: usize, prompt_tokens: f64) -> [f64; TERMS] {
        let mut terms_ms: [f64; TERMS] =
            std::array::from_fn(|term| self.columns.terms_ms[term][at]);
        terms_ms[PREFILL] *= self.uncached(at, prompt_tokens);
        if let Some(&load_ms) = self.scratch.load_term_ms.get(at) {
            terms_ms[LOAD] = load_ms;
        }
        terms_ms
    }

    /// How the engine in a row holds the adapter.
    pub fn held(&self, row: u32, ask: &Ask<'_>) -> Holding {
        if ask.adapter.is_none() {
            return Holding::of(RESIDENT);
        }
        let holders = ask.known().map_or(&[][..], |known| self.adapters.holders(known));
        let at = holders.binary_search_by_key(&row, |holder| holder.0);
        at.map_or(Holding::of(NOT), |at| holders[at].1)
    }

    /// What the adapter's score on one row follows from; zeros for the base model.
    pub fn load_seen(&self, at: usize, ask: &Ask<'_>) -> LoadSeen {
        if ask.adapter.is_none() {
            let holding = Holding::of(RESIDENT);
            return LoadSeen { holding, rest_ms: 0.0, h2d_ms: 0.0, cold_ms: 0.0 };
        }
        let holding = self.held(at as u32, ask);
        let (_, h2d_ms, cold_ms) = self.load_times(at, ask.size_bytes, ask.now_ms);
        let rest_ms = if holding.held > HOST { holding.rest_ms(ask.now_ms) } else { 0.0 };
        LoadSeen { holding, rest_ms, h2d_ms, cold_ms }
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
