//! One decision: predict, filter, pick. The twin of `axiom_common.policy.kernel`, bit for bit: f64,
//! terms added in their order, no fused multiply-add, costs rounded to 1 us before they are
//! compared. Long columns are gone through one operation at a time, so that they are vectors.

use crate::adapters::{AdapterId, BASE, HOST, Holding, LOADING, NOT, RESIDENT};
use crate::fleet::{
    FLAPPING, Fleet, KV, LATENCY, LOAD, NO_RING, PREFILL, Picker, RINGS, Rules, STALE, TERMS,
    THERMAL, UNHEARD, WAIT, Wanted,
};
use crate::found::Row;

pub const SHOWN_MAX: usize = 3;
/// What `Rules::late` is indexed with: which late filters stand.
pub const FAILED: u8 = 1;
pub const CLOSED: u8 = 2;
pub const QUARANTINED: u8 = 4;
pub const EXCLUDED: u8 = 8;
pub const SATURATED: u8 = 16;
/// Before the rings: engines that are probed.
const PROBED: usize = 0;
const CLASSES: usize = 1 + RINGS;

pub struct Ask<'a> {
    pub wanted: Wanted,
    /// None: the base model.
    pub adapter: Option<Asked<'a>>,
    pub size_bytes: f64,
    pub prompt_tokens: f64,
    pub affinity_hash: u64,
    pub request_hash: u64,
    pub now_ms: f64,
    pub profile: usize,
    /// Rows where this very request failed.
    pub excluded: &'a [u32],
    pub prefix: Option<Prefix<'a>>,
}

/// An adapter; `known`: somebody holds it, has requests of it in flight, or remembers it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub name: &'a str,
    pub known: Option<AdapterId>,
}

/// Who holds how much of the prompt's text, which is not empty.
pub struct Prefix<'a> {
    pub text_bytes: usize,
    pub any_tier: &'a [Row],
    pub hbm: &'a [Row],
}

impl Ask<'_> {
    fn known(&self) -> Option<AdapterId> {
        self.adapter.and_then(|adapter| adapter.known)
    }
}

#[derive(Default)]
pub struct Choice {
    /// Of all rows by their code.
    pub counts: Vec<u32>,
    /// The dearest candidate's cost, at least 1.
    pub worst_us: i64,
    /// The winner and who comes next, of the winner's ring and of those further out.
    pub shown: [u32; SHOWN_MAX],
    pub shown_count: usize,
}

/// Columns of the request itself; kept, so that nothing is allocated for each.
#[derive(Default)]
pub struct Scratch {
    /// Credit for the prompt's prefix, in tokens; empty without.
    pub credited: Vec<f64>,
    pub uncached: Vec<f64>,
    /// Until the adapter can run; empty for the base model.
    pub load_ms: Vec<f64>,
    load_term_ms: Vec<f64>,
    pub cost_us: Vec<f64>,
    /// By `Held`; empty for the base model.
    held: Vec<u8>,
    marks: Vec<u8>,
    /// The first reason against each row, 0 for candidates.
    pub codes: Vec<u8>,
    candidates: Vec<u32>,
    in_hbm: Vec<[f64; 2]>,
    in_any: Vec<[f64; 2]>,
    pub choice: Choice,
}

type Key = (i64, u64);

impl Fleet {
    /// Decide; what was found is in `scratch` until the next time. `wanted` has a mask.
    pub fn choose(&mut self, ask: &Ask<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.credit(ask, &mut scratch);
        self.predict(ask, &mut scratch);
        self.filter(ask, &mut scratch);
        self.set_doubtful_aside(ask, &mut scratch);
        self.pick(ask, &mut scratch);
        self.scratch = scratch;
    }

    /// Book the load of the last choice's winner, before anything changed since. Its id.
    pub fn book_choice(&mut self, ask: &Ask<'_>) -> u64 {
        let row = self.scratch.choice.shown[0];
        let at = row as usize;
        let loads = self.held(row, ask).held < LOADING;
        self.turns.insert((ask.profile, ask.wanted.base_model), self.columns.identity[at]);
        let ready_at_ms = loads.then(|| ask.now_ms + self.scratch.load_ms[at]);
        let tokens = self.uncached(at, ask.prompt_tokens) as i64;
        let delay_ms = self.columns.delay_ms[at];
        let adapter = ask.adapter.map_or(BASE, |one| self.adapters.take(one.name));
        let booking = self.book(row, adapter, tokens, ready_at_ms);
        if loads {
            self.adapters.clear_account(adapter);
        } else if adapter != BASE {
            self.adapters.pay(adapter, delay_ms, ask.now_ms);
        }
        booking
    }

    /// Prompt tokens that the engine in a row would compute, as the last decision has it.
    pub fn uncached(&self, at: usize, prompt_tokens: f64) -> f64 {
        self.scratch.uncached.get(at).copied().unwrap_or(prompt_tokens)
    }

    fn credit(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
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
        let (tokens, bytes) = (ask.prompt_tokens, prefix.text_bytes as f64);
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

    fn predict(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
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
            return unsafe { loads_avx2(&columns, ask.size_bytes, ask.now_ms, load, term) };
        }
        loads(&columns, ask.size_bytes, ask.now_ms, load, term);
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
            return unsafe { costs_avx2(weights, terms, tokens, costs_us) };
        }
        costs(weights, terms, tokens, costs_us);
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

    /// The first reason against each row, counted; who has none is a candidate.
    fn filter(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { held, marks, codes, candidates, choice, .. } = scratch;
        let profile = &self.profiles[ask.profile];
        let is_marked = self.mark_rows(ask, marks);
        let keeps_away = ask.adapter.is_some() && profile.quarantine;
        let Rules { rings, late, reasons, .. } = &self.rules;
        choice.counts.clear();
        choice.counts.resize(reasons + 2, 0);
        candidates.clear();
        candidates.resize(self.rows(), 0);
        codes.clear();
        codes.resize(self.rows(), 0);
        let standing = &self.masks[&ask.wanted][..];
        let (wait_ms, slot) = (&self.columns.wait_ms[..], &self.columns.slot[..]);
        let rows = standing.len().min(wait_ms.len()).min(slot.len());
        let mut count = 0;
        for at in 0..rows {
            let mut code = standing[at];
            if code == 0 {
                let mut stands = if wait_ms[at] >= profile.wait_cap_ms { SATURATED } else { 0 };
                if keeps_away && rings[held[at] as usize][slot[at] as usize] == NO_RING {
                    stands |= QUARANTINED;
                }
                if is_marked {
                    stands |= marks[at];
                    if held.get(at).is_none_or(|&held| held == RESIDENT) {
                        stands &= !CLOSED;
                    }
                }
                code = late[stands as usize];
                candidates[count] = at as u32;
                count += usize::from(code == 0);
            }
            codes[at] = code;
            choice.counts[code as usize] += 1;
        }
        candidates.truncate(count);
    }

    /// Mark the few rows that something stands against which is no column; whether there is any.
    fn mark_rows(&self, ask: &Ask<'_>, marks: &mut Vec<u8>) -> bool {
        let known = ask.known();
        let failed = known.map_or(&[][..], |adapter| self.adapters.failed(adapter));
        let closed = if ask.adapter.is_some() { &self.closed[..] } else { &[] };
        if failed.is_empty() && closed.is_empty() && ask.excluded.is_empty() {
            return false;
        }
        marks.clear();
        marks.resize(self.rows(), 0);
        for &row in failed {
            marks[row as usize] |= FAILED;
        }
        for &row in closed {
            let names = self.engines[row as usize].closed.as_deref().unwrap_or_default();
            if known.is_none_or(|adapter| names.binary_search(&adapter).is_err()) {
                marks[row as usize] |= CLOSED;
            }
        }
        for &row in ask.excluded {
            marks[row as usize] |= EXCLUDED;
        }
        true
    }

    /// The soft filter: leave out candidates that can't be relied on while others remain.
    fn set_doubtful_aside(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { candidates, choice, codes, .. } = scratch;
        let doubts = &self.columns.doubts;
        if candidates.iter().all(|&row| doubts[row as usize] == 0) {
            return;
        }
        let Rules { stale, flapping, .. } = self.rules;
        let steps = [(UNHEARD, stale), (STALE, stale), (FLAPPING, flapping)];
        for &(doubt, code) in &steps[usize::from(self.probes(ask))..] {
            let is_doubtful = |row: &u32| doubts[*row as usize] & doubt != 0;
            let doubtful = candidates.iter().filter(|row| is_doubtful(row)).count();
            if doubtful > 0 && doubtful < candidates.len() {
                candidates.retain(|row| {
                    let stays = !is_doubtful(row);
                    if !stays {
                        codes[*row as usize] = code;
                    }
                    stays
                });
                choice.counts[0] -= doubtful as u32;
                choice.counts[code as usize] += doubtful as u32;
            }
        }
    }

    fn probes(&self, ask: &Ask<'_>) -> bool {
        ask.request_hash % self.rules.probe_one_in == 0
    }

    /// The best of each class of candidates, then who may win, then who comes next.
    fn pick(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { candidates, choice, cost_us, held, load_ms, .. } = scratch;
        let columns = &self.columns;
        let profile = &self.profiles[ask.profile];
        let has_rings = ask.adapter.is_some() && profile.quarantine;
        let probes = self.probes(ask);
        let turn = self.turns.get(&(ask.profile, ask.wanted.base_model)).copied().unwrap_or(0);
        let mut classes: [Class; CLASSES] = std::array::from_fn(|_| Class::default());
        let mut worst_us = 0;
        for &row in &*candidates {
            let at = row as usize;
            let cost = cost_us[at] as i64;
            worst_us = worst_us.max(cost);
            let mut class = 1;
            if has_rings {
                class +=
                    usize::from(self.rules.rings[held[at] as usize][columns.slot[at] as usize]);
            }
            if probes && columns.doubts[at] & UNHEARD != 0 {
                class = PROBED;
            }
            let class = &mut classes[class];
            class.count += 1;
            if has_rings {
                class.delay_ms = class.delay_ms.min(columns.delay_ms[at]);
                class.load_ms = class.load_ms.min(load_ms[at]);
            }
            let identity = columns.identity[at];
            match profile.picker {
                Picker::LeastCost => {
                    class.offer(row, cost, || !rendezvous(identity, ask.affinity_hash));
                }
                Picker::LeastLoaded => {
                    let in_flight = columns.in_flight[at] as i64;
                    class.offer(row, in_flight, || !rendezvous(identity, ask.request_hash));
                }
                Picker::RoundRobin => class.offer(row, i64::from(identity <= turn), || identity),
            }
        }
        choice.worst_us = worst_us.max(1);
        choice.shown_count = 0;
        let waited_ms =
            ask.known().map_or(0.0, |adapter| self.adapters.waited_ms(adapter, ask.now_ms));
        let open = if classes[PROBED].count > 0 { 0 } else { open_rings(&classes[1..], waited_ms) };
        let (may_win, further) = classes.split_at(1 + open);
        choice.show(may_win);
        for class in further.chunks(1) {
            choice.show(class);
        }
    }
}

/// How many rings may win, of candidates by ring.
fn open_rings(rings: &[Class], waited_ms: f64) -> usize {
    for open in 1..RINGS {
        let (near, far) = rings.split_at(open);
        let is_all = far.iter().all(|ring| ring.count == 0);
        let is_none = near.iter().all(|ring| ring.count == 0);
        if is_all || !is_none && !load_is_worth_it(near, far, waited_ms) {
            return open;
        }
    }
    RINGS
}

/// Whether a load further out beats the delay at the best of those near.
fn load_is_worth_it(near: &[Class], far: &[Class], waited_ms: f64) -> bool {
    let delay_ms = near.iter().fold(f64::INFINITY, |least, ring| least.min(ring.delay_ms));
    let load_ms = far.iter().fold(f64::INFINITY, |least, ring| least.min(ring.load_ms));
    delay_ms > 0.0 && delay_ms > load_ms && waited_ms >= load_ms
}

/// Candidates of one kind: the best of them, best first, and what the best would lose.
struct Class {
    count: usize,
    best: [(Key, u32); SHOWN_MAX],
    delay_ms: f64,
    load_ms: f64,
}

impl Default for Class {
    fn default() -> Class {
        let nobody = ((i64::MAX, u64::MAX), 0);
        Class {
            count: 0,
            best: [nobody; SHOWN_MAX],
            delay_ms: f64::INFINITY,
            load_ms: f64::INFINITY,
        }
    }
}

impl Class {
    /// `second` is asked for only where `first` does not settle it.
    #[inline(always)]
    fn offer(&mut self, row: u32, first: i64, second: impl Fn() -> u64) {
        let last = &self.best[SHOWN_MAX - 1].0;
        if self.count > SHOWN_MAX && first > last.0 {
            return;
        }
        let key = (first, second());
        let held = (self.count - 1).min(SHOWN_MAX);
        let at = self.best[..held].partition_point(|one| one.0 <= key);
        if at < SHOWN_MAX {
            self.best.copy_within(at..SHOWN_MAX - 1, at + 1);
            self.best[at] = (key, row);
        }
    }

    fn best(&self) -> &[(Key, u32)] {
        &self.best[..self.count.min(SHOWN_MAX)]
    }
}

impl Choice {
    /// Show the best of these classes taken together, as long as there is room.
    fn show(&mut self, classes: &[Class]) {
        let mut next = [0; CLASSES];
        while self.shown_count < SHOWN_MAX {
            let heads = classes
                .iter()
                .enumerate()
                .filter_map(|(n, class)| class.best().get(next[n]).map(|one| (*one, n)));
            let Some(((_, row), n)) = heads.min() else { return };
            self.shown[self.shown_count] = row;
            self.shown_count += 1;
            next[n] += 1;
        }
    }

    pub fn shown(&self) -> &[u32] {
        &self.shown[..self.shown_count]
    }
}

/// The finaliser of splitmix64, as `axiom_common.policy.rendezvous`.
fn rendezvous(identity: u64, key: u64) -> u64 {
    let mut mixed = identity ^ key;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

struct LoadColumns<'a> {
    load_queue_ms: &'a [f64],
    loads_done_at_ms: &'a [f64],
    h2d_fixed_ms: &'a [f64],
    h2d_bytes_per_ms: &'a [f64],
    store_fixed_ms: &'a [f64],
    store_bytes_per_ms: &'a [f64],
    in_flight: &'a [f64],
}

/// As `Fleet::load_times` and `load_ms` where nothing of the adapter is; `term` with the stall that
/// the load puts on those in flight.
#[inline(always)]
fn loads(
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
fn loads_avx2(
    columns: &LoadColumns<'_>,
    size_bytes: f64,
    now_ms: f64,
    load: &mut [f64],
    term: &mut [f64],
) {
    loads(columns, size_bytes, now_ms, load, term);
}

#[derive(Clone, Copy)]
enum Tokens<'a> {
    Same(f64),
    Each(&'a [f64]),
}

/// The weighted sum of the terms of each row, in whole us.
#[inline(always)]
fn costs(
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
fn costs_avx2(
    weights: &[f64; TERMS],
    terms: [&Vec<f64>; TERMS],
    tokens: Tokens<'_>,
    costs_us: &mut [f64],
) {
    costs(weights, terms, tokens, costs_us);
}

/// How the engine in a row holds the adapter of a decision; what a load there takes.
pub struct LoadSeen {
    pub holding: Holding,
    pub rest_ms: f64,
    pub h2d_ms: f64,
    pub cold_ms: f64,
}

impl Fleet {
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
}
